"""Metrics of a user: plain functions, and the metrics of the guide; what works for the package's works for them."""

import asyncio
import importlib
import pickle
import threading
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from helpers.each import each, error_of
from helpers.own import politeness as politeness_module
from helpers.own import short_enough as short_enough_module
from helpers.own import tone as tone_module
from helpers.own.politeness import politeness
from helpers.own.short_enough import short_enough
from helpers.own.tone import tone
from helpers.samples import SAMPLE, sequence
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr
from typing_extensions import TypedDict

from langchain_rageval import (
    Budget,
    ConfigError,
    Metric,
    OfflineJudge,
    RagEvalCallback,
    Report,
    Sample,
    Value,
    aevaluate,
    evaluate,
    metric,
    plan,
    suite,
)
from langchain_rageval.testing import MetricTests

ASKED = {"question": "What is a bat?", "answer": "An animal."}
UNREADABLE = threading.local()


@metric(reads=["answer"], aspect="style")
async def awaited(sample):
    """Return the share of letters, after a moment."""
    await asyncio.sleep(0)
    return sum(map(str.isalpha, sample.answer)) / max(1, len(sample.answer))


class TestShortEnough(MetricTests):
    """A metric of a plain function is a metric like any other."""

    metric = short_enough


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

    functions = {"async": coroutine, "partial": partial(coroutine, extra=0.0), "object": Callable()}
    functions["sync"] = lambda sample: len(sample.answer) / 100
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

    samples = [{"question": "a", "answer": ""}, {"question": "b", "answer": "b"}]
    report = evaluate(samples, metric(reads={"answer"})(own), progress=False)
    failed, fine = (row.scores["own"] for row in report.rows)
    assert (failed.failure.error, failed.failure.step, fine.value) == ("ZeroDivisionError", "own", 1.0)


# What is said of mistakes

NO_FIELDS = 'name the fields of the sample that not_decorated reads: @metric(reads={"answer"})'
NO_FIELD = f"not_decorated reads ['answr'], which no sample has; use {', '.join(Sample.model_fields)}; did you mean "
TWO = "a function of a metric is called with one sample: missing a required argument: 'answer'"
NO_ASPECT = "aspect of not_decorated is a word for what it scores, such as 'answer', got ' '"
NO_RANGE = "range of not_decorated is its lowest and its highest value, such as (0, 1), got (1, 0)"


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
        ({"reads": {"answr"}}, not_decorated, f"{NO_FIELD}'answer'?"),
        ({}, lambda question, answer: 1.0, TWO),
        *(({}, thing, f"metric takes a function of a sample, got {thing!r}") for thing in (Sample, 3, short_enough)),
        ({"aspect": " "}, not_decorated, NO_ASPECT),
        ({"range": (1, 0)}, not_decorated, NO_RANGE),
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


# The metrics of the guide, from the documentation alone


JUDGED = {"politeness": lambda: politeness(OfflineJudge()), "tone": lambda: tone(OfflineJudge())}
OWN = {"short_enough": lambda: short_enough, **JUDGED}
GUIDE = Path(__file__).parents[2] / "docs/how-to/own-metric.md"

every_one = pytest.mark.parametrize("name", OWN)


class TestPoliteness(MetricTests):
    """The judged metric."""

    metric = politeness(OfflineJudge())


class TestTone(MetricTests):
    """The metric from a chain."""

    metric = tone(OfflineJudge())


@each("module", [short_enough_module, politeness_module, tone_module])
def test_the_documentation_shows_them_as_they_are_tested(module):
    code = Path(module.__file__).read_text(encoding="utf-8").split('"""\n\n', 1)[1].rstrip()
    assert f"```python\n{code}\n```" in GUIDE.read_text(encoding="utf-8")


@every_one
def test_the_plan_counts_its_calls_without_making_one(name):
    planned = plan([ASKED] * 3, OWN[name]())
    assert (planned.calls, planned.notes) == (3 if name in JUDGED else 0, [])


@every_one
def test_the_journal_resumes_it_without_a_call(name, tmp_path):
    first, second = (
        evaluate([ASKED], OWN[name](), journal=tmp_path / "scores.db", budget=budget, progress=False)
        for budget in (None, Budget(calls=0))
    )
    assert second.rows == first.rows
    assert (first.rows[0].scores[name].value, second.left_out) == (1.0, [])
    assert not [note for note in first.notes if "journal" in note]


@every_one
def test_a_report_with_it_is_saved_shown_and_compared(name, tmp_path):
    report = evaluate([{**ASKED, "question": f"{n}?"} for n in range(8)], OWN[name](), progress=False)
    report.to_jsonl(tmp_path / "report.jsonl")
    report.to_html(tmp_path / "report.html")
    assert Report.load(tmp_path / "report.jsonl").rows == report.rows
    assert name in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert report.compare(report)[name].difference == 0.0
    assert report.summary().aspects["style"].mean == 1.0


class Lenient(Metric):
    """A metric of a user with a field that is set after the constructor of the base class."""

    _least: float = PrivateAttr()
    _updates: list[float] = PrivateAttr(default_factory=list)

    def __init__(self, least):
        steps = RunnableLambda(lambda state: state)
        super().__init__("lenient", aspect="style", reads=["answer"], steps=steps, reduce=lambda state: Value(1, "ok"))
        self._least = least

    def update_provenance(self):
        super().update_provenance()
        self._updates.append(self._least)


def test_an_overridden_method_of_a_metric_runs_only_after_the_constructor_of_its_class():
    lenient = Lenient(0.5)
    assert (lenient._updates, lenient.provenance.counted_by is None) == ([], False)
    evaluate([ASKED], lenient, progress=False)
    assert lenient._updates == [0.5]


@every_one
def test_it_is_rescored_from_the_answers_in_a_file(name, tmp_path):
    evaluate([ASKED], OWN[name](), progress=False).to_jsonl(tmp_path / "report.jsonl")
    report = Report.load(tmp_path / "report.jsonl")
    before, again = (one.rows[0].scores[name] for one in (report, report.rescore(OWN[name]())))
    assert (again.value, again.usage, again.reason) == (before.value, before.usage, before.reason)
    if name in JUDGED:  # a function is called again
        metric = OWN[name]()
        halved = metric.model_copy(update={"reduce": lambda state: Value(metric.reduce(state).number / 2)})
        assert report.rescore(halved).rows[0].scores[name].value == before.value / 2


def test_a_report_of_an_earlier_version_has_no_answers_to_rescore():
    report = evaluate([ASKED], OWN["politeness"](), progress=False)
    (row,) = report.rows
    earlier = {"politeness": row.scores["politeness"].model_copy(update={"answers": {}})}
    error = error_of(ConfigError, Report([row.model_copy(update={"scores": earlier})]).rescore, OWN["politeness"]())
    place = f"the findings of politeness for sample {row.sample.id!r}"
    assert str(error) == f"politeness cannot be computed from {place}: score it with evaluate"


@every_one
def test_the_callback_and_a_graph_score_with_it(name):
    rows = []
    callback = RagEvalCallback([OWN[name]()], sample_rate=1.0, sinks=[rows.append])
    with callback:
        answering = RunnableLambda(lambda _: {"answer": "An animal."})
        answering.invoke({"question": "What is a bat?"}, {"callbacks": [callback]})
        assert callback.flush(30)
    assert [row.scores[name].value for row in rows] == [1.0]

    state = TypedDict("State", {"question": str, "answer": str, name: object})
    graph = sequence(state, {"judge": OWN[name]().as_node()})
    assert graph.invoke(ASKED)[name].value == 1.0
