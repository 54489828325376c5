"""Abstention, aspect critique and completeness: verdicts on the answer, by one judge or several votes."""

from itertools import product

import pytest
from helpers.each import each
from helpers.scripted import abstains, answerable, critique, scripted

from langchain_rageval import (
    ConfigError,
    Judge,
    OfflineJudge,
    Sample,
    abstention,
    answer_completeness,
    aspect_critique,
    evaluate,
    jury,
)
from langchain_rageval.metrics.answer_completeness import QuestionPart, QuestionParts
from langchain_rageval.testing import MetricTests

SAMPLE = Sample(question="How?", answer="Like so.", references=["So."], contexts=["So it is."])
TRUTHS = [(answer, nothing) for answer in (True, False) for nothing in (True, False)]


def test_the_answer_abstains_where_there_is_nothing_and_each_outcome_has_a_reason_of_its_own():
    reasons = set()
    for question, given, (answer, nothing) in product(("How?", "Как?"), ("reference", "contexts"), TRUTHS):
        case = question, given, answer, nothing
        of_contexts = given == "contexts"
        other = answerable(not nothing, "o") if of_contexts else abstains(nothing, "o")
        metric = abstention(scripted(abstains(answer, "a"), other), given=given)
        references = [] if of_contexts else SAMPLE.references
        score = metric.invoke(SAMPLE.model_copy(update={"question": question, "references": references}))
        assert score.value == float(answer == nothing), case
        told = ("answer", "do not answer") if of_contexts else ("answers", "abstains")
        assert [(f.kind, f.number, f.text, f.verdict, f.reason) for f in score.findings] == [
            ("criterion", 1, "the answer", "abstains" if answer else "answers", "a"),
            ("criterion", 2, f"the {given}", told[nothing], "o"),
        ], case
        assert ("о" in score.reason.lower()) is (question == "Как?"), case
        reasons.add(score.reason)
    assert len(reasons) == 16
    assert "Ответа по существу нет, а в контекстах он есть." in reasons
    assert "The answer answers, but the reference abstains." in reasons


@each(("references", "value"), [((True, False), 0.0), ((True, True), 1.0), ((False, False), 0.0)])
def test_of_several_references_one_that_answers_is_enough(references, value):
    sample = SAMPLE.model_copy(update={"references": ["a", "", "b"]})
    score = abstention(scripted(abstains(True), *map(abstains, references))).invoke(sample)
    assert (score.value, [f.number for f in score.findings]) == (value, [1, 2, 4])


def test_a_jury_votes_on_both_sides():
    judges = [scripted(abstains(n < 2, f"a{n}"), answerable(n > 1, f"c{n}")) for n in range(3)]
    score = abstention(jury(judges), given="contexts").invoke(SAMPLE)
    assert score.value == 1.0
    marks = [(f.kind, f.number, f.verdict) for f in score.findings]
    assert marks[:2] == [("criterion", 1, "abstains"), ("agreement", 1, "0.67")]
    assert marks[2:] == [("criterion", 2, "do not answer"), ("agreement", 2, "0.67")]
    assert [f.reason for f in score.findings if f.kind == "criterion"] == ["a0 a1", "c0 c1"]
    assert score.usage.calls == 6


def test_blank_references_leave_it_unscored():
    score = abstention(scripted(abstains(True))).invoke(SAMPLE.model_copy(update={"references": [" "]}))
    assert (score.value, score.unscored) == (None, "the references are blank")


def test_it_reads_what_it_is_given():
    assert abstention(scripted()).reads == {"question", "answer", "references"}
    assert abstention(scripted(), given="contexts").reads == {"question", "answer", "contexts"}
    with pytest.raises(ConfigError, match="given must be one of reference, contexts, got "):
        abstention(scripted(), given="context")
    assert abstention(OfflineJudge()).instrument != abstention(OfflineJudge(), given="contexts").instrument


@pytest.mark.parametrize("given", ["reference", "contexts"])
def test_a_report_can_score_it_anew_from_its_findings_of_the_same_kind(given):
    report = evaluate([SAMPLE], abstention(OfflineJudge(), given=given), progress=False)
    assert report.rescore(abstention(OfflineJudge(), given=given)).rows == report.rows
    other = {"reference": "contexts", "contexts": "reference"}[given]
    with pytest.raises(ConfigError):
        report.rescore(abstention(scripted(), given=other))


ANSWERED = Sample(question="How?", answer="Like so.")


@each(
    ("aspect", "options", "name", "direction"),
    [
        ("tone", {}, "tone", "higher"),  # an aspect of the user's own
        ("conciseness", {"direction": "lower", "name": "curtness"}, "curtness", "lower"),
    ],
)
@each("applies", [True, False])
def test_it_is_one_when_the_aspect_applies_by_the_given_definition(aspect, options, name, direction, applies):
    judge = scripted(critique(applies, "It is so."))
    score = aspect_critique(judge, aspect, definition="Short.", **options).invoke(ANSWERED)
    assert (score.value, score.reason, score.usage.calls) == (float(applies), "It is so.", 1)
    assert (score.metric, score.direction) == (name, direction)
    assert (judge.inputs[0]["aspect"], judge.inputs[0]["definition"]) == (aspect, "Short.")


