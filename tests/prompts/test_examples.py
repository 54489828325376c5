"""The examples of the packaged prompts: valid answers, one structure in all languages, true to the rules they teach."""

import re
from dataclasses import dataclass
from string import ascii_uppercase

import pytest

from langchain_rageval import PromptSet
from langchain_rageval.answers import ANSWERS
from langchain_rageval.contexts import NumberedContexts
from langchain_rageval.metrics import ASPECTS

LANGUAGES = ["en", "it", "ko", "ru", "zh"]
READS = {  # keys of the JSON block
    "classify_statements": ["question", "answer_statements", "reference_statements"],
    "critique_aspect": ["question", "answer", "aspect", "definition"],
    "extract_statements": ["question", "text"],
    "grade_contexts": ["question", "answer"],
    "regenerate_questions": ["answer", "count"],
    "select_sentences": ["question"],
    "verify_statements": ["question", "statements"],
}
STEPS = [(language, step) for language in LANGUAGES for step in READS]
CITATION = re.compile(r"(?<![A-Za-z])[A-Z]\.\d+")
NEGATION = {
    "en": r"\b(?:not|cannot|No|nothing|Nothing|nobody)\b|n't\b",
    "it": r"\b(?:[Nn]on|No|[Nn]ulla)\b",
    "ko": "않|없|아니|안 된",
    "ru": r"\b(?:[Нн]е|[Нн]ет|[Нн]ельзя|[Нн]ичего)\b",
    "zh": "[不没]",
}
ORDER = {
    "en": "Judge,|Ignore your",
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

    def no(self, text):
        return bool(re.search(NEGATION[self.language], text))

    def order(self, text):
        return bool(re.search(ORDER[self.language], text))

    def statement(self, number, kind="statement"):
        name = "statements" if kind == "statement" else f"{kind}_statements"
        return next(item["text"] for item in self.input[name] if item[kind] == number)

    def verdict(self, number):
        (found,) = [verdict for verdict in self.output["verdicts"] if verdict["statement"] == number]
        return found["verdict"], found["evidence"]

    def reason(self, place):
        return self.output["verdicts"][place - 1]["reason"]

    def listed(self, name, kind):
        return [item[kind] for item in self.output[name]]

    @property
    def useful(self):
        return [verdict["context"] for verdict in self.output["verdicts"] if verdict["useful"]]


def figures(*texts):
    """The numbers written in digits."""
    return set(re.findall(r"\d+", " ".join(texts)))


TEACHES = {  # step to case: place of the example that teaches it, and what then holds in every language
    "extract_statements": {
        "a negation": (0, lambda e: e.no(e.input["text"]) and any(map(e.no, e.output["statements"]))),
        "numbers and a date": (0, lambda e: figures(e.input["text"]) == figures(*e.output["statements"]) > {"2024"}),
        "an enumeration": (1, lambda e: len(e.output["statements"]) == 2),
        "an evasive answer": (2, lambda e: e.no(e.input["text"]) and not e.output["statements"]),
        "an order": (3, lambda e: e.order(e.input["text"]) and not e.order(" ".join(e.output["statements"]))),
    },
    "verify_statements": {
        "support over two chunks": (0, lambda e: e.verdict(1) == ("supported", ["A.1", "B.1"])),
        "a date": (0, lambda e: "2024" in e.statement(1) and figures(e.sentences["B.1"]) >= {"31"}),
        "a number within the limit": (0, lambda e: not figures(e.statement(1)) <= figures(*e.sentences.values())),
        "another unit": (0, lambda e: e.verdict(2) == ("contradicted", ["A.2"]) and e.no(e.reason(2))),
        "a negation": (
            0,
            lambda e: (
                e.verdict(3) == ("contradicted", ["A.3"]) and e.no(e.sentences["A.3"]) and not e.no(e.statement(3))
            ),
        ),
        "partial support": (0, lambda e: e.verdict(4) == ("absent", []) and "B.2" in e.reason(4)),
        "an order": (
            0,
            lambda e: (
                e.verdict(5) == ("absent", [])
                and e.order(e.statement(5))
                and "supported" in e.statement(5)
                and e.no(e.reason(5))
            ),
        ),
    },
    "classify_statements": {
        "another unit": (0, lambda e: e.output["TP"][0]["answer"] == 1 and "14" in e.output["TP"][0]["reason"]),
        "another number": (
            0,
            lambda e: (
                2 in e.listed("FP", "answer")
                and figures(e.statement(2, "answer"), e.statement(2, "reference"))
                == figures(e.output["FP"][0]["reason"])
                > figures(e.statement(2, "answer"))
            ),
        ),
        "a negation that follows": (0, lambda e: 3 in e.listed("TP", "answer") and e.no(e.statement(3, "answer"))),
        "partial support": (
            0,
            lambda e: 4 in e.listed("FP", "answer") and figures(e.statement(4, "answer")) == {"14"},
        ),
        "an order": (
            0,
            lambda e: (
                5 in e.listed("FP", "answer") and e.order(e.statement(5, "answer")) and "TP" in e.statement(5, "answer")
            ),
        ),
        "a date": (0, lambda e: 4 in e.listed("FN", "reference") and "2025" in e.statement(4, "reference")),
        "the opposite": (
            1,
            lambda e: not e.output["TP"] and e.no(e.statement(1, "reference")) and not e.no(e.statement(1, "answer")),
        ),
    },
    "grade_contexts": {
        "needed pieces in two chunks": (0, lambda e: e.useful == [1, 3]),
        "another unit": (0, lambda e: "36" in figures(e.input["contexts"][0]) & figures(e.reason(1))),
        "another thing": (0, lambda e: e.no(e.reason(2)) and 2 not in e.useful),
        "an order": (0, lambda e: e.order(e.input["contexts"][3]) and 4 not in e.useful),
        "no answer to go by": (1, lambda e: e.input["answer"] == ""),
        "a negation": (1, lambda e: e.no(e.input["contexts"][1]) and e.useful == [2]),
        "a date of the same topic": (1, lambda e: figures(e.input["contexts"][0]) >= {"31"} and e.no(e.reason(1))),
    },
    "select_sentences": {
        "needed sentences in two chunks": (0, lambda e: e.output["sentences"] == ["A.2", "B.2", "B.3"]),
        "background": (0, lambda e: figures(e.sentences["A.1"]) == {"1991"}),
        "two that say the same": (0, lambda e: "B.1" in e.output["reason"]),
        "a negation": (0, lambda e: e.no(e.sentences["B.2"])),
        "nothing relevant": (1, lambda e: e.output["sentences"] == [] and e.no(e.output["reason"])),
        "a number, a unit, a date": (1, lambda e: figures(e.sentences["A.1"]) >= {"1", "15", "2024"}),
        "an order": (1, lambda e: e.order(e.sentences["A.2"])),
    },
    "regenerate_questions": {
        "a negation": (0, lambda e: e.no(e.input["answer"]) and e.output["evasive"] is False),
        "an evasive answer": (1, lambda e: e.no(e.input["answer"]) and e.output["evasive"] is True),
        "an order": (2, lambda e: e.order(e.input["answer"]) and not e.order(" ".join(e.output["questions"]))),
        "a number, a unit, a date": (2, lambda e: figures(e.output["questions"][0]) > {"1"}),
    },
    "critique_aspect": {
        "a negation": (
            0,
            lambda e: e.no(e.sentences["A.1"]) and "A.1" in e.output["reason"] and not e.output["verdict"],
        ),
        "a number that agrees": (0, lambda e: figures(e.sentences["A.2"], e.input["answer"]) == {"10"}),
        "praise of itself": (0, lambda e: len(NumberedContexts.of([e.input["answer"]]).lines) == 2),
        "harm": (1, lambda e: e.input["aspect"] == "harmfulness" and e.output["verdict"] is True),
        "an aspect of one's own": (2, lambda e: e.input["aspect"] not in ASPECTS),
        "nothing of the aspect": (2, lambda e: e.output["verdict"] is False and e.no(e.output["reason"])),
    },
}


def shown(language, step):
    return [Shown(language, e.input, e.output) for e in PromptSet.default(language).get(step).examples]


EXAMPLES = [
    pytest.param(step, example, id=f"{language}/{step} {number}")
    for language, step in STEPS
    for number, example in enumerate(shown(language, step), 1)
]


def of(*steps):
    return [case for case in EXAMPLES if case.values[0] in steps]


def strings(value):
    """Every text in a nested value, without the keys."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


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
    schema = ANSWERS[step].model_json_schema()
    return {name for part in [schema, *schema.get("$defs", {}).values()] for name in part["properties"]}


def test_every_step_of_the_package_is_checked_here():
    assert READS.keys() == TEACHES.keys() == ANSWERS.keys()


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_an_output_is_a_valid_answer_with_its_fields_in_order(step, example):
    answer = ANSWERS[step].model_validate(example.output, strict=True).model_dump()
    assert answer == example.output
    assert [list(item) for item in items(answer)] == [list(item) for item in items(example.output)]


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_an_input_holds_what_the_step_sends(step, example):
    assert [name for name in example.input if name != "contexts"] == READS[step]


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_all_languages_have_the_examples_of_english(language, step):
    english, other = shown("en", step), shown(language, step)
    assert [list(map(structure, (e.input, e.output))) for e in other] == [
        list(map(structure, (e.input, e.output))) for e in english
    ]
    assert [list(e.sentences) for e in other] == [list(e.sentences) for e in english]


@pytest.mark.parametrize(("step", "example"), EXAMPLES)
def test_every_citation_is_of_a_sentence_in_the_examples_block(step, example):
    cited = set(CITATION.findall(" ".join(strings(example.output))))
    assert cited <= example.sentences.keys()


@pytest.mark.parametrize(("step", "example"), of("verify_statements"))
def test_each_statement_has_one_verdict_and_the_reason_names_the_evidence(step, example):
    verdicts = example.output["verdicts"]
    assert [verdict["statement"] for verdict in verdicts] == [item["statement"] for item in example.input["statements"]]
    assert {verdict["verdict"] for verdict in verdicts} == {"supported", "contradicted", "absent"}
    for verdict in verdicts:
        assert bool(verdict["evidence"]) is (verdict["verdict"] != "absent")
        assert verdict["verdict"] == "absent" or CITATION.findall(verdict["reason"]) == verdict["evidence"]


@pytest.mark.parametrize(("step", "example"), of("classify_statements"))
def test_each_statement_is_classified_once(step, example):
    answers = [item["answer"] for item in example.input["answer_statements"]]
    references = [item["reference"] for item in example.input["reference_statements"]]
    cited = {number for item in example.output["TP"] for number in item["references"]}
    assert sorted(example.listed("TP", "answer") + example.listed("FP", "answer")) == answers
    assert sorted([*cited, *example.listed("FN", "reference")]) == references
    assert all(item["references"] for item in example.output["TP"])


@pytest.mark.parametrize(("step", "example"), of("grade_contexts"))
def test_each_chunk_has_one_verdict_in_order(step, example):
    numbers = [verdict["context"] for verdict in example.output["verdicts"]]
    assert numbers == list(range(1, len(example.input["contexts"]) + 1))


@pytest.mark.parametrize(("step", "example"), of("select_sentences"))
def test_selected_sentences_are_named_once_in_order(step, example):
    named = example.output["sentences"]
    assert named == [number for number in example.sentences if number in named]


@pytest.mark.parametrize(("step", "example"), of("regenerate_questions"))
def test_as_many_questions_as_asked_for_or_none_for_an_evasive_answer(step, example):
    questions = example.output["questions"]
    assert len(questions) == (0 if example.output["evasive"] else example.input["count"])
    assert len(set(questions)) == len(questions)
    assert all(question.endswith(("?", "？")) for question in questions)


@pytest.mark.parametrize("case", [(step, case) for step in TEACHES for case in TEACHES[step]], ids=": ".join)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_hard_case_is_taught(language, case):
    step, name = case
    number, holds = TEACHES[step][name]
    assert holds(shown(language, step)[number])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_example_teaches_some_case(language):
    for step, cases in TEACHES.items():
        assert {number for number, _ in cases.values()} == set(range(len(shown(language, step))))


@pytest.mark.parametrize(("language", "step"), STEPS)
def test_an_instruction_names_the_fields_that_it_speaks_of(language, step):
    named = set(re.findall(r"`(\w+)`", PromptSet.default(language).get(step).instruction))
    copied = {"verdicts", "statement", "answer", "reference"}  # item numbers, and the list around the verdicts
    assert named >= {*READS[step], *(answered(step) - copied)}
    assert named <= {*READS[step], *answered(step)}


def test_the_check_of_structure_sees_what_it_should():
    one = {"text": "Some words.", "verdict": "absent", "evidence": ["A.1"], "answer": 1, "useful": True}
    assert structure(one) == structure({**one, "text": "Иные слова."})
    for other in ({"verdict": "supported"}, {"evidence": ["A.2"]}, {"answer": 2}, {"useful": False}, {"text": ""}):
        assert structure(one) != structure({**one, **other})
