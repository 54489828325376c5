"""Statements compared with contexts and with references: verdicts, evidence, classes, slices and windows."""

import json

from helpers.each import each, error_of
from helpers.scripted import absent, answering, classification, human_of, scripted, supported, verdict, verdicts
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.prompts.layout import read_inputs
from langchain_rageval.run.run import Run
from langchain_rageval.steps import Classification, Verdicts
from langchain_rageval.steps.classify_statements import classify_statements
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.verify_statements import verify_statements

CONTEXTS = ["First. Second.", "Third."]
CITES = ["1.1", "1.2", "2.1"]


def state(*texts, contexts=CONTEXTS):
    return {"sample": Sample(question="What?", answer="x", contexts=contexts), "answer_statements": list(texts)}


def found(judge, *texts, contexts=CONTEXTS):
    """Return the findings about statements."""
    return verify_statements(judge, of="answer").invoke(state(*texts, contexts=contexts))["answer_verdicts"]


def brief(findings):
    return [(finding.number, finding.verdict, finding.cites) for finding in findings]


def numbers(inputs):
    return [item["statement"] for item in inputs["statements"]]


def test_statements_go_out_numbered_from_one_beside_the_numbered_contexts():
    judge = scripted(verdicts(supported(1), absent(2)))
    found(judge, "a", "b")
    statements = [{"statement": 1, "text": "a"}, {"statement": 2, "text": "b"}]
    assert judge.inputs == [{"question": "What?", "statements": statements}]
    assert "[1]\n[1.1] First.\n[1.2] Second.\n[2]\n[2.1] Third.\n" in human_of(judge.asked[0])


def test_each_slice_has_attempts_of_its_own_and_a_failure_names_the_statements_by_their_numbers_in_the_answer():
    judge = Judge(scripted(*["no", verdicts(supported(1))] * 2), attempts=2, max_statements=1)
    assert [finding.verdict for finding in found(judge, "a", "b")] == ["supported", "supported"]
    judge = Judge(scripted(verdicts(supported(1), supported(2)), verdicts(supported(2))), attempts=1, max_statements=2)
    message = "verify_statements: no single verdict for the statements [3]"
    assert str(error_of(JudgeOutputError, found, judge, *"abcd")) == message


# Citations


@each("label", ["supported", "contradicted"])
@each("cited", [[], ["9.9"], ["A.1"], ["1"], ["text of a sentence"]])
def test_a_verdict_that_cites_nothing_there_is_asked_once_more_and_the_second_replaces_it(label, cited):
    judge = scripted(verdicts(verdict(1, label, *cited), absent(2)), verdicts(absent(1)))
    assert brief(found(judge, "a", "b")) == [(1, "absent", []), (2, "absent", [])]
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1]]


SENTENCES = {"max_context_tokens": 4}  # each is a window


def by_sentence(*labels):
    """Return replies about a window for each sentence."""
    cites = [[] if label == "absent" else [cite] for label, cite in zip(labels, CITES, strict=False)]
    return [verdicts(verdict(1, label, *cited)) for label, cited in zip(labels, cites, strict=True)]


UNPROVEN = verdicts(verdict(1, "supported"))
PROVEN = verdicts(supported(1)).model_dump_json()


VERDICTS = [
    # a verdict without evidence is asked for again once; the second one stands, if there is one
    ([UNPROVEN, verdicts(verdict(1, "contradicted", "9.9"))], {}, "contradicted"),
    ([UNPROVEN, verdicts()], {}, "supported"),
    ([UNPROVEN, "no", "no"], {"attempts": 3}, "supported"),
    ([UNPROVEN], {"attempts": 1}, "supported"),
    ([verdicts(absent(1))], {}, "absent"),
    ([verdicts(absent(1)).model_dump_json().replace("[]", "null")], {}, "absent"),
    # unknown sentences are dropped, and doubles that agree are united
    ([verdicts(verdict(1, "supported", "9.9", "[1.2]", "1.2", "sentence 2.1"))], {}, "supported 1.2 2.1"),
    ([verdicts(supported(1, "1.1"), supported(1, "2.1", "1.1"))], {}, "supported 1.1 2.1"),
    # spellings of numbers and labels
    ([PROVEN.replace('"statement":1', '"statement":"1"')], {}, "supported 1.1"),
    *(
        ([PROVEN.replace('"supported"', f'"{label}"')], {}, "supported 1.1")
        for label in ("Supported", "SUPPORTED.", "**supported**")
    ),
    *(
        ([PROVEN.replace('"supported"', f'"{label}"'), verdicts(absent(1))], {}, "absent")
        for label in ("unsupported", "not supported", "partially supported", "supported?", "yes", "")
    ),
    # over windows, the strongest verdict decides with the evidence of all that gave it
    (by_sentence("supported", "contradicted", "absent"), SENTENCES, "supported 1.1"),
    (by_sentence("absent", "contradicted", "supported"), SENTENCES, "supported 2.1"),
    (by_sentence("absent", "contradicted", "absent"), SENTENCES, "contradicted 1.2"),
    (by_sentence(*["supported"] * 3), SENTENCES, "supported 1.1 1.2 2.1"),
    # a sentence of another window is no evidence
    ([verdicts(supported(1, "2.1")), *by_sentence("absent", "absent")], {"max_context_tokens": 8}, "absent"),
]


