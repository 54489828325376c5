from helpers.each import each, error_of
from helpers.scripted import answering, classification, human_of, scripted
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.steps import Classification
from langchain_rageval.steps.classify_statements import classify_statements


def state(answers, *references):
    return {
        "sample": Sample(question="What?", answer="x", references=["r"] * len(references)),
        "answer_statements": list(answers),
        "statements_by_reference": [list(texts) for texts in references],
    }


def found(judge, answers, references):
    """The findings of a single reference, statements being letters."""
    (findings,) = classify_statements(judge).invoke(state(answers, references))["classifications"]
    return findings


def sent(name, texts):
    return [{name: number, "text": text} for number, text in enumerate(texts, 1)]


def brief(findings):
    return [(finding.number, finding.verdict) for finding in findings if finding.kind != "agreement"]


# What is sent, and what is found


def test_both_lists_go_out_numbered_from_one_and_each_statement_has_one_finding():
    judge = scripted(classification({2: [1]}, fp=[1], fn=[2]))
    findings = found(judge, "ab", "cd")
    sides = {"answer_statements": sent("answer", "ab"), "reference_statements": sent("reference", "cd")}
    assert judge.inputs == [{"question": "What?", **sides}]
    assert "## Contexts" not in human_of(judge.asked[0])
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in findings] == [
        ("statement", 1, "a", "FP", "fp1"),
        ("statement", 2, "b", "TP", "tp2"),
        ("reference_statement", 1, "c", "TP", "tp2"),
        ("reference_statement", 2, "d", "FN", "fn2"),
    ]


# Numbers


TWICE = Classification.model_validate(
    {
        "TP": [{"answer": 1, "references": [1], "reason": "x"}, {"answer": 1, "references": [2], "reason": "y"}],
        "FP": [{"answer": 2, "reason": ""}, {"answer": 2, "reason": ""}],
        "FN": [{"reference": 3, "reason": ""}, {"reference": 3, "reason": ""}],
    }
)
WITHOUT_KIND = '{"TP": [], "FP": [{"reason": "r", "answer": 1}], "FN": [{"reason": "r", "reference": 1}]}'


@each(
    ("answers", "references", "replies", "expected", "asked"),
    [
        ("", "", [], "", []),
        ("ab", "", [], "FP FP", []),
        ("", "cd", [], "FN FN", []),
        # a missing answer statement is asked about again alone, with all references
        ("ab", "cd", [({1: [1]}, [], [2]), ({}, [1], [1, 2])], "TP FP, TP FN", [("ab", "cd"), ("b", "cd")]),
        # so is a lost reference statement, with all answer statements, which may say it after all
        ("ab", "cd", [({1: [1]}, [2], []), ({}, [1, 2], [1])], "TP FP, TP FN", [("ab", "cd"), ("ab", "d")]),
        ("ab", "cd", [({1: [1]}, [2], []), ({2: [1]}, [1], [])], "TP FP, TP TP", [("ab", "cd"), ("ab", "d")]),
        # one that no reply mentions is asked about once, and is then missing
        ("a", "c", [({}, [1], []), ({}, [1], [])], "FP, FN", [("a", "c"), ("a", "c")]),
        ("a", "c", [({}, [1], []), ({}, [], [], {1: [1]})], "FP, TP", [("a", "c"), ("a", "c")]),
        # an answer statement in both lists has no place, and what it cites does not count
        ("a", "c", [({1: [1]}, [1], [1]), ({}, [1], [1])], "FP, FN", [("a", "c"), ("a", "c")]),
        ("ab", "cd", [({1: [1], 2: [2]}, [1], []), ({}, [1], [1])], "FP TP, FN TP", [("ab", "cd"), ("ab", "cd")]),
        # a true statement has to name a reference statement that exists
        ("ab", "cd", [({1: [], 2: [2]}, [], [1]), ({1: [1]}, [], [2])], "TP TP, FN TP", [("ab", "cd"), ("a", "cd")]),
        ("ab", "c", [({1: [9, 0], 2: [1]}, [], []), ({1: [1]}, [], [])], "TP TP, TP", [("ab", "c"), ("a", "c")]),
        # what a reply settled a later one does not change
        ("ab", "cd", [({1: [1]}, [], [2]), ({1: [2]}, [], [1])], "TP TP, TP FN", [("ab", "cd"), ("b", "cd")]),
        # unknown numbers are dropped
        ("a", "cd", [({1: [1, 0, 9], 7: [2]}, [0, -1], [2, 99])], "TP, TP FN", [("a", "cd")]),
        # a reference statement that is said only in part is missing, whoever names it
        ("a", "c", [({1: [1]}, [], [1])], "TP, FN", [("a", "c")]),
        ("a", "c", [({}, [], [1], {1: [1]})], "extra, FN", [("a", "c")]),
        ("ab", "xyz", [TWICE], "TP FP, TP TP FN", [("ab", "xyz")]),
        ("a", "c", [WITHOUT_KIND], "FP, FN", [("a", "c")]),
    ],
)
def test_each_statement_has_one_place_whatever_the_reply_lacks_or_repeats(
    answers, references, replies, expected, asked
):
    judge = scripted(*(classification(*reply) if isinstance(reply, tuple) else reply for reply in replies))
    findings = found(judge, answers, references)
    assert [finding.verdict for finding in findings] == expected.replace(",", "").split()
    kinds = ["statement"] * len(answers) + ["reference_statement"] * len(references)
    assert [finding.kind for finding in findings] == kinds
    assert [(inputs["answer_statements"], inputs["reference_statements"]) for inputs in judge.inputs] == [
        (sent("answer", given), sent("reference", others)) for given, others in asked
    ]


