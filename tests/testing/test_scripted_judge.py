"""ScriptedJudge: typed replies through the real steps and parser."""

import asyncio
import copy
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.each import each
from helpers.samples import SAMPLE
from helpers.scripted import absent, grades, statements, supported, verdicts
from pydantic import BaseModel

from langchain_rageval import (
    ConfigError,
    Judge,
    JudgeOutputError,
    Metric,
    StrictJsonOutputParser,
    Value,
    context_precision,
    faithfulness,
)
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.steps import Question, Statements, Verdicts
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testing import ScriptedJudge, ScriptedRequest

HALF = (statements("a", "b"), verdicts(supported(1), absent(2)))


@pytest.mark.parametrize("replies", [HALF, HALF[::-1]], ids=["in order", "in any order"])
async def test_replies_of_different_classes_find_their_steps(replies):
    assert faithfulness(ScriptedJudge(*replies)).invoke(SAMPLE).value == 0.5
    assert (await faithfulness(ScriptedJudge(*replies)).ainvoke(SAMPLE)).value == 0.5


def test_replies_of_one_class_come_in_order():
    judge = ScriptedJudge(statements("a"), statements("b"), verdicts(supported(1)), verdicts(absent(1)))
    assert [faithfulness(judge).invoke(SAMPLE).value for _ in range(2)] == [1.0, 0.0]
    assert judge.left == []


def test_it_records_its_requests():
    judge = ScriptedJudge(*HALF)
    faithfulness(judge).invoke(SAMPLE)
    assert [request.step for request in judge.requests] == ["extract_statements", "verify_statements"]
    assert [request.schema for request in judge.requests] == ["Statements", "Verdicts"]
    assert judge.requests[0].inputs == {"question": SAMPLE["question"], "text": SAMPLE["answer"]}
    assert [item["text"] for item in judge.requests[1].inputs["statements"]] == ["a", "b"]
    assert "[1.1] " + SAMPLE["contexts"][0] in judge.requests[1].human
    assert [message.type for message in judge.requests[1].messages] == ["system", "human"]


@each("door", ["invoke", "ainvoke"])
@each(
    ("replies", "told"),
    [
        ((), r"extract_statements requests Statements, but no unused reply fits: 0 of .* fit, unused are none\."),
        ((HALF[0],), r"verify_statements requests Verdicts, but no unused reply fits: 0 of .*, unused are none\."),
        ((HALF[1],), r"extract_statements requests Statements, .* unused are Verdicts\. Add Statements\(\.\.\.\)"),
        ((HALF[0], grades({1: True})), r"verify_statements requests Verdicts, .* unused are ContextVerdicts\."),
    ],
    ids=["none", "run out", "of another step", "of a step that is not there"],
)
async def test_the_error_names_the_step_without_a_reply(replies, told, door):
    metric = faithfulness(ScriptedJudge(*replies))
    with pytest.raises(AssertionError, match=told):
        metric.invoke(SAMPLE) if door == "invoke" else await metric.ainvoke(SAMPLE)


def test_a_str_is_a_reply_as_the_model_wrote_it():
    truncated = json.dumps({"statements": ["a", "b"]})[:-6]
    judge = ScriptedJudge(truncated, *HALF)
    assert faithfulness(judge).invoke(SAMPLE).value == 0.5
    assert [request.step for request in judge.requests] == 2 * ["extract_statements"] + ["verify_statements"]
    assert judge.requests[1].messages[2].text == truncated
    with pytest.raises(JudgeOutputError, match="extract_statements"):
        faithfulness(Judge(ScriptedJudge(truncated), attempts=1)).invoke(SAMPLE)


async def test_an_exception_is_raised_when_its_turn_comes():
    judge = ScriptedJudge(HALF[0], ConnectionError("reset by peer"), HALF[1])
    with pytest.raises(ConnectionError, match="reset by peer"):
        await faithfulness(judge).ainvoke(SAMPLE)
    assert judge.left == [HALF[1]]


def test_replies_may_be_repeated_for_a_metric_that_is_called_often():
    judge = ScriptedJudge(*HALF, repeat=True)
    assert [score.value for score in faithfulness(judge).batch([SAMPLE] * 9)] == [0.5] * 9
    assert len(judge.requests) == 18
    with pytest.raises(AssertionError, match="grade_contexts requests ContextVerdicts, but no unused reply fits"):
        context_precision(judge, against="answer").invoke(SAMPLE)


def test_many_threads_take_every_reply_once():
    judge = ScriptedJudge(*(f"reply {number}" for number in range(200)))
    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(lambda _: judge.invoke("?").text, range(200)))
    assert sorted(told) == sorted(f"reply {number}" for number in range(200))
    assert len(judge.requests) == 200


class Tone(BaseModel):
    """How an answer sounds."""

    reason: str
    polite: bool


def tone(judge):
    step = JudgeStep(Prompt(instruction="Say whether the answer is polite."), judge, Tone, name="tone")
    return Metric(
        "tone",
        aspect="answer",
        reads={"question", "answer"},
        steps=(lambda state: {"question": state["sample"].question, "answer": state["sample"].answer}) | step,
        reduce=lambda state: Value(float(state["tone"].polite), state["tone"].reason),
    )


def test_a_custom_step_is_answered_by_its_own_class():
    judge = ScriptedJudge(Tone(reason="It says please.", polite=True))
    assert tone(judge).invoke(SAMPLE).value == 1.0
    with pytest.raises(AssertionError, match="Tone requests Tone, but no unused reply fits"):
        tone(judge).invoke(SAMPLE)


def test_steps_that_share_a_class_are_distinguished_by_their_instruction():
    step = JudgeStep("compress_question", ScriptedJudge(), Question)
    with pytest.raises(AssertionError, match=r"^compress_question requests Question,"):
        step.invoke({"question": "Как застраховать баню?"})


def test_it_is_a_chat_model_that_works_in_a_chain():
    assert (ScriptedJudge(HALF[0]) | StrictJsonOutputParser(Statements)).invoke("?") == HALF[0]
    assert ScriptedJudge("hello").invoke("?").text == "hello"
    assert asyncio.run(ScriptedJudge("hello").ainvoke("?")).text == "hello"
    assert ScriptedRequest([]).step == "a request without a schema"
    with pytest.raises(AssertionError, match="a request without a schema requests a reply, but no unused reply fits"):
        ScriptedJudge().invoke("?")


@each("copied", [copy.copy, copy.deepcopy, lambda judge: pickle.loads(pickle.dumps(judge))])
def test_a_copy_has_the_replies(copied):
    assert faithfulness(copied(ScriptedJudge(*HALF))).invoke(SAMPLE).value == 0.5


@each("reply", [{"statements": []}, Verdicts, 1, None, ValueError])
def test_an_invalid_reply_raises_when_the_judge_is_built(reply):
    with pytest.raises(ConfigError, match=re.escape(f"got {reply!r}")):
        ScriptedJudge(reply)
