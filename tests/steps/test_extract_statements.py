import asyncio

import pytest
from helpers.scripted import answering, scripted, statements

from langchain_rageval import Judge, JudgeOutputError, Sample
from langchain_rageval.steps.extract_statements import extract_statements

SAMPLE = Sample(question="Кто?", answer="Анна и Пётр.", references=["Анна.", " ", "Пётр."], contexts=["А."])


def extracted(judge, of, sample=SAMPLE, **options):
    return extract_statements(judge, of=of, **options).invoke({"sample": sample})


def test_the_statements_of_the_answer_are_asked_for_in_one_call():
    judge = scripted(statements("Это Анна.", "Это Пётр."))
    assert extracted(judge, "answer")["answer_statements"] == ["Это Анна.", "Это Пётр."]
    assert judge.inputs == [{"question": "Кто?", "text": "Анна и Пётр."}]


def test_each_reference_that_is_not_blank_is_asked_for():
    judge = answering(lambda messages: statements(judge.inputs[-1]["text"], "ещё"))
    state = extracted(judge, "reference")
    assert state["statements_by_reference"] == [["Анна.", "ещё"], [], ["Пётр.", "ещё"]]
    assert [inputs["text"] for inputs in judge.inputs] == ["Анна.", "Пётр."]


def test_the_statements_of_all_references_together_hold_each_statement_once_in_order():
    judge = answering(lambda messages: statements(judge.inputs[-1]["text"], "ещё"))
    assert extracted(judge, "reference")["reference_statements"] == ["Анна.", "ещё", "Пётр."]


def test_sync_and_async_find_the_same():
    step = extract_statements(answering(lambda messages: statements("a", " ", "b")), of="reference")
    assert asyncio.run(step.ainvoke({"sample": SAMPLE})) == step.invoke({"sample": SAMPLE})


def test_of_both_the_answer_comes_first_and_nothing_is_mixed():
    judge = scripted(statements("Это Анна."), statements("Анна."), statements("Пётр."))
    state = extracted(judge, "both")
    assert [inputs["text"] for inputs in judge.inputs] == ["Анна и Пётр.", "Анна.", "Пётр."]
    assert state["answer_statements"] == ["Это Анна."]
    assert (state["reference_statements"], state["statements_by_reference"]) == (
        ["Анна.", "Пётр."],
        [["Анна."], [], ["Пётр."]],
    )


def test_both_find_what_each_side_alone_finds():
    def step(of):
        return extract_statements(answering(lambda messages: statements("a", " ", "b", "a")), of=of)

    alone = (step("answer") | step("reference")).invoke({"sample": SAMPLE})
    assert step("both").invoke({"sample": SAMPLE}) == alone == asyncio.run(step("both").ainvoke({"sample": SAMPLE}))


@pytest.mark.parametrize("answer", [None, "", " \n\t"])
def test_a_blank_answer_makes_no_call(answer):
    assert extracted(scripted(), "answer", SAMPLE.model_copy(update={"answer": answer}))["answer_statements"] == []


@pytest.mark.parametrize("references", [[], [""], [" ", "\n"]])
def test_without_a_reference_that_holds_words_no_call_is_made(references):
    state = extracted(scripted(), "reference", SAMPLE.model_copy(update={"references": references}))
    assert state["reference_statements"] == []
    assert state["statements_by_reference"] == [[]] * len(references)


@pytest.mark.parametrize("contexts", [None, [], [""], [" ", "\n"]])
def test_statements_for_contexts_that_hold_no_words_are_not_asked_for(contexts):
    sample = SAMPLE.model_copy(update={"contexts": contexts})
    assert extracted(scripted(), "reference", sample, for_contexts=True)["reference_statements"] == []
    judge = answering(lambda messages: statements("a"))
    assert extracted(judge, "reference", sample)["reference_statements"] == ["a"]


def test_statements_are_trimmed_and_blank_and_repeated_ones_dropped():
    judge = scripted(statements(" a ", "", "  ", "b", "a"))
    assert extracted(judge, "answer")["answer_statements"] == ["a", "b"]


def test_equal_references_are_extracted_once():
    judge = scripted(statements("a"))
    state = extracted(judge, "reference", Sample(question="?", references=["same", "same"]))
    assert state["statements_by_reference"] == [["a"], ["a"]]
    assert state["reference_statements"] == ["a"]


def test_each_reference_has_attempts_of_its_own():
    judge = Judge(scripted("no", statements("a"), "no", statements("b")), attempts=2)
    assert extracted(judge, "reference")["reference_statements"] == ["a", "b"]


def test_draws_do_not_extract_more_than_once():
    assert extracted(Judge(scripted(statements("a")), draws=5), "answer")["answer_statements"] == ["a"]


def test_a_judge_that_never_answers_fails_with_its_last_reply():
    judge = Judge(scripted("one", "two"), attempts=2)
    with pytest.raises(JudgeOutputError) as caught:
        extracted(judge, "answer")
    assert (caught.value.step, caught.value.raw_output) == ("extract_statements", "two")