@each(("replies", "options", "expected"), VERDICTS)
def test_the_verdict_on_a_statement_and_what_it_cites(replies, options, expected):
    judge = scripted(*replies)
    (finding,) = found(Judge(judge, **options), "a")
    assert " ".join([finding.verdict, *finding.cites]) == expected
    assert len(judge.asked) == len(replies)


def test_a_statement_is_asked_again_for_evidence_once_even_if_others_are_missing():
    judge = scripted(UNPROVEN, UNPROVEN, verdicts(supported(1), absent(2)))
    assert brief(found(judge, "a", "b")) == [(1, "supported", []), (2, "supported", ["1.1"])]
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1, 2], [1]]


@each(
    "cited", ["[2.1] Third, by 1.1 percent.", "1.1-2.1", "1.1 – 2.1", "1.1 to 2.1", "from 1.1", "1.1 ff", "except 2.1"]
)
def test_evidence_with_prose_between_numbers_and_ranges_are_asked_again_once(cited):
    judge = scripted(verdicts(verdict(1, "supported", cited)), verdicts(supported(1, "2.1")))
    assert brief(found(judge, "a")) == [(1, "supported", ["2.1"])]
    judge = scripted(*[verdicts(verdict(1, "supported", cited))] * 2)
    assert brief(found(judge, "a")) == [(1, "supported", [])]


@each(
    ("written", "cites"),
    [("[1.1, 1.10]", ["1.1", "1.10"]), ("1.10", ["1.10"]), ('"1.1, 1.10"', ["1.1", "1.10"]), ('"[1.10]"', ["1.10"])],
)
def test_evidence_as_json_numbers_or_as_one_text_keeps_its_digits(written, cites):
    contexts = [" ".join(f"The {letter * 4} came here." for letter in "bcdfghjklm")]
    reply = verdicts(supported(1)).model_dump_json().replace('["1.1"]', written)
    assert brief(found(scripted(reply), "a", contexts=contexts)) == [(1, "supported", cites)]


def test_numbers_of_decoded_arguments_are_no_evidence_since_their_digits_are_lost():
    arguments = '{"verdicts": [{"statement": 1, "reason": "", "evidence": [1.1], "verdict": "supported"}]}'
    call = AIMessage("", tool_calls=[{"name": "Verdicts", "args": json.loads(arguments), "id": "1"}])
    judge = scripted(call, verdicts(supported(1, "2.1")))
    assert brief(found(judge, "a")) == [(1, "supported", ["2.1"])]
    spelled = [{"id": "1", "type": "function", "function": {"name": "Verdicts", "arguments": arguments}}]
    call = call.model_copy(update={"additional_kwargs": {"tool_calls": spelled}})
    assert brief(found(scripted(call), "a")) == [(1, "supported", ["1.1"])]


# Slices and windows


def by_text(messages):
    """Vowels are supported; the reason repeats the statement."""
    items = read_inputs(human_of(messages))["statements"]
    labels = [["supported", "1.1"] if item["text"] in "ae" else ["absent"] for item in items]
    return verdicts(*(verdict(i["statement"], *one, reason=i["text"]) for i, one in zip(items, labels, strict=True)))


@each("texts", ["abcde", "ababe"])  # equal slices, too, keep their numbers
def test_many_statements_go_out_in_slices_each_numbered_from_one(texts):
    judge = answering(by_text)
    findings = found(Judge(judge, max_statements=2), *texts)
    assert [numbers(inputs) for inputs in judge.inputs] == [[1, 2], [1, 2], [1]]
    expected = [(n, text, text, "supported" if text in "ae" else "absent") for n, text in enumerate(texts, 1)]
    assert [(f.number, f.text, f.reason, f.verdict) for f in findings] == expected


def test_the_same_question_by_a_plain_step_is_not_taken_for_this_one():
    judge = answering(lambda messages: verdicts(supported(1)))
    run = Run()
    found_here = verify_statements(judge, of="answer").invoke(state("a"), run.into({}))["answer_verdicts"]
    plain = JudgeStep("verify_statements", judge, Verdicts)
    inputs = {"question": "What?", "statements": [{"statement": 1, "text": "a"}], "contexts": CONTEXTS}
    assert plain.invoke(inputs, run.into({}))["verify_statements"] == verdicts(supported(1))
    assert brief(found_here) == [(1, "supported", ["1.1"])]


BY_CHUNK = [
    (["aaa", "ssa", "sss"], ("supported", "in 2 in 3", ["2.1", "3.1"], "0.67", "[2] 2 of 3 draws")),
    (["aca", "acc", "aaa"], ("contradicted", "in 2", ["2.1"], "0.67", "[1] 2 of 3 draws")),
    (["aaa", "aaa", "aas"], ("absent", "in 1 in 2 in 3", [], "0.67", "[3] 2 of 3 draws")),
]


