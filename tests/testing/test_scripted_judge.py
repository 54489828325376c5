"""ScriptedJudge: typed replies through the real steps and parser; assert_scores: thresholds and messages."""

import asyncio
import copy
import json
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers.each import each, error_of
from helpers.samples import SAMPLE
from helpers.scripted import absent, contradicted, critique, grades, statements, supported, verdicts
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from langchain_rageval import (
    ConfigError,
    Judge,
    JudgeOutputError,
    Metric,
    OfflineJudge,
    SampleError,
    StrictJsonOutputParser,
    Value,
    aspect_critique,
    context_precision,
    context_recall,
    faithfulness,
    suite,
)
from langchain_rageval.prompts.promptset import Prompt
from langchain_rageval.steps import Question, Statements, Verdicts
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testing import ScriptedJudge, ScriptedRequest, aassert_scores, assert_scores

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
    read = RunnableLambda(lambda state: {"question": state["sample"].question, "answer": state["sample"].answer})
    reduce = lambda state: Value(float(state["tone"].polite), state["tone"].reason)  # noqa: E731
    return Metric("tone", aspect="answer", reads={"question", "answer"}, steps=read | step, reduce=reduce)


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


# assert_scores: thresholds, and the message of a failure


RUSSIAN = {
    "id": "баня",
    "question": "Как застраховать баню?",
    "answer": "Баню страхуют вместе с домом. Взнос платят раз в месяц. Слоны бесплатно.",
    "contexts": ["Отдельно баню застраховать нельзя: её страхуют вместе с домом.", "Взнос платят раз в год."],
}


def judge():
    """Three statements: one supported, one absent, one contradicted."""
    extracted = statements("Баню страхуют вместе с домом.", "Слоны бесплатно.", "Взнос платят раз в месяц.")
    return ScriptedJudge(extracted, verdicts(supported(1), absent(2), contradicted(3, "2.1")), repeat=True)


async def test_scores_that_reach_their_thresholds_are_returned():
    metric = faithfulness(OfflineJudge())
    for scores in (assert_scores(SAMPLE, {metric: 0.5}), await aassert_scores(SAMPLE, {metric: 0.5})):
        assert scores["faithfulness"].value == 0.5


async def test_a_failure_shows_a_line_for_each_metric_with_the_worst_findings():
    faithful, useful = faithfulness(judge()), context_precision(ScriptedJudge(grades({1: True, 2: True}), repeat=True))
    expected = [
        "1 of 2 scores of sample 'баня' («Как застраховать баню?») miss their threshold",
        f"  FAILED faithfulness 0.333, at least 0.8: {faithful.invoke(RUSSIAN).comment}"
        " | contradicted [2.1]: «Взнос платят раз в месяц.» («because») | absent: «Слоны бесплатно.» («because»)",
        f"  passed context_precision 1.000, at least 0.9: {useful.invoke(RUSSIAN).comment}",
    ]
    missed = error_of(AssertionError, assert_scores, RUSSIAN, {faithful: 0.8, useful: 0.9})
    assert str(missed).splitlines() == expected
    with pytest.raises(AssertionError) as again:
        await aassert_scores(RUSSIAN, {faithful: 0.8, useful: 0.9})
    assert str(again.value) == str(missed)


def test_the_number_of_findings_is_limited_and_the_worst_is_kept():
    told = str(error_of(AssertionError, assert_scores, RUSSIAN, {faithfulness(judge()): 0.8}, findings=1))
    assert " | contradicted [2.1]: " in told
    assert " | absent" not in told


def test_long_texts_are_cut_and_stay_on_one_line():
    metric = faithfulness(ScriptedJudge(statements("слон\n" * 100), verdicts(absent(1))))
    line = str(error_of(AssertionError, assert_scores, RUSSIAN, {metric: 0.8})).splitlines()[-1]
    assert " | absent: «слон слон" in line
    assert "…»" in line.rpartition(" | ")[2]


def test_reaching_the_threshold_passes_and_lower_may_be_better():
    harmless = aspect_critique(ScriptedJudge(critique(False), repeat=True), "harmfulness")
    harmful = aspect_critique(ScriptedJudge(critique(True), repeat=True), "harmfulness")
    assert_scores(SAMPLE, {harmless: 0})
    with pytest.raises(AssertionError, match=r"FAILED harmfulness 1\.000, at most 0: "):
        assert_scores(SAMPLE, {harmful: 0})


def test_a_suite_has_one_threshold_for_all_and_shares_its_steps():
    once = ScriptedJudge(statements("a"), verdicts(supported(1)))
    both = suite(faithfulness(once), faithfulness(once, name="other"))
    assert assert_scores(SAMPLE, {both: 1}).keys() == {"faithfulness", "other"}
    assert len(once.requests) == 2


def test_a_score_without_a_value_fails_and_an_unscored_one_may_pass():
    metric = faithfulness(ScriptedJudge(statements(), repeat=True))
    told = r"FAILED faithfulness no value, at least 0\.5: the answer states no facts"
    with pytest.raises(AssertionError, match=told):
        assert_scores(SAMPLE, {metric: 0.5})
    assert assert_scores(SAMPLE, {metric: 0.5}, missing="pass")["faithfulness"].value is None


def test_a_failed_score_and_a_blank_answer_never_pass():
    dead = faithfulness(ScriptedJudge(ConnectionError("reset by peer"), repeat=True))
    for metric, sample, told in (
        (dead, SAMPLE, "ConnectionError: reset by peer"),
        (faithfulness(OfflineJudge()), SAMPLE | {"answer": " "}, ""),
    ):
        for missing in ("fail", "pass"):
            with pytest.raises(AssertionError, match=rf"FAILED faithfulness no value, at least 0\.5: {told}"):
                assert_scores(sample, {metric: 0.5}, missing=missing)


def test_a_sample_that_lacks_a_field_raises_before_any_call():
    judge = ScriptedJudge()
    with pytest.raises(SampleError, match=r"lacks \['references'\]"):
        assert_scores(SAMPLE, {faithfulness(judge): 0.5, context_recall(judge): 0.5})
    assert judge.requests == []


KEYS = "the keys of thresholds are metrics"


@each(
    ("thresholds", "told"),
    [
        ({}, r"thresholds must map metrics to numbers, such as .*, got \{\}"),
        ([0.8], r"thresholds must map metrics to numbers, such as .*, got \[0\.8\]"),
        ({"faithfulness": 0.8}, rf"{KEYS}, such as faithfulness\(judge\), got 'faithfulness'"),
        ({faithfulness(OfflineJudge()): "0.8"}, "must be a finite number, got '0.8'"),
        ({faithfulness(OfflineJudge()): float("nan")}, "must be a finite number, got nan"),
        ({faithfulness(OfflineJudge()): True}, "must be a finite number, got True"),
    ],
)
def test_invalid_thresholds_and_options_raise(thresholds, told):
    with pytest.raises(ConfigError, match=told):
        assert_scores(SAMPLE, thresholds)
    with pytest.raises(ConfigError, match="missing must be 'fail' or 'pass', got 'raise'"):
        assert_scores(SAMPLE, thresholds, missing="raise")


def test_metrics_and_suites_are_keys():
    metric = faithfulness(OfflineJudge())
    both, copied = suite(metric), metric.model_copy()
    assert {metric: 1, both: 2}[metric] == 1
    assert {metric: 1, both: 2}[suite(metric)] == 2
    assert {metric, copied} == {metric}
    assert len({metric, faithfulness(OfflineJudge(), name="other")}) == 2
