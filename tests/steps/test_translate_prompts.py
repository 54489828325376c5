"""A user's own model drafts the prompts in another language; what the steps rely on cannot get lost."""

import json
import re

import pytest
from helpers.each import each, error_of
from helpers.scripted import answering, graded, human_of, scripted

from langchain_rageval import Criterion, Judge, PromptSet, faithfulness, rubric, translate_prompts
from langchain_rageval.errors import ConfigError, JudgeOutputError
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.criteria import default_criteria
from langchain_rageval.prompts.layout import read_inputs

MARK = "ß"
LABELS = "supported|contradicted|absent|contradicts|extra|kept|asked again|ignored|not touched|met|unmet|withdrawn"


def marked(text: str) -> str:
    """A pretended translation: letters outside of what must be kept are marked, sentences stay as they are."""
    parts = re.split(rf'(`[^`]+`|\{{\w*\}}|"(?:{LABELS})"|- (?:{LABELS})\b|\b[A-Z]\.\d+|\b(?:TP|FP|FN|JSON)\b)', text)
    text = "".join(
        part if at % 2 else re.sub(r"\b([a-zа-яё]{3,})\b", rf"\1{MARK}", part) for at, part in enumerate(parts)
    )
    return text if MARK in text else f"{text} {MARK}"


def translating(change=lambda content: content):
    """A judge that translates so; `change` spoils what it says."""

    def answer(messages):
        texts = read_inputs(human_of(messages))["texts"]
        translations = [{"text": item["text"], "content": change(marked(item["content"]))} for item in texts]
        return json.dumps({"translations": translations}, ensure_ascii=False)

    return answering(answer)


def test_every_text_is_translated_and_nothing_else_is_touched():
    prompts, english = translate_prompts(translating(), "de"), PromptSet.default("en")
    assert prompts.common.language == "de"
    assert prompts.prompts.keys() == ANSWER_SCHEMAS.keys()
    assert MARK in prompts.common.system
    assert prompts.common.labels["rules"].count("{step}") == 1
    assert "{problem}" in prompts.common.ask_again
    assert prompts.common.aspects.keys() == english.common.aspects.keys()
    for step, prompt in prompts.prompts.items():
        assert MARK in prompt.instruction
        for example, original in zip(prompt.examples, english.get(step).examples, strict=True):
            ANSWER_SCHEMAS[step].model_validate(example.output, strict=True)
            assert example != original
    verdicts = prompts.get("verify_statements").examples[0].output["verdicts"]
    kept = english.get("verify_statements").examples[0].output["verdicts"]
    assert [(v["verdict"], v["evidence"]) for v in verdicts] == [(v["verdict"], v["evidence"]) for v in kept]
    assert all(MARK in v["reason"] for v in verdicts)


def test_grades_numbers_of_passages_and_an_empty_answer_are_no_texts_to_translate():
    prompts, english = translate_prompts(translating(), "de"), PromptSet.default("en")
    for step in ("grade_passage", "review_question", "compare_questions", "find_passages", "write_answer"):
        outputs = ([example.output for example in drafts.get(step).examples] for drafts in (prompts, english))
        for draft, original in zip(*outputs, strict=True):
            changed = {name for name, value in draft.items() if value != original[name]}
            assert changed == {name for name in ("reason", "feedback", "answer") if original.get(name)}


def test_each_step_shared_texts_and_criteria_are_one_call_each_and_roles_of_turns_are_not_translated():
    prompts, asked = translate_prompts(judge := translating(), "de"), judge.inputs
    assert [inputs["language"] for inputs in asked] == ["de"] * (len(ANSWER_SCHEMAS) + 2)
    roles = {turn["role"] for example in prompts.get("rewrite_question").examples for turn in example.input["history"]}
    assert roles == {"user", "assistant"}
    assert not {"user", "assistant"} & {item["content"] for inputs in asked for item in inputs["texts"]}


def test_the_draft_is_saved_for_a_person_and_judges_with_it(tmp_path):
    drafted = translate_prompts(translating(), "de", directory=tmp_path / "de")
    loaded = PromptSet.load(tmp_path / "de")
    assert loaded == drafted
    judge = scripted('{"statements": []}')
    sample = {"question": "Wann?", "answer": "Morgen.", "contexts": ["Morgen."]}
    faithfulness(Judge(judge, prompts=loaded)).invoke(sample)
    assert judge.asked[0][0].text == drafted.common.system


