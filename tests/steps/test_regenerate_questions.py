import asyncio

import pytest
from helpers.each import each
from helpers.scripted import answering, human_of, questions, scripted

from langchain_rageval import Judge, JudgeOutputError, PromptSet, Sample
from langchain_rageval.steps.questions import regenerate_questions

SAMPLE = Sample(question="When?", answer="In 1158.")


def regenerated(judge, count=3, sample=SAMPLE):
    state = regenerate_questions(judge, count=count).invoke({"sample": sample})
    return state["evasive"], state["regenerated_questions"]


def test_all_questions_are_asked_for_in_one_call_that_does_not_show_the_question():
    judge = scripted(questions("When was it?", "What year?", "Since when?"))
    assert regenerated(judge) == (False, ["When was it?", "What year?", "Since when?"])
    assert judge.inputs == [{"answer": "In 1158.", "count": 3}]
    assert "When?" not in human_of(judge.asked[0])


def test_the_prompt_is_in_the_language_of_the_question():
    judge = scripted(questions("?"))
    regenerated(judge, sample=Sample(question="Когда?", answer="1158"))
    assert PromptSet.default("ru").get("regenerate_questions").instruction in human_of(judge.asked[0])


@each("count", [1, 2, 3])
def test_fewer_questions_are_taken_and_more_are_cut(count):
    assert regenerated(scripted(questions("a", "b")), count) == (False, ["a", "b"][:count])


def test_blank_questions_are_dropped_before_the_rest_are_cut():
    assert regenerated(scripted(questions(" ", " a ", "", "b")), 2) == (False, ["a", "b"])


@each("none", [[], [""], [" ", "\n"]])
def test_no_questions_without_the_word_that_the_answer_is_evasive_are_asked_again(none):
    judge = scripted(questions(*none), questions("a"))
    assert regenerated(judge) == (False, ["a"])
    assert "no questions" in judge.asked[1][-1].text


def test_no_questions_after_all_attempts_are_a_failure():
    judge = scripted(questions(), questions())
    with pytest.raises(JudgeOutputError, match="no questions") as caught:
        regenerated(Judge(judge, attempts=2))
    assert caught.value.step == "regenerate_questions"
    assert len(judge.asked) == 2


@pytest.mark.parametrize("told", [[], ["a"]])
def test_an_evasive_answer_has_no_questions_whatever_the_judge_writes(told):
    assert regenerated(scripted(questions(*told, evasive=True))) == (True, [])


@each("answer", [None, "", " \n\t"])
def test_a_blank_answer_is_evasive_without_a_call(answer):
    assert regenerated(scripted(), sample=Sample(question="?", answer=answer)) == (True, [])


def test_draws_are_independent_calls_and_the_majority_says_whether_the_answer_is_evasive():
    replies = [questions("a", "b"), questions(evasive=True), questions("c")]
    judge = scripted(*replies)
    assert regenerated(Judge(judge, draws=3), 2) == (False, ["a", "b", "c"])
    assert len(judge.asked) == 3
    replies = [questions("a", "b"), questions(evasive=True), questions(evasive=True)]
    assert regenerated(Judge(scripted(*replies), draws=3), 2)[0] is True


def test_sync_and_async_find_the_same():
    step = regenerate_questions(Judge(answering(lambda messages: questions("a", "b", "c")), draws=3), count=2)
    assert asyncio.run(step.ainvoke({"sample": SAMPLE})) == step.invoke({"sample": SAMPLE})
