import pytest
from helpers.scripted import scripted

from langchain_rageval import Judge, OfflineJudge, Sample, answer_completeness
from langchain_rageval.metrics.answer_completeness import QuestionPart, QuestionParts
from langchain_rageval.testing import MetricTests

SAMPLE = Sample(question="What does a ticket cost, and how is it paid?", answer="It costs 5 euros.")


def parts(*covered):
    named = ((n, f"part {n}", f"reason {n}", is_covered) for n, is_covered in enumerate(covered, 1))
    return QuestionParts(
        parts=[QuestionPart(number=n, part=part, reason=reason, covered=c) for n, part, reason, c in named]
    )


def score_of(*replies, sample=SAMPLE, **options):
    return answer_completeness(Judge(scripted(*replies), **options)).invoke(sample)


@pytest.mark.parametrize(
    ("covered", "value"), [((True,), 1), ((False,), 0), ((True, False), 1 / 2), ((True, True, False), 2 / 3)]
)
def test_it_is_the_share_of_the_covered_parts(covered, value):
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
