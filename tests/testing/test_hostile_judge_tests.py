"""HostileJudgeTests: each of its tests fails for a metric that is bad in the matching way, and says how to fix it."""

import json
import logging
import re
import threading
from contextlib import suppress
from functools import partial

import pytest
from helpers.each import each
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda
from pydantic import BaseModel

from langchain_rageval import (
    HashingEmbeddings,
    Metric,
    OfflineJudge,
    Prompt,
    Sample,
    Score,
    Step,
    Value,
    answer_correctness,
    exact_match,
    faithfulness,
)
from langchain_rageval.data.schema import Failure
from langchain_rageval.testing import HostileJudgeTests, ScriptedJudge, hostile_judge_tests
from langchain_rageval.testing.hostile_judge_tests import _Runs
from langchain_rageval.testing.hostile_judges import SAMPLE

NUMBERS = "test_no_error_and_no_invalid_reply_becomes_a_number"
SIZE = "test_a_huge_reply_leaves_a_small_score"
OTHERS = "test_other_samples_and_metrics_are_not_affected"
ENDS = "test_an_error_that_is_no_exception_gives_no_score"
KEYS = "test_the_api_key_appears_nowhere"

READ = "read replies with a Step or StrictJsonOutputParser, and let their errors pass"
NO_REPLY = f"although the judge gave no usable reply: that is a failure; {READ}"
NO_KEY = (
    "contains the API key, which the judge repeated: do not copy the text of an error or of an invalid reply; raise "
    "the error, and the run records it without keys"
)
LEAK = "401 that repeats the API key"


def mine(value=None, **fields):
    return Score(metric="mine", aspect="answer", value=value, **fields)


def graded(judge, sample):
    return mine(json.loads(judge.invoke([HumanMessage(sample.answer)]).text)["grade"] / 5)


def by_function(function):
    """Return a builder of a metric from a function of judge and sample."""
    return lambda judge: RunnableLambda(partial(function, judge), name="mine")


def after_an_error(outcome, errors=Exception):
    """Return a builder of a metric that gives or raises an outcome, a function of the error, if the judge fails."""

    def score(judge, sample):
        try:
            return graded(judge, sample)
        except errors as error:
            found = outcome(error)
        if isinstance(found, BaseException):
            raise found
        return found

    return by_function(score)


def quoting(judge, sample):
    text = judge.invoke([HumanMessage(sample.answer)]).text
    try:
        return mine(json.loads(text)["grade"] / 5)
    except Exception:
        return mine(failure=Failure(error="NoGrade", message=text))


def endless(judge, sample):
    while True:
        with suppress(ValueError):
            return graded(judge, sample)


def logging_the_key(error):
    logging.getLogger("mine").warning("the judge failed: %s", error)
    return error


def keeping_the_error(judge):
    errors, first = [], threading.Event()

    def score(sample):
        if sample.question.startswith("Case 0"):
            try:
                return graded(judge, sample)
            except Exception as error:
                errors.append(error)
            finally:
                first.set()
        assert first.wait(30)
        if errors:
            raise errors[0]
        return graded(judge, sample)

    return RunnableLambda(score, name="mine")


class Grade(BaseModel):
    """A grade on no scale."""

    grade: int


class Unchecked(Metric):
    """Does not check its values."""

    def _in_range(self, number):
        return number


class Exposing(Metric):
    """Shows its judge's key."""

    def __repr__(self):
        return f"graded by {self.judges[0].model.api_key.get_secret_value()}"


def by_step(kind):
    step = Step(Grade, prompts=Prompt(instruction="Grade it."), reads=("answer",))
    reduce = lambda state: Value(state["grade"].grade / 5, "graded")  # noqa: E731
    return lambda judge: kind("mine", aspect="answer", reads={"answer"}, steps=step(judge), reduce=reduce)