@each("draws", [1, 5])
def test_each_draw_is_a_call_and_the_majority_decides(draws):
    replies = [critique(n % 2 == 0, f"r{n}") for n in range(draws)]
    judge = scripted(*replies)
    score = aspect_critique(Judge(judge, draws=draws), "coherence").invoke(ANSWERED)
    assert len(judge.asked) == score.usage.calls == draws
    assert (score.value, score.reason) == (1.0, " ".join(f"r{n}" for n in range(0, draws, 2)))


def test_votes_without_a_majority_give_no_score_but_are_found():
    judge = Judge(scripted(critique(True), critique(False)))
    object.__setattr__(judge, "draws", 2)  # no judge or jury of the package has an even number of votes
    score = aspect_critique(judge, "coherence").invoke(ANSWERED)
    assert (score.value, score.unscored) == (None, "no majority of the votes")
    assert [finding.kind for finding in score.findings] == ["aspect", "agreement"]


def test_a_judge_without_a_reason_leaves_its_verdict_as_one():
    assert aspect_critique(scripted(critique(False, "")), "coherence").invoke(ANSWERED).reason == "no"


def test_a_verdict_on_an_aspect_is_scored_again_by_a_metric_of_the_same_aspect_alone():
    judge = Judge(scripted(critique(True, "Short."), critique(False), critique(True, "")), draws=3)
    score = aspect_critique(judge, "conciseness").invoke(ANSWERED)
    again = aspect_critique(scripted(), "conciseness", name="mine").rescore(ANSWERED, score)
    assert (again.value, again.reason, again.findings) == (1.0, "Short.", score.findings)
    single = aspect_critique(scripted(critique(False)), "conciseness").invoke(ANSWERED)
    assert aspect_critique(scripted(), "conciseness").rescore(ANSWERED, single).value == 0.0
    for other in (score, single):
        assert aspect_critique(scripted(), "coherence").rescore(ANSWERED, other) is None


# Answer completeness


TICKET = Sample(question="What does a ticket cost, and how is it paid?", answer="It costs 5 euros.")


def parts(*covered):
    texts = ({"number": n, "part": f"part {n}", "reason": f"reason {n}"} for n in range(1, len(covered) + 1))
    return QuestionParts(parts=[QuestionPart(**text, covered=c) for text, c in zip(texts, covered, strict=True)])


def score_of(*replies, sample=TICKET, **options):
    return answer_completeness(Judge(scripted(*replies), **options)).invoke(sample)


@pytest.mark.parametrize(
    ("covered", "value"), [((True,), 1), ((False,), 0), ((True, False), 1 / 2), ((True, True, False), 2 / 3)]
)
def test_completeness_is_the_share_of_the_covered_parts(covered, value):
    score = score_of(parts(*covered))
    assert (score.value, score.usage.calls) == (value, 1)
    assert [f.verdict for f in score.findings] == ["covered" if c else "missing" for c in covered]
    first = score.findings[0]
    assert (first.kind, first.number, first.text, first.reason) == ("criterion", 1, "part 1", "reason 1")
    assert f"{sum(covered)} of {len(covered)} part" in score.reason


def test_the_reason_names_the_missing_parts():
    assert score_of(parts(True, False, False)).reason.endswith("1 of 3 parts of the question; missing: part 2; part 3.")


def test_a_blank_answer_is_zero_whatever_the_judge_says():
    score = score_of(parts(True), sample=Sample(question="Why?", answer=" "))
    assert (score.value, score.reason, score.findings) == (0, "The answer is blank.", [])


def test_a_question_that_asks_for_nothing_is_unscored():
    score = score_of(parts(), sample=Sample(question="Thank you!", answer="You are welcome."))
    assert (score.value, score.unscored) == (None, "the question asks for nothing")


def test_votes_decide_each_part_by_its_number():
    score = score_of(parts(True, False), parts(True, True), parts(True, True), draws=3)
    assert [f.verdict for f in score.findings if f.kind == "criterion"] == ["covered", "covered"]
    agreement = {f.text: f.verdict for f in score.findings if f.kind == "agreement"}
    assert [agreement[f"parts[{n}].covered"] for n in (1, 2)] == ["1.00", "0.67"]
    assert score.value == 1


@pytest.mark.parametrize("answer", ["Prices.", "The price is high."])
def test_offline_a_word_of_the_question_is_covered_if_the_answer_has_its_stem(answer):
    score = answer_completeness(OfflineJudge()).invoke({"question": "Price? Opening?", "answer": answer})
    assert [(f.text, f.verdict) for f in score.findings] == [("price", "covered"), ("opening", "missing")]


class TestAnswerCompleteness(MetricTests):
    metric = answer_completeness(OfflineJudge())