CHANGES = [
    (lambda text: text.replace("`", "'"), "lacks `"),
    (lambda text: text.replace("{problem}", ""), r"lacks \{problem\}"),
    (lambda text: text.replace("- supported:", "- gestützt:"), "lacks - supported"),
    (lambda text: text.replace('"contradicts"', '"Widerspruch"'), 'lacks "contradicts"'),
    (lambda text: text.replace("A.1", "A.I"), "lacks A.1"),
    (lambda text: text.replace(MARK, ""), "is not translated"),
    (lambda text: "", "lacks|is not translated"),
    (lambda text: text.replace(". ", ", "), "sentences instead of"),
]


@each(("change", "told"), CHANGES)
def test_what_loses_its_form_is_asked_again_and_then_refused(change, told):
    judge = translating(change)
    error = error_of(JudgeOutputError, translate_prompts, Judge(judge, attempts=2), "de")
    assert (error.step, bool(re.search(told, str(error)))) == ("translate_prompts", True)
    assert any(re.search(told, messages[-1].text) for messages in judge.asked if len(messages) == 4)


def test_only_the_contexts_of_an_example_keep_their_number_of_sentences():
    prompts = PromptSet.default("en").prompts.values()
    chunks = {chunk for prompt in prompts for one in prompt.examples for chunk in one.input.get("contexts", ())}
    judge = translating(lambda text: text if text.replace(MARK, "") in chunks else f"{text} Noch ein Satz.")
    translate_prompts(judge, "de")
    assert len(judge.asked) == len(ANSWER_SCHEMAS) + 2


def test_a_missing_translation_is_asked_again():
    replies = []

    def answer(messages):
        texts = read_inputs(human_of(messages))["texts"]
        whole = [{"text": item["text"], "content": marked(item["content"])} for item in texts]
        replies.append(len(messages))
        return json.dumps({"translations": whole if len(messages) == 4 else whole[1:]}, ensure_ascii=False)

    assert translate_prompts(answering(answer), "de").common.language == "de"
    assert sorted(replies) == [2] * (len(ANSWER_SCHEMAS) + 2) + [4] * (len(ANSWER_SCHEMAS) + 2)


@each("given", [{"language": " "}, {"language": "de", "source": "xx"}])
def test_a_language_that_cannot_be_meant_is_refused_before_any_call(given):
    judge = translating()
    error_of(ConfigError, translate_prompts, judge, **given)
    assert judge.asked == []


@pytest.mark.parametrize("source", ["en", "ru"])
def test_the_criteria_of_the_rubric_are_translated_and_keep_names_weights_and_grades(source):
    drafted = translate_prompts(translating(), "de", source=source)
    for one, other in zip(drafted.criteria, default_criteria()[source], strict=True):
        assert (one.name, one.weight, list(one.grades)) == (other.name, other.weight, list(other.grades))
        assert MARK in one.description
        assert all(MARK in text for text in one.grades.values())
        assert [example.grade for example in one.examples] == [example.grade for example in other.examples]
        assert all(MARK in example.answer for example in one.examples)


def test_the_rubric_grades_by_the_translated_criteria_on_any_scale():
    drafted = translate_prompts(translating(), "de")
    for scale, described in ((0, 3), ["0", "1", "2", "3"]), ((1, 5), ["1", "5"]):
        highest = scale[1]
        judge = scripted(graded(correctness=highest, completeness=highest, readability=highest))
        score = rubric(Judge(judge, prompts=drafted), scale=scale).invoke({"question": "Wann?", "answer": "Morgen."})
        assert score.value == 1.0
        sent = judge.inputs[0]["criteria"]
        assert [item["description"] for item in sent] == [item.description for item in drafted.criteria]
        assert [list(item["grades"]) for item in sent] == [described] * 3


def test_criteria_of_other_names_in_the_prompts_are_refused():
    prompts = PromptSet.default("en").model_copy(update={"criteria": (Criterion("tone", "Whether it is kind."),)})
    assert str(error_of(ConfigError, rubric, Judge(scripted(), prompts=prompts))) == (
        "the criteria of the judge's prompts must be named correctness, completeness, readability, got tone; pass "
        "other criteria as rubric(judge, criteria=[...])"
    )


def test_criteria_of_the_user_are_not_replaced_by_those_of_the_prompts():
    judge = scripted(graded(tone=3))
    own = [{"name": "tone", "description": "Whether it is kind.", "grades": {0: "Rude.", 3: "Kind."}}]
    metric = rubric(Judge(judge, prompts=translate_prompts(translating(), "de")), own)
    metric.invoke({"question": "Wann?", "answer": "Morgen."})
    assert [item["description"] for item in judge.inputs[0]["criteria"]] == ["Whether it is kind."]