@each(("by_chunk", "expected"), BY_CHUNK)
def test_of_chunks_the_strongest_verdict_counts_and_the_lowest_agreement(by_chunk, expected):
    labels = {"s": "supported", "c": "contradicted", "a": "absent"}
    texts = ["First chunk.", "Second chunk.", "Third chunk."]
    left = {text: iter(votes) for text, votes in zip(texts, by_chunk, strict=True)}

    def reply(messages):
        number, text = next((n, text) for n, text in enumerate(texts, 1) if text in human_of(messages))
        return verdicts(verdict(1, labels[next(left[text])], f"{number}.1", reason=f"in {number}"))

    step = verify_statements(Judge(answering(reply), draws=3), of="answer", by_chunk=True)
    found, agreement = step.invoke(state("a", contexts=texts))["answer_verdicts"]
    assert (found.verdict, found.reason, found.cites, agreement.verdict, agreement.reason) == expected


# Statements of answer and reference, classified


def classified(judge, answers, references):
    """Return the findings of a single reference, statements being letters."""
    sample = Sample(question="What?", answer="x", references=["r"])
    given = {"sample": sample, "answer_statements": [*answers], "statements_by_reference": [[*references]]}
    (findings,) = classify_statements(judge).invoke(given)["classifications"]
    return findings


def sent(name, texts):
    return [{name: number, "text": text} for number, text in enumerate(texts, 1)]


def places(findings):
    return [(finding.number, finding.verdict) for finding in findings if finding.kind != "agreement"]


def test_both_lists_go_out_numbered_from_one_and_each_statement_has_one_finding():
    judge = scripted(classification({2: [1]}, fp=[1], fn=[2]))
    findings = classified(judge, "ab", "cd")
    sides = {"answer_statements": sent("answer", "ab"), "reference_statements": sent("reference", "cd")}
    assert judge.inputs == [{"question": "What?", **sides}]
    assert "## Contexts" not in human_of(judge.asked[0])
    assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in findings] == [
        ("statement", 1, "a", "FP", "fp1"),
        ("statement", 2, "b", "TP", "tp2"),
        ("reference_statement", 1, "c", "TP", "tp2"),
        ("reference_statement", 2, "d", "FN", "fn2"),
    ]


TWICE = Classification.model_validate(
    {
        "TP": [{"answer": 1, "references": [1], "reason": "x"}, {"answer": 1, "references": [2], "reason": "y"}],
        "FP": [{"answer": 2, "reason": ""}, {"answer": 2, "reason": ""}],
        "FN": [{"reference": 3, "reason": ""}, {"reference": 3, "reason": ""}],
    }
)
WITHOUT_KIND = '{"TP": [], "FP": [{"reason": "r", "answer": 1}], "FN": [{"reason": "r", "reference": 1}]}'


PLACES = [
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
]


@each(("answers", "references", "replies", "expected", "asked"), PLACES)
def test_each_statement_has_one_place_whatever_the_reply_lacks_or_repeats(
    answers, references, replies, expected, asked
):
    judge = scripted(*(classification(*reply) if isinstance(reply, tuple) else reply for reply in replies))
    findings = classified(judge, answers, references)
    assert [finding.verdict for finding in findings] == expected.replace(",", "").split()
    kinds = ["statement"] * len(answers) + ["reference_statement"] * len(references)
    assert [finding.kind for finding in findings] == kinds
    assert [(inputs["answer_statements"], inputs["reference_statements"]) for inputs in judge.inputs] == [
        (sent("answer", given), sent("reference", others)) for given, others in asked
    ]


def test_a_true_statement_that_never_names_a_reference_statement_is_a_failure():
    judge = Judge(scripted(*[classification({1: []}, fn=[1])] * 2), attempts=2)
    message = "classify_statements: no single place for the answer statements [1], reference statements []"
    assert str(error_of(JudgeOutputError, classified, judge, "a", "c")) == message


def test_an_extra_cites_what_it_contains_and_finds_it():
    findings = classified(scripted(classification(extra={1: [2, 7], 2: []}, fn=[1])), "ab", "cd")
    assert places(findings) == [(1, "extra"), (2, "extra"), (1, "FN"), (2, "TP")]
    assert [finding.cites for finding in findings] == [["2"], [], [], []]


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
    sliced = classified(Judge(answering(by_letter), max_statements=size), answers, references)
    assert places(sliced) == [
        *((n, "TP" if text in references else "FP") for n, text in enumerate(answers, 1)),
        *((n, "TP" if text in answers else "FN") for n, text in enumerate(references, 1)),
    ]


def test_the_majority_of_the_draws_holds_for_each_statement_and_its_rate_is_told():
    replies = [classification({1: [1]}, fn=[2]), classification({1: [2]}, fn=[1]), classification(fp=[1], fn=[1, 2])]
    findings = classified(Judge(scripted(*replies), draws=3), "a", "cd")
    assert places(findings) == [(1, "TP"), (1, "FN"), (2, "FN")]
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
        first, *_ = classified(Judge(judge, max_statements=1), "a", "cd")
        assert (first.verdict, first.cites) == expected
