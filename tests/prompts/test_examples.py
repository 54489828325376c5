"""The examples of the packaged prompts: valid answers, one structure in all languages, true to their rules, short."""

import re
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import ascii_uppercase

import pytest
from helpers.each import each
from helpers.texts import LANGUAGES, OWN, strings

from langchain_rageval import PromptSet
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import NumberedContexts, RequestContent, lay_out

READS = {  # keys of the JSON block
    **{step: ["question"] for step in ("answer_unaided", "compress_question", "detect_answerable", "select_sentences")},
    **{step: ["question", "answer"] for step in ("degrade_answer", "detect_abstention", "grade_contexts")},
    **{step: ["passage"] for step in ("extract_keyphrases", "grade_passage")},
    "check_needs": ["turns", "needs"],
    "check_user_facts": ["turns", "facts"],
    "classify_statements": ["question", "answer_statements", "reference_statements"],
    "compare_questions": ["parent", "question"],
    "critique_aspect": ["question", "answer", "aspect", "definition"],
    "evolve_audience": ["question", "passages", "persona", "style", "words"],
    "evolve_follow_up": ["question", "passages", "earlier"],
    "evolve_persona": ["question", "passages", "persona"],
    "extract_entities": ["text"],
    "extract_statements": ["question", "text"],
    "extract_turn_statements": ["history", "question", "text"],
    "find_contradictions": ["statements"],
    "find_entities": ["entities"],
    "grade_relevance": ["question", "scale"],
    "grade_rubric": ["question", "answer", "reference", "criteria"],
    "list_turn_facts": ["turns"],
    "pad_context": ["question", "context"],
    "propose_personas": ["count", "passages"],
    "regenerate_questions": ["answer", "count"],
    "regenerate_turn_questions": ["history", "answer", "count"],
    "review_follow_up": ["turns", "question", "standalone"],
    "reword_question": ["question", "feedback", "passages"],
    "rewrite_question": ["history", "question"],
    "verify_statements": ["question", "statements"],
    "write_question": ["passage", "keyphrase"],
}
READS = {step: READS.get(step, ["question", "passages"]) for step in ANSWER_SCHEMAS}
STEPS = [(language, step) for language in OWN for step in READS if step in OWN[language]]
CITATION = re.compile(r"(?<![A-Za-z])[A-Z]\.\d+")
ORDER = {
    "en": "Judge,|Ignore (?:your|the)",
    "it": "Giudice,|Ignora le|Dimentica il",
    "ko": "심사자님,|무시하고|잊고",
    "ru": "Судья,|Забудь",
    "zh": "评审，|无视|忘掉",
}


@dataclass(frozen=True)
class Shown:
    """An example as the judge is shown it."""

    language: str
    input: dict
    output: dict

    @property
    def sentences(self):
        """Lettered number to sentence."""
        lines = NumberedContexts.of(self.input.get("contexts", [])).lines
        return {f"{ascii_uppercase[line.chunk - 1]}.{line.sentence}": line.text for line in lines}

    def has_order(self, value):
        return bool(re.search(ORDER[self.language], " ".join(strings(value))))


def shown(language, step):
    return [Shown(language, e.input, e.output) for e in PromptSet.default(language).get(step).examples]


EXAMPLES = [(step, example) for language, step in STEPS for example in shown(language, step)]


def of(*steps):
    return [case for case in EXAMPLES if case[0] in steps]


def items(value):
    """Every mapping in a nested value."""
    if isinstance(value, dict):
        return [value, *(found for inner in value.values() for found in items(inner))]
    return [found for inner in value for found in items(inner)] if isinstance(value, list) else []


