"""Metrics made of plain functions: what they return, how they are called, and what identifies them."""

import asyncio
import importlib
import pickle
import threading
from decimal import Decimal
from fractions import Fraction
from functools import partial

import cloudpickle
import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.own.short_enough import short_enough
from helpers.samples import SAMPLE

from langchain_rageval import ConfigError, Metric, Sample, Value, aevaluate, evaluate, metric, plan, suite
from langchain_rageval.testing import MetricTests

ASKED = {"question": "What is a bat?", "answer": "An animal."}
UNREADABLE = threading.local()


class TestShortEnough(MetricTests):
    """A metric of a plain function is a metric like any other."""

    metric = short_enough


@metric(reads=["answer"], aspect="style")
async def awaited(sample):
    """Return the share of letters, after a moment."""
    await asyncio.sleep(0)
    return sum(map(str.isalpha, sample.answer)) / max(1, len(sample.answer))


class TestAwaited(MetricTests):
    """So is that of an async function."""

    metric = awaited


def scored(function, sample=ASKED, **options):
    """Return the score of a sample by a function."""
    return metric(**{"reads": {"answer"}, **options})(function).invoke(sample)


@each(
    ("result", "value", "comment"),
    [
        (True, 1.0, "own returned True."),
        (False, 0.0, "own returned False."),
        (np.bool_(True), 1.0, "own returned True."),
        (0.25, 0.25, "own returned 0.25."),
        (1, 1.0, "own returned 1."),
        (Fraction(1, 4), 0.25, "own returned 0.25."),
        (Decimal("0.25"), 0.25, "own returned 0.25."),
        (np.float32(0.5), 0.5, "own returned 0.5."),
        (None, None, "the function returned None"),
        (Value(0.75, "because"), 0.75, "because"),
        (Value.without("too short"), None, "too short"),
    ],
)
def test_the_result_of_the_function_is_the_value(result, value, comment):
    def own(_):
        return result

    score = scored(own)
    assert (score.value, score.comment, score.metric, score.aspect) == (value, comment, "own", "answer")
    assert type(score.value) in (float, type(None))


def test_the_reason_of_a_russian_sample_is_russian():
    score = scored(not_decorated, {"question": "Что такое летучая мышь?", "answer": "И"})
    assert score.reason == "Функция not_decorated вернула 1."


def test_any_other_result_is_an_error_that_says_what_to_return():
    message = "<lambda> returned str: return a bool, a number, a Value, or None if no value applies"
    assert str(error_of(ConfigError, scored, lambda _: "yes", name="own")) == message


@each("method", ["invoke", "ainvoke"])
@each("kind", ["sync", "async", "partial", "object"])
def test_sync_and_async_functions_are_called_through_both_doors(method, kind):
    async def coroutine(sample, extra=0.0):
        await asyncio.sleep(0)
        return len(sample.answer) / 100 + extra

    class Callable:
        async def __call__(self, sample):
            return await coroutine(sample)

    functions = {
        "sync": lambda sample: len(sample.answer) / 100,
        "async": coroutine,
        "partial": partial(coroutine, extra=0.0),
        "object": Callable(),
    }
    own = metric(reads={"answer"}, name="own")(functions[kind])
    score = own.invoke(ASKED) if method == "invoke" else asyncio.run(own.ainvoke(ASKED))
    assert score.value == 0.1


async def test_an_async_function_is_called_by_invoke_inside_a_running_loop():
    assert awaited.invoke(ASKED).value == 0.8
    assert evaluate([ASKED], awaited, progress=False).rows[0].scores["awaited"].value == 0.8
    assert (await aevaluate([ASKED], awaited, progress=False)).rows[0].scores["awaited"].value == 0.8


def test_a_failing_function_fails_its_own_sample():
    def own(sample):
        return 1 / len(sample.answer)

    report = evaluate(
        [{"question": "a", "answer": ""}, {"question": "b", "answer": "b"}],
        metric(reads={"answer"})(own),
        progress=False,
    )
    failed, fine = (row.scores["own"] for row in report.rows)
    assert (failed.failure.error, failed.failure.step, fine.value) == ("ZeroDivisionError", "own", 1.0)