def test_a_true_statement_that_never_names_a_reference_statement_is_a_failure():
    judge = Judge(scripted(*[classification({1: []}, fn=[1])] * 2), attempts=2)
    message = "classify_statements: no single place for the answer statements [1], reference statements []"
    assert str(error_of(JudgeOutputError, found, judge, "a", "c")) == message


def test_an_extra_cites_what_it_contains_and_finds_it():
    findings = found(scripted(classification(extra={1: [2, 7], 2: []}, fn=[1])), "ab", "cd")
    assert brief(findings) == [(1, "extra"), (2, "extra"), (1, "FN"), (2, "TP")]
    assert [finding.cites for finding in findings] == [["2"], [], [], []]


# Slices


def by_letter(messages):
    """Equal letters say the same."""
    inputs = read_inputs(human_of(messages))
    answers = {item["text"]: item["answer"] for item in inputs["answer_statements"]}
    references = {item["text"]: item["reference"] for item in inputs["reference_statements"]}
    tp = {number: [references[text]] for text, number in answers.items() if text in references}
    fp = [number for number in answers.values() if number not in tp]
    return classification(tp, fp, fn=[number for text, number in references.items() if text not in answers])


letters = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@given(letters, letters, st.integers(1, 9))
def test_the_size_of_the_slices_changes_nothing(answers, references, size):
    sliced = found(Judge(answering(by_letter), max_statements=size), answers, references)
    assert brief(sliced) == [
        *((n, "TP" if text in references else "FP") for n, text in enumerate(answers, 1)),
        *((n, "TP" if text in answers else "FN") for n, text in enumerate(references, 1)),
    ]


# Draws


def test_the_majority_of_the_draws_holds_for_each_statement_and_its_rate_is_told():
    replies = [classification({1: [1]}, fn=[2]), classification({1: [2]}, fn=[1]), classification(fp=[1], fn=[1, 2])]
    findings = found(Judge(scripted(*replies), draws=3), "a", "cd")
    assert brief(findings) == [(1, "TP"), (1, "FN"), (2, "FN")]
    assert [(f.number, f.text, f.verdict) for f in findings if f.kind == "agreement"] == [
        (1, "a", "0.67"), (1, "c", "0.67"), (2, "d", "0.67"),
    ]  # fmt: skip


def test_over_slices_a_contained_reference_counts_before_a_contradiction_and_that_before_nothing():
    nothing, contains = classification(extra={1: []}, fn=[1]), classification(extra={1: [1]})
    wrong = classification(fp=[1], fn=[1])
    for by_slice, expected in (
        ({"c": nothing, "d": wrong}, ("FP", [])),
        ({"c": wrong, "d": nothing}, ("FP", [])),
        ({"c": nothing, "d": contains}, ("extra", ["2"])),
        ({"c": contains, "d": wrong}, ("extra", ["1"])),
    ):
        judge = answering(
            lambda messages, by=by_slice: by[read_inputs(human_of(messages))["reference_statements"][0]["text"]]
        )
        first, *_ = found(Judge(judge, max_statements=1), "a", "cd")
        assert (first.verdict, first.cites) == expected
