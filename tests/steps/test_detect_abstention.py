import pytest
from helpers.scripted import abstains, scripted

from langchain_rageval import Judge, Sample
from langchain_rageval.steps.detect import detect_abstention

SAMPLE = Sample(question="How?", answer="Like so.", references=["So.", " ", "I do not know."])


def found(judge, of="answer", sample=SAMPLE):
    return detect_abstention(judge, of=of).invoke({"sample": sample})[f"{of}_abstention"]


def test_the_judge_reads_question_and_answer():
    judge = scripted(abstains(False, "It tells how."))
    (finding,) = found(judge)
    assert judge.inputs == [{"question": "How?", "answer": "Like so."}]
    assert (finding.kind, finding.number, finding.text) == ("criterion", 1, "the answer")
    assert (finding.verdict, finding.reason) == ("answers", "It tells how.")


@pytest.mark.parametrize("answer", ["", " \n"])
def test_a_blank_answer_abstains_without_a_call(answer):
    (finding,) = found(scripted(), sample=SAMPLE.model_copy(update={"answer": answer}))
    assert (finding.verdict, finding.reason) == ("abstains", "")
    (finding,) = found(Judge(scripted(), draws=3), sample=SAMPLE.model_copy(update={"answer": answer}))
    assert finding.kind == "criterion"


def test_each_reference_that_is_not_blank_is_asked_about():
    judge = scripted(abstains(False), abstains(True))
    findings = found(judge, of="reference")
    assert [inputs["answer"] for inputs in judge.inputs] == ["So.", "I do not know."]
    assert [(f.number, f.text, f.verdict) for f in findings] == [
        (2, "the reference", "answers"),
        (4, "the reference", "abstains"),
    ]