# What is said of mistakes

NO_FIELDS = 'name the fields of the sample that not_decorated reads: @metric(reads={"answer"})'


def not_decorated(sample):
    """Return a number."""
    return float(len(sample.answer))


@each("function", [not_decorated, lambda s: 1.0])
@each("door", [evaluate, plan])
def test_a_function_without_the_decorator_is_refused_with_the_remedy(function, door):
    remedy = "got function: decorate it with @metric(reads=...)"
    assert str(error_of(ConfigError, door, [ASKED], [function])) == f"a metric is a Runnable, {remedy}"
    assert str(error_of(ConfigError, suite, function)) == f"a suite takes metrics, {remedy}"


@each(
    ("options", "function", "message"),
    [
        ({"reads": None}, not_decorated, NO_FIELDS),
        ({"reads": "answer"}, not_decorated, "reads of not_decorated is a set of fields: write reads={'answer'}"),
        (
            {"reads": {"answr"}},
            not_decorated,
            f"not_decorated reads ['answr'], which no sample has; use {', '.join(Sample.model_fields)}; "
            "did you mean 'answer'?",
        ),
        (
            {},
            lambda question, answer: 1.0,
            "a function of a metric is called with one sample: missing a required argument: 'answer'",
        ),
        *(({}, thing, f"metric takes a function of a sample, got {thing!r}") for thing in (Sample, 3, short_enough)),
        (
            {"aspect": " "},
            not_decorated,
            "aspect of not_decorated is a word for what it scores, such as 'answer', got ' '",
        ),
        (
            {"range": (1, 0)},
            not_decorated,
            "range of not_decorated is its lowest and its highest value, such as (0, 1), got (1, 0)",
        ),
    ],
)
def test_a_mistake_in_the_decorator_is_an_error_at_once(options, function, message):
    given = {"reads": {"answer"}, **options}
    for make in (lambda: metric(function, **given), lambda: metric(**given)(function)):
        assert str(error_of(ConfigError, make)) == message


# What identifies them


def test_two_lambdas_are_two_metrics():
    one, other, same = (metric(reads={"answer"}, name="own")(f) for f in (lambda _: 0.0, lambda _: 1.0, lambda _: 0.0))
    assert one.instrument == same.instrument != other.instrument
    assert one.instrument.partition(".")[0] == other.instrument.partition(".")[0]


def test_a_function_that_cannot_be_described_is_unknown_and_not_journalled(tmp_path):
    def own(_):
        return getattr(UNREADABLE, "value", 0.5)

    unknown = metric(reads={"answer"})(own)
    report = evaluate([ASKED], unknown, journal=tmp_path / "j.db", progress=False)
    assert unknown.instrument.endswith(".unknown")
    place = "test_a_function_that_cannot_be_described_is_unknown_and_not_journalled.<locals>.own (global).UNREADABLE"
    reason = (
        f"its reduce function own cannot be identified ({place} is a _thread._local, whose state cannot be read): "
        'pass version="1" to the metric, and change it with the function'
    )
    assert report.notes == [f"own is not stored in the journal: {reason}."]
    assert "unknown" not in metric(reads={"answer"}, version="1")(own).instrument


def test_a_dry_run_does_not_call_the_function():
    def own(_):
        raise AssertionError("called")

    planned = plan([ASKED], metric(reads={"answer"})(own))
    assert (planned.calls, planned.tokens, planned.notes) == (0, 0, [])


@pytest.mark.parametrize("pickler", [pickle, cloudpickle])
def test_a_decorated_function_of_a_module_is_pickled_by_its_name(pickler):
    twin = pickle.loads(pickler.dumps(short_enough))
    assert isinstance(twin, Metric)
    assert twin.invoke(SAMPLE) == short_enough.invoke(SAMPLE)
    assert importlib.import_module("helpers.own.short_enough").short_enough is short_enough


def test_a_local_function_is_pickled_with_its_code_by_cloudpickle():
    @metric(reads={"answer"})
    def own(sample):
        return len(sample.answer) / 100

    assert pickle.loads(cloudpickle.dumps(own)).invoke(ASKED).value == 0.1
