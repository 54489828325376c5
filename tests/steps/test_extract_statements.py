import pytest
from scripted import answering, scripted

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.steps import Statements
from langchain_rageval.steps.extract_statements import extract_statements

SAMPLE = Sample(question="Кто?", answer="Анна и Пётр.", references=["Анна.", " ", "Пётр."])


def extracted(judge, of, sample=SAMPLE):
    return extract_statements(judge, of=of).invoke({"sample": sample})[f"{of}_statements"]


def test_the_statements_of_the_answer_are_asked_for_in_one_call():
    judge = scripted(Statements(statements=["Это Анна.", "Это Пётр."]))
    assert extracted(judge, "answer") == ["Это Анна.", "Это Пётр."]
    assert judge.inputs == [{"question": "Кто?", "text": "Анна и Пётр."}]


def test_each_reference_that_is_not_blank_is_asked_for_and_the_statements_are_joined():
    judge = answering(lambda messages: Statements(statements=[judge.inputs[-1]["text"], "ещё"]))
    assert extracted(judge, "reference") == ["Анна.", "ещё", "Пётр.", "ещё"]
    assert [inputs["text"] for inputs in judge.inputs] == ["Анна.", "Пётр."]


@pytest.mark.parametrize("answer", [None, "", " \n\t"])
def test_a_blank_answer_makes_no_call(answer):
    assert extracted(scripted(), "answer", SAMPLE.model_copy(update={"answer": answer})) == []


def test_no_references_make_no_call():
    assert extracted(scripted(), "reference", Sample(question="?")) == []


def test_statements_are_trimmed_and_blank_ones_dropped_and_equal_ones_kept():
    judge = scripted(Statements(statements=[" a ", "", "  ", "b", "a"]))
    assert extracted(judge, "answer") == ["a", "b", "a"]


def test_equal_references_are_extracted_once():
    judge = scripted(Statements(statements=["a"]))
    sample = Sample(question="?", references=["same", "same"])
    assert extracted(judge, "reference", sample) == ["a", "a"]


def test_each_reference_has_attempts_of_its_own():
    good = Statements(statements=["a"])
    judge = Judge(scripted("no", good, "no", good), attempts=2)
    assert extracted(judge, "reference") == ["a", "a"]


def test_a_judge_that_never_answers_fails_with_its_last_reply():
    judge = Judge(scripted("one", "two"), attempts=2)
    with pytest.raises(JudgeOutputError) as caught:
        extracted(judge, "answer")
    assert (caught.value.step, caught.value.raw_output) == ("extract_statements", "two")