def structure(value):
    """All but the words: keys in order, lengths of lists, numbers, booleans, labels, citations, names of aspects."""
    if isinstance(value, dict):
        return {key: structure(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [structure(inner) for inner in value]
    if isinstance(value, str) and value and value not in ASPECTS and not re.fullmatch(r"[a-z]+|[A-Z]\.\d", value):
        return "words"
    return value


def answered(step):
    schema = ANSWER_SCHEMAS[step].model_json_schema()
    return {name for part in [schema, *schema.get("$defs", {}).values()] for name in part["properties"]}


@each(("step", "example"), EXAMPLES)
def test_an_example_has_what_the_step_sends_and_a_valid_answer_that_cites_it(step, example):
    assert [name for name in example.input if name != "contexts"] == READS[step]
    answer = ANSWER_SCHEMAS[step].model_validate(example.output, strict=True).model_dump()
    assert answer == example.output
    assert [list(item) for item in items(answer)] == [list(item) for item in items(example.output)]
    assert set(CITATION.findall(" ".join(strings(example.output)))) <= example.sentences.keys()


@each(("language", "step"), STEPS)
def test_all_languages_have_the_examples_of_english(language, step):
    english, other = (
        [(structure(e.input), structure(e.output), [*e.sentences]) for e in shown(one, step)]
        for one in ("en", language)
    )
    assert other == english


@each(("step", "example"), of("verify_statements"))
def test_each_statement_has_one_verdict_and_the_reason_names_the_evidence(step, example):
    verdicts = example.output["verdicts"]
    assert [verdict["statement"] for verdict in verdicts] == [item["statement"] for item in example.input["statements"]]
    for verdict in verdicts:
        assert bool(verdict["evidence"]) is (verdict["verdict"] != "absent")
        assert verdict["verdict"] == "absent" or CITATION.findall(verdict["reason"]) == verdict["evidence"]


@pytest.mark.parametrize(("step", "example"), of("classify_statements"))
def test_each_answer_statement_is_classified_once_and_each_reference_statement_found_in_full_or_missed(step, example):
    answers = [item["answer"] for item in example.input["answer_statements"]]
    references = [item["reference"] for item in example.input["reference_statements"]]
    told = (*example.output["TP"], *example.output["FP"])
    cited = {number for item in told for number in item["references"]}
    missed = [item["reference"] for item in example.output["FN"]]
    assert sorted(item["answer"] for item in told) == answers
    assert sorted({*cited, *missed}) == references
    assert len(set(missed)) == len(missed)
    assert all(item["references"] for item in example.output["TP"])
    contained = {item["kind"]: item["references"] for item in example.output["FP"]}
    assert (contained["contradicts"], bool(contained["extra"])) == ([], True)
    assert not {*contained["extra"]} & {*missed}  # an extra contains a reference statement in full


@each(("language", "step"), STEPS)
def test_a_reason_comes_before_everything_that_it_explains(language, step):
    for example in shown(language, step):
        for item in items(example.output):
            names = [name for name in item if name in ("reason", "verdict", "useful", "grade", "answer", "references")]
            assert "reason" not in names or names[0] == "reason"


@each(("step", "example"), of("grade_contexts", "grade_relevance"))
def test_each_chunk_has_one_verdict_or_grade_on_the_scale_in_order(step, example):
    items = example.output["verdicts" if step == "grade_contexts" else "grades"]
    assert [item["context"] for item in items] == list(range(1, len(example.input["contexts"]) + 1))
    if "scale" in example.input:
        lowest, highest = example.input["scale"]
        assert {lowest, highest} <= {item["grade"] for item in items} <= set(range(lowest, highest + 1))


@each(("step", "example"), of("select_sentences"))
def test_selected_sentences_are_named_once_in_order(step, example):
    named = example.output["sentences"]
    assert named == [number for number in example.sentences if number in named]


@each(("step", "example"), of("regenerate_questions", "regenerate_turn_questions"))
def test_as_many_questions_as_asked_for_or_none_for_an_evasive_answer(step, example):
    questions = example.output["questions"]
    assert len(questions) == (0 if example.output["evasive"] else example.input["count"])
    assert len(set(questions)) == len(questions)
    assert all(question.endswith(("?", "？")) for question in questions)


# Steps whose examples hold no order to the model yet.
WITHOUT_ORDER = {"critique_aspect", "regenerate_turn_questions", "rewrite_question", "extract_turn_statements"}


@each(("language", "step"), STEPS)
def test_some_example_holds_an_order_to_the_model_that_the_output_does_not_repeat(language, step):
    orders = [e for e in shown(language, step) if e.has_order(e.input)]
    assert bool(orders) is (step not in WITHOUT_ORDER)
    assert not any(e.has_order(e.output) for e in orders)


def choices(schema):
    """Names of fields with few values, with all their values."""
    for part in [schema, *schema.get("$defs", {}).values()]:
        for name, field in part.get("properties", {}).items():
            if field.get("type") == "boolean":
                yield name, {True, False}
            elif "enum" in field:
                yield name, set(field["enum"])


@each(("language", "step"), STEPS)
def test_the_examples_show_every_label_that_an_answer_may_have(language, step):
    outputs = [item for e in shown(language, step) for item in items(e.output)]
    for name, values in choices(ANSWER_SCHEMAS[step].model_json_schema()):
        assert {item[name] for item in outputs if name in item} == values, name


@each(("language", "step"), STEPS)
def test_an_instruction_names_the_fields_that_it_speaks_of(language, step):
    named = set(re.findall(r"`(\w+)`", PromptSet.default(language).get(step).instruction))
    copied = {"verdicts", "statement", "answer", "reference", "entity"}  # item numbers, and the list around verdicts
    assert named >= {*READS[step], *(answered(step) - copied)}
    assert named <= {*READS[step], *answered(step)}


# The length of an instruction and its examples, in tokens of a real tokenizer. tiktoken downloads the ranks of its
# encodings, and the tests have no network: the ranks are in the wheel of litellm, which is not imported.

MOST_TOKENS = {"en": 600, "it": 740, "ko": 1020, "ru": 800, "zh": 780}


@pytest.fixture(scope="module", params=["o200k_base"])
def encoding(request):
    """An encoding of tiktoken, with the ranks from the wheel of litellm."""
    tiktoken = pytest.importorskip("tiktoken", reason="tiktoken is not installed: no real tokenizer to count with")
    spec = find_spec("litellm")
    if spec is None or spec.origin is None:
        pytest.skip(f"litellm is not installed: its wheel contains the ranks of {request.param}")
    ranks = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    if not ranks.is_dir():
        pytest.skip(f"this version of litellm does not contain the ranks of {request.param}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(ranks))
        return tiktoken.get_encoding(request.param)


@pytest.mark.gate
@each(("language", "step"), [(language, step) for language in LANGUAGES for step in OWN[language]])
def test_an_instruction_and_its_examples_stay_within_the_token_limit_of_their_language(language, step, encoding):
    prompts = PromptSet.default(language)
    content = RequestContent(step, prompts, prompts.get(step), {}, None, {})
    human = lay_out(content, "contexts_first", with_schema=False)[1].text
    instruction_and_examples = human.partition(f"\n\n{prompts.common.labels['input']}\n")[0]
    assert 0 < len(encoding.encode(instruction_and_examples)) <= MOST_TOKENS[language]
    assert "litellm" not in sys.modules
