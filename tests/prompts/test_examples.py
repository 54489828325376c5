"""The examples of the packaged prompts: valid answers, one structure in all languages, true to the rules they teach."""

import re
from dataclasses import dataclass
from string import ascii_uppercase

import pytest
from helpers.each import each
from helpers.texts import OWN, strings

from langchain_rageval import PromptSet
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.prompts.answer_schemas import ANSWER_SCHEMAS
from langchain_rageval.prompts.layout import NumberedContexts

READS = {  # keys of the JSON block
    "answer_unaided": ["question"],
    "check_needs": ["turns", "needs"],
    "check_user_facts": ["turns", "facts"],
    "classify_statements": ["question", "answer_statements", "reference_statements"],
    "compare_questions": ["parent", "question"],
    "compress_question": ["question"],
    "critique_aspect": ["question", "answer", "aspect", "definition"],
    "degrade_answer": ["question", "answer"],
    "detect_abstention": ["question", "answer"],
    "detect_answerable": ["question"],
    "evolve_audience": ["question", "passages", "persona", "style", "words"],
    "evolve_follow_up": ["question", "passages", "earlier"],
    "evolve_persona": ["question", "passages", "persona"],
    "extract_entities": ["text"],
    "extract_keyphrases": ["passage"],
    "extract_statements": ["question", "text"],
    "extract_turn_statements": ["history", "question", "text"],
    "find_contradictions": ["statements"],
    "find_entities": ["entities"],
    "grade_contexts": ["question", "answer"],
    "grade_passage": ["passage"],
    "grade_relevance": ["question", "scale"],
    "grade_rubric": ["question", "answer", "reference", "criteria"],
    "list_turn_facts": ["turns"],
    "pad_context": ["question", "context"],
    "propose_personas": ["count", "passages"],
    "regenerate_questions": ["answer", "count"],
    "review_follow_up": ["turns", "question", "standalone"],
    "regenerate_turn_questions": ["history", "answer", "count"],
    "reword_question": ["question", "feedback", "passages"],
    "rewrite_question": ["history", "question"],
    "select_sentences": ["question"],
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
def test_an_output_is_a_valid_answer_with_its_fields_in_order(step, example):
    answer = ANSWER_SCHEMAS[step].model_validate(example.output, strict=True).model_dump()
    assert answer == example.output
    assert [list(item) for item in items(answer)] == [list(item) for item in items(example.output)]


@each(("step", "example"), EXAMPLES)
def test_an_input_holds_what_the_step_sends(step, example):
    assert [name for name in example.input if name != "contexts"] == READS[step]


@each(("language", "step"), STEPS)
def test_all_languages_have_the_examples_of_english(language, step):
    english, other = (
        [(structure(e.input), structure(e.output), [*e.sentences]) for e in shown(one, step)]
        for one in ("en", language)
    )
    assert other == english


@each(("step", "example"), EXAMPLES)
def test_every_citation_is_of_a_sentence_in_the_examples_block(step, example):
    cited = set(CITATION.findall(" ".join(strings(example.output))))
    assert cited <= example.sentences.keys()


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