BAD = {
    "zero for an error": (
        after_an_error(lambda _: mine(0.0)),
        (NUMBERS, "500 to every call"),
        f"by invoke, mine has the value 0, {NO_REPLY}",
    ),
    "unscored for an error": (
        after_an_error(lambda _: mine(unscored="there is no grade")),
        (NUMBERS, "prose"),
        f"by invoke, mine is unscored (there is no grade), {NO_REPLY}",
    ),
    "a default for a missing grade": (
        after_an_error(lambda _: mine(1.0)),
        (NUMBERS, "null in place of values"),
        "by invoke, mine has the value 1 after an invalid reply, but another value or none after a valid one: content "
        f"was guessed; {READ}",
    ),
    "no check of the range": (
        by_step(Unchecked),
        (NUMBERS, "negative numbers"),
        "by invoke, mine has the value -1, outside of its range from 0 to 1",
    ),
    "no check of the reply": (
        by_function(graded),
        (NUMBERS, "list in place of an object"),
        "by invoke, the metric raised TypeError: list indices must be integers or slices, not str, which does not say "
        f"what the judge did wrong: {READ}",
    ),
    "an error without a message": (
        after_an_error(lambda _: ValueError()),
        (NUMBERS, "prose"),
        "by invoke, the metric raised ValueError without a message: say what the judge did wrong",
    ),
    "no score for an error": (
        after_an_error(lambda _: {}),
        (NUMBERS, "prose"),
        "by invoke, the metric returned no score: return a Score, or raise an Exception that says why there is none",
    ),
    "attempts without a limit": (
        by_function(endless),
        (NUMBERS, "prose"),
        "by invoke, the metric called the judge more than 100 times for one sample: limit the attempts, drop repeated "
        "items, and bound their number by the length of the text",
    ),
    "a failure that quotes everything": (
        by_function(quoting),
        (SIZE, "huge text"),
        "mine has many characters: cut the texts that a score quotes",
    ),
    "exit for an error": (
        after_an_error(lambda _: SystemExit(2)),
        (OTHERS, "prose", "evaluate"),
        "a hostile reply for one sample ended the run with SystemExit: 2: raise an Exception, which the run records as "
        "a failure of that sample",
    ),
    "an error kept for the next sample": (
        keeping_the_error,
        (OTHERS, "500 to every call", "evaluate"),
        "after a hostile reply for sample 0, sample 1 has mine -: Rejected: Error code: 500 - Internal server error; "
        "without it, mine 0.800: keep no state between samples",
    ),
    "a number for every error": (
        after_an_error(lambda _: mine(0.5), BaseException),
        (ENDS, "SystemExit", "invoke"),
        "mine has the value 0.5, although the judge raised SystemExit: catch Exceptions only, and do not use "
        "`except:` without a class",
    ),
    "another error for Ctrl-C": (
        after_an_error(lambda _: ValueError("something went wrong"), BaseException),
        (ENDS, "KeyboardInterrupt", "invoke"),
        "the metric caught KeyboardInterrupt, so that Ctrl-C does not end a run: catch Exceptions only",
    ),
    "a key in the failure": (
        after_an_error(lambda error: mine(failure=Failure(error="NoGrade", message=str(error)))),
        (KEYS, LEAK, "invoke"),
        f"a score {NO_KEY}",
    ),
    "a key in the log": (after_an_error(logging_the_key), (KEYS, LEAK, "invoke"), f"the log {NO_KEY}"),
    "a key in the repr": (by_step(Exposing), (KEYS, "the API key", "invoke"), f"repr(metric) {NO_KEY}"),
}
"""Builder of a bad metric, the test that it fails with its arguments, and the message."""


def battery_of(build):
    return _Runs(build, ScriptedJudge('{"reason": "Thanks.", "grade": 4}', repeat=True), Sample.parse(SAMPLE))


def message_of(test, *arguments):
    """Return the message with which a test fails, without what pytest adds to it."""
    with pytest.raises(AssertionError) as raised:
        getattr(HostileJudgeTests(), test)(*arguments)
    return re.sub(r"has [\d,]{5,} characters", "has many characters", str(raised.value).partition("\nassert ")[0])


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_metric_fails_where_it_is_bad(bad, tmp_path, caplog, capfd):
    build, (test, *arguments), message = BAD[bad]
    fixtures = (tmp_path, caplog, capfd) if test == KEYS else ()
    assert message_of(test, battery_of(build), *arguments, *fixtures) == message


def test_a_metric_whose_calls_have_no_timeout_is_found(monkeypatch):
    monkeypatch.setattr(hostile_judge_tests, "_HANG_SECONDS", 0.5)
    battery = battery_of(by_function(graded))
    assert message_of("test_a_judge_that_hangs_is_abandoned", battery, "evaluate") == (
        "evaluate did not end within 0.5 s: limit the attempts, and call the judge in a Step, or in Step.from_chain, "
        "to which the timeout of the run applies"
    )


@each(
    ("build", "message"),
    [
        (
            lambda judge: faithfulness(judge),
            "faithfulness fails with the judge whose replies are valid (JudgeOutputError: extract_statements: the "
            "object has none of the keys ['statements']): define `judge`, a judge that answers this metric, such as "
            "ScriptedJudge(..., repeat=True)",
        ),
        (
            lambda judge: exact_match(),
            "the metric did not call the judge that `build_metric` received: pass it to the steps, or define "
            "`sample`, a sample that needs a judge",
        ),
        (by_function(lambda judge, sample: exit()), "the metric ended the run with SystemExit: None"),
    ],
    ids=["another judge's replies", "no judge", "the end"],
)
def test_a_metric_that_the_other_tests_would_not_reach_is_found(build, message):
    assert message_of("test_a_valid_judge_gives_a_score", battery_of(build)) == message


def test_a_run_waits_no_longer_than_its_policy_for_an_endpoint_that_rejects_all_calls_for_an_hour():
    build = partial(answer_correctness, embeddings=HashingEmbeddings())
    battery = _Runs(build, OfflineJudge(), Sample.parse(SAMPLE))
    assert list(battery.problems("evaluate", "429 to every call")) == []


def test_without_a_builder_the_error_says_what_to_define():
    with pytest.raises(NotImplementedError, match=r"^HostileJudgeTests must define `build_metric\(self, judge\)`$"):
        HostileJudgeTests().build_metric(OfflineJudge())
