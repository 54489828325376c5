"""evaluate, aevaluate and astream_evaluate: what goes in, what comes out, and what the pool of calls does meanwhile."""

import asyncio
import itertools
import json
import threading
import time
import tracemalloc
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from helpers.doors import report_by
from helpers.each import each
from helpers.offline import rag_samples
from helpers.samples import ANSWER, CONTEXTS, QUESTION, SAMPLE
from helpers.scripted import Scripted, broken_judge, human_of, offline_reply, recording_judge
from helpers.waiting import PATIENCE, auntil, until
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval import (
    ConfigError,
    Judge,
    OfflineJudge,
    RetryPolicy,
    Row,
    Sample,
    SampleError,
    Score,
    abstention,
    aevaluate,
    astream_evaluate,
    evaluate,
    faithfulness,
)
from langchain_rageval.prompts.layout import read_inputs

ONCE = RetryPolicy(attempts=1)
LACKING = {"question": QUESTION, "answer": ANSWER}
metric = faithfulness(OfflineJudge())


@pytest.fixture(params=["evaluate", "aevaluate", "astream_evaluate"])
def rows_of(request):
    """Each door in turn: `await rows_of(samples, metrics, **options)` gives the rows by index."""

    async def evaluated(samples: Any, metrics: Any, **options: Any) -> list[Row]:
        if request.param != "astream_evaluate":
            return (await report_by(request.param, samples, metrics, **options)).rows
        rows = [row async for row in astream_evaluate(samples, metrics, **options)]
        return sorted(rows, key=lambda row: row.index)

    return evaluated


def about(name: str) -> dict[str, Any]:
    """The sample about Munich, under a question of its own."""
    return {**SAMPLE, "id": name, "question": f"{name}: {QUESTION}"}


def asked_about(messages: Any) -> str:
    return read_inputs(human_of(messages))["question"].partition(":")[0]


def told(rows: list[Row]) -> list[Any]:
    """The rows without what differs from run to run."""
    return [row.model_dump(exclude={"time": True, "scores": {"__all__": {"usage": {"seconds"}}}}) for row in rows]


def score_of(value: float, name: str = "own") -> Score:
    return Score(metric=name, aspect="answer", value=value)


def length(sample: Sample) -> Score:
    return score_of(float(len(sample.question)), "length")


own_metric: Runnable[Sample, Score] = RunnableLambda(length)


class Judged(Scripted):
    """Answers as OfflineJudge does, once `before(messages)` has returned; counts the calls in flight."""

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.answer = self._judge
        self._before, self._flying, self._count = before, 0, threading.Lock()
        self._most = 0

    @property
    def most(self) -> int:
        """Most calls in flight at a time."""
        return self._most

    def _judge(self, messages: Any) -> Any:
        with self._count:
            self._flying += 1
            self._most = max(self._most, self._flying)
        try:
            self._before(messages)
            return offline_reply(messages)
        finally:
            with self._count:
                self._flying -= 1


# What comes out


async def test_the_three_doors_give_equal_rows():
    samples = rag_samples(25)
    report = evaluate(samples, metric, progress=False)
    assert told((await aevaluate(samples, metric, progress=False)).rows) == told(report.rows)
    streamed = [row async for row in astream_evaluate(samples, metric)]
    assert told(sorted(streamed, key=lambda row: row.index)) == told(report.rows)
    assert [row.sample for row in report.rows] == samples
    assert {row.scores["faithfulness"].value for row in report.rows} >= {0.0, 1.0}


async def test_rows_keep_the_order_of_the_samples_whichever_is_finished_first(rows_of):
    late = {"0": 0.06, "1": 0.04, "2": 0.02}
    judge = Judged(lambda messages: time.sleep(late.get(asked_about(messages), 0)))
    samples = [about(str(number)) for number in range(12)]
    rows = await rows_of(samples, faithfulness(judge))
    assert [(row.index, row.sample.id) for row in rows] == [(n, str(n)) for n in range(12)]


async def test_a_stream_yields_rows_as_they_are_finished():
    ready = threading.Event()
    judge = Judged(lambda messages: asked_about(messages) == "0" and ready.wait(PATIENCE))
    order = []
    async for row in astream_evaluate([about(str(number)) for number in range(6)], faithfulness(judge)):
        order.append(row.index)
        if len(order) == 5:
            ready.set()
    assert sorted(order[:5]) == [1, 2, 3, 4, 5]
    assert order[5] == 0


def test_a_report_says_that_its_intervals_count_conversations_of_several_samples(tmp_path):
    def notes(*conversations, **options):
        metadata = [{"conversation": name} if name else {} for name in conversations]
        samples = [{"question": "Why?", "answer": "So.", "references": ["So."], "metadata": one} for one in metadata]
        report = evaluate(samples, abstention(OfflineJudge()), progress=False, **options)
        return [*report.notes, repr(report)]

    note = "3 samples are turns of 2 conversations: the intervals treat conversations, not samples, as independent."
    for options in ({}, {"out": tmp_path / "report.jsonl"}):
        *found, shown = notes("a", "a", None, "b", **options)
        assert note in found
        assert note in shown
    assert not any("conversations" in one for one in notes("a", "b", None))
    assert note.replace("3", "2").replace("2 conversations", "1 conversation") in notes("a", "a")


# The pool of model calls


async def test_the_pool_is_full_and_never_more_than_full(rows_of):
    """Each call but the last dozen waits until as many are in flight as may be: it breaks when one slot stays empty."""
    slots, calls = 4, 2 * 40
    together, arrived = threading.Barrier(slots, timeout=PATIENCE), iter(range(calls))
    judge = Judged(lambda _: next(arrived) < calls - 3 * slots and together.wait())
    rows = await rows_of([about(str(n)) for n in range(40)], faithfulness(judge), max_concurrency=slots)
    assert [row.scores["faithfulness"].value for row in rows] == [0.5] * 40
    assert judge.most == slots
    assert len(judge.asked) == calls


async def test_there_is_no_barrier_between_samples(rows_of):
    """One sample is stuck between its two calls until every other one is finished."""
    done: set[str] = set()
    others_done = threading.Event()

    def before(messages: Any) -> None:
        name, verifies = asked_about(messages), "statements" in read_inputs(human_of(messages))
        if name == "stuck":
            assert others_done.wait(PATIENCE)
        elif verifies:
            done.add(name)
            len(done) == 20 and others_done.set()

    samples = [about("stuck"), *(about(str(number)) for number in range(20))]
    rows = await rows_of(samples, faithfulness(Judged(before)), max_concurrency=2)
    assert all(row.scores["faithfulness"].value == 0.5 for row in rows)


@pytest.mark.gate  # each door waits for a timeout that no other call reaches
async def test_a_sample_that_hangs_is_given_up_and_its_slot_freed(rows_of):
    release = threading.Event()
    judge = Judged(lambda messages: asked_about(messages) == "hangs" and release.wait(PATIENCE))
    rows = await rows_of(
        [about("hangs"), about("0"), about("1")], faithfulness(judge), max_concurrency=1, timeout=2.5, retry=ONCE
    )
    release.set()
    assert [row.scores["faithfulness"].value for row in rows] == [None, 0.5, 0.5]
    failure = rows[0].scores["faithfulness"].failure
    assert (failure.error, failure.step) == ("TimeoutError", "extract_statements")
    assert "2.5 s" in failure.message


def test_the_report_counts_the_calls_that_were_left_behind():
    release = threading.Event()
    judge = Judged(lambda _: release.wait(PATIENCE))
    report = evaluate([SAMPLE], faithfulness(judge), timeout=0.05, retry=ONCE, progress=False)
    release.set()
    assert "1 calls took longer than 0.05 s and were abandoned." in report.notes


# Iterators


class Pulled:
    """An endless supply of samples that notes how far it was pulled ahead of what is scored."""

    def __init__(self, count: int) -> None:
        self.count, self.pulled, self.scored, self.ahead = count, 0, 0, 0

    def __iter__(self):
        for number in range(self.count):
            self.pulled += 1
            self.ahead = max(self.ahead, self.pulled - self.scored)
            yield about(str(number))

    async def aiter(self):
        for item in self:
            await asyncio.sleep(0)
            yield item

    def score(self, sample: Sample) -> Score:
        self.scored += 1
        return length(sample)


async def test_an_iterator_is_pulled_no_further_than_the_pool_needs(rows_of):
    supply = Pulled(300)
    rows = await rows_of(iter(supply), RunnableLambda(supply.score, name="own"), max_concurrency=3)
    assert len(rows) == 300
    assert supply.ahead <= 2 * 3 + 1


@pytest.mark.parametrize("kind", ["iterator", "async iterator"])
async def test_results_do_not_pile_up_behind_a_slow_reader(kind):
    supply = Pulled(500)

    async def score(sample: Sample) -> Score:
        return supply.score(sample)

    source = iter(supply) if kind == "iterator" else supply.aiter()
    read = 0
    async for _ in astream_evaluate(source, RunnableLambda(supply.score, score, name="own"), max_concurrency=2):
        read += 1
        if read in (1, 100):
            await asyncio.sleep(0.05)  # long enough to score them all
            assert supply.pulled <= read + 3 * 2 * 2
    assert read == 500


@pytest.mark.gate
async def test_memory_does_not_grow_with_the_number_of_samples():
    class Trivial(Runnable[Sample, Score]):
        def invoke(self, input: Sample, config: Any = None, **_: Any) -> Score:
            raise NotImplementedError

        async def ainvoke(self, input: Sample, config: Any = None, **_: Any) -> Score:
            return score_of(1.0)

    padding = "x" * 1000
    samples = ({"question": f"{number} {padding}"} for number in range(8_000))
    read, peaks = 0, []
    tracemalloc.start()
    try:
        async for _ in astream_evaluate(samples, Trivial()):
            read += 1
            if read in (1000, 2000, 8_000):
                peaks.append(tracemalloc.get_traced_memory()[1])
                tracemalloc.reset_peak()
    finally:
        tracemalloc.stop()
    _, first_thousand, last_six = peaks
    assert read == 8_000
    assert last_six < 3 * first_thousand


# What goes in


async def as_async_generator():
    for _ in range(2):
        yield SAMPLE


class DataSet:
    """As Hugging Face's: mappings by number, a length, neither list nor iterator."""

    column_names = tuple(SAMPLE)

    def __len__(self) -> int:
        return 2

    def __iter__(self):
        return iter([SAMPLE, SAMPLE])


def as_frame():
    return pd.DataFrame([SAMPLE, SAMPLE])


@each("samples", [lambda: [SAMPLE, SAMPLE], lambda: (SAMPLE, SAMPLE), lambda: iter([SAMPLE] * 2), DataSet, as_frame])
async def test_samples_come_in_many_shapes(rows_of, samples):
    rows = await rows_of(samples(), metric)
    assert [row.scores["faithfulness"].value for row in rows] == [0.5, 0.5]
    assert [row.sample.contexts for row in rows] == [CONTEXTS, CONTEXTS]


async def test_samples_come_from_files(rows_of, tmp_path):
    path, table = tmp_path / "a.jsonl", tmp_path / "a.parquet"
    path.write_text(f"{json.dumps(SAMPLE)}\n" * 2)
    as_frame().to_parquet(table)
    for given in (path, str(path), table):
        rows = await rows_of(given, metric)
        assert [row.scores["faithfulness"].value for row in rows] == [0.5, 0.5]


async def test_samples_come_from_an_async_iterator():
    assert [row.index for row in (await aevaluate(as_async_generator(), metric, progress=False)).rows] == [0, 1]
    assert len([row async for row in astream_evaluate(as_async_generator(), metric)]) == 2


@each("samples", [[], (), iter([]), pd.DataFrame(), "a.jsonl"])
async def test_no_samples_make_an_empty_report(samples, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n")
    samples = tmp_path / samples if isinstance(samples, str) else samples
    report = evaluate(samples, metric, progress=False)
    assert (len(report), dict(report.summary()), report.failures()) == (0, {}, [])
    assert len(await aevaluate(samples, metric, progress=False)) == 0


# A user's mistakes


@each(
    ("samples", "field"),
    [([LACKING, LACKING], "contexts"), (pd.DataFrame([LACKING, LACKING]), "contexts"), ([SAMPLE, "text"], None),
     ([SAMPLE, {"answer": ANSWER}], "question"), (pd.DataFrame([SAMPLE, {"answer": ANSWER}]), "question")],
)  # fmt: skip
async def test_a_list_or_frame_is_checked_before_any_call(rows_of, samples, field):
    judge = recording_judge()
    with pytest.raises(SampleError) as caught:
        await rows_of(samples, faithfulness(judge))
    number = 0 if field == "contexts" else 1
    assert (judge.asked, caught.value.field) == ([], field)
    assert str(caught.value).startswith(f"row {number + 1} (index {number})")


HOLE = (
    f"row 2 (index 1), question {LACKING['question']!r}: faithfulness reads ['answer', 'contexts', 'question']; sample "
    "'q-17' lacks ['contexts']: fill it in or drop the metric"
)


@each("shape", [list, iter, pd.DataFrame])
async def test_one_sample_without_a_field_is_a_failure_that_names_its_row(rows_of, shape):
    judge = recording_judge()
    rows = await rows_of(shape([SAMPLE, {**LACKING, "id": "q-17"}]), [metric, faithfulness(judge, name="second")])
    failure = rows[1].scores["faithfulness"].failure
    assert (rows[0].scores["faithfulness"].value, failure.error, failure.step) == (0.5, "SampleError", "sample")
    assert failure.message == HOLE
    assert rows[1].scores["second"].failure.message == HOLE.replace("faithfulness", "second")


@each("source", ["list", "file", "iterator"])
async def test_strict_raises_for_one_sample_and_unless_it_is_an_iterator_before_any_call(rows_of, tmp_path, source):
    judge, samples, path = recording_judge(), [SAMPLE, {**LACKING, "id": "q-17"}], tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, samples)))
    given = {"list": samples, "file": path, "iterator": iter(samples)}[source]
    with pytest.raises(SampleError) as caught:
        await rows_of(given, faithfulness(judge).with_retry(), strict=True)
    place = "a.jsonl, line 2" if source == "file" else "row 2 (index 1)"
    assert (str(caught.value), caught.value.field) == (HOLE.replace("row 2 (index 1)", place), "contexts")
    assert source == "iterator" or judge.asked == []


@each(
    ("bad", "message"),
    [(LACKING, "lacks ['contexts']"), ({"answer": "a"}, "lacks a question"), ({"question": 7}, "got int"), (7, "int")],
)
async def test_of_an_iterator_a_bad_item_is_a_failure_on_its_row(rows_of, bad, message):
    rows = await rows_of(iter([SAMPLE, bad, SAMPLE]), metric)
    assert [row.scores["faithfulness"].value for row in rows] == [0.5, None, 0.5]
    failure = rows[1].scores["faithfulness"].failure
    assert (failure.error, failure.step) == ("SampleError", "sample")
    assert message in failure.message


async def test_of_a_file_a_bad_line_is_a_failure_on_its_row(rows_of, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join([json.dumps(SAMPLE), "{oops", json.dumps(LACKING), json.dumps(SAMPLE)]))
    rows = await rows_of(path, [metric, own_metric])
    assert [row.scores["faithfulness"].value for row in rows] == [0.5, None, None, 0.5]
    assert [row.scores["length"].value for row in rows] == [len(QUESTION), None, len(QUESTION), len(QUESTION)]
    broken, lacking = (rows[index].scores["faithfulness"].failure for index in (1, 2))
    assert (broken.error, broken.step, lacking.step) == ("SampleError", "sample", "sample")
    assert "a.jsonl, line 2: not valid JSON" in broken.message


@each("bad", [LACKING, {"question": 7}, "{oops"])
async def test_a_bad_item_of_an_iterator_or_a_file_raises_if_asked(rows_of, tmp_path, bad):
    (tmp_path / "a.jsonl").write_text("{oops\n")
    given, place = (tmp_path / "a.jsonl", "line 1") if bad == "{oops" else (iter([SAMPLE, bad]), None)
    with pytest.raises(SampleError, match=place):
        await rows_of(given, metric, on_failure="raise")


async def test_what_the_users_iterator_raises_comes_through(rows_of):
    def samples():
        yield SAMPLE
        raise LookupError("the data base is gone")

    with pytest.raises(LookupError, match="the data base is gone"):
        await rows_of(samples(), metric)


@each("source", ["list", "iterator", "file"])
async def test_two_questions_of_one_id_are_refused_from_any_source(rows_of, tmp_path, source):
    samples, path = [about("a"), {**about("a"), "question": "Really?"}], tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, samples)))
    given = {"list": samples, "iterator": iter(samples), "file": path}[source]
    place = "a.jsonl, line 2" if source == "file" else "row 2 (index 1), question 'Really?'"
    with pytest.raises(SampleError) as caught:
        await rows_of(given, metric)
    message = f"{place}: two different samples have the id 'a'; give each its own, or leave the ids out"
    assert (str(caught.value), caught.value.field) == (message, "id")


@each("shape", [list, iter])
async def test_samples_with_one_id_and_one_question_are_numbered(rows_of, shape):
    samples = [about("a"), {**about("a"), "answer": "Yes."}, {**about("a-2"), "question": "Else?"}, about("a")]
    rows = await rows_of(shape([samples[0], samples[2], samples[1], samples[3]]), metric)
    assert [row.sample.id for row in rows] == ["a", "a-2", "a-3", "a-4"]


@each(
    ("given", "mend"),
    [
        ({"metrics": []}, "at least one metric, such as faithfulness"),
        ({"metrics": faithfulness}, "got function; call it with a judge"),
        ({"metrics": [metric, "faithfulness"]}, "a metric is a Runnable, got str"),
        ({"metrics": None}, "a metric is a Runnable, got NoneType"),
        (
            {"metrics": metric.steps},
            r"the step .* is not a metric: write Metric\(name, aspect=\.\.\., reads=\.\.\., steps=step, reduce=",
        ),
        (
            {"metrics": [ChatPromptTemplate([("human", "{answer}")]) | OfflineJudge()]},
            r"a chain .* not a metric, which takes a sample: write Metric\(\.\.\., steps=Step\.from_chain\(chain",
        ),
        ({"metrics": OfflineJudge()}, "a chain that begins with OfflineJudge is not a metric"),
        ({"metrics": [metric, faithfulness(OfflineJudge())]}, r"two metrics are named \['faithfulness'\]; .* name="),
        ({"metrics": [metric, metric.with_retry()]}, r"two metrics are named \['faithfulness'\]"),
        ({"max_concurrency": 0}, "max_concurrency must be a whole number of at least 1, got 0"),
        ({"max_concurrency": 2.5}, "max_concurrency must be a whole number"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0, or None, got 0"),
        ({"on_failure": "ignore"}, "on_failure must be 'record' or 'raise', got 'ignore'"),
        ({"retry": 3}, r"retry must be a RetryPolicy\(attempts=...\), got 3"),
        ({"fields": {"q": "question"}}, "'q' is not a field: use one of id, "),
        ({"samples": None}, "samples must be a list, .* got NoneType"),
        ({"samples": SAMPLE}, "put a single sample in a list"),
        ({"samples": Sample(**SAMPLE)}, "put a single sample in a list"),
        ({"samples": "nowhere.jsonl"}, "nowhere.jsonl does not exist"),
    ],
)
async def test_invalid_arguments_are_refused_before_any_call(rows_of, given, mend):
    judge = recording_judge()
    with pytest.raises(ConfigError, match=mend):
        await rows_of(**{"samples": [SAMPLE], "metrics": faithfulness(judge), **given})
    assert judge.asked == []


def test_evaluate_refuses_an_async_iterator_with_the_function_that_takes_it():
    with pytest.raises(ConfigError, match="await aevaluate"):
        evaluate(as_async_generator(), metric, progress=False)


# A judge's failures


class Lost(ConnectionError):
    """An error of a client, its type known only there."""


async def test_a_failure_stays_on_its_own_score(rows_of):
    judge = Judged(lambda messages: None)
    mixed = [faithfulness(judge), faithfulness(broken_judge(Lost("gone")), name="broken")]
    rows = await rows_of([about("0"), about("1")], mixed, retry=ONCE)
    assert [row.scores["faithfulness"].value for row in rows] == [0.5, 0.5]
    assert {row.scores["broken"].failure.error for row in rows} == {"Lost"}


async def test_the_first_failure_raises_as_it_is_if_asked_and_stops(rows_of):
    lost = Lost("gone")
    supply, judge = Pulled(500), broken_judge(lost)
    with pytest.raises(Lost) as caught:
        await rows_of(iter(supply), faithfulness(judge), on_failure="raise", retry=ONCE, max_concurrency=2)
    assert caught.value is lost
    asked = len(judge.asked)
    await asyncio.sleep(0.05)
    assert supply.pulled <= 20
    assert len(judge.asked) <= asked + 4  # those in flight


def test_an_error_ends_the_reading_of_an_endless_source_although_no_model_is_called():
    returned, late, lost = threading.Event(), [], Lost("gone")

    def source():
        for number in itertools.count():
            if returned.is_set():
                late.append(number)
            yield about(str(number))

    def score(sample: Sample) -> Score:
        if sample.id == "9":
            raise lost
        return length(sample)

    with pytest.raises(Lost):
        evaluate(source(), RunnableLambda(score), on_failure="raise", max_concurrency=2, progress=False)
    returned.set()
    time.sleep(0.02)
    assert len(late) <= 4  # workers, each of which may have been about to read


async def test_a_cancelled_task_within_a_metric_does_not_hang_the_run():
    async def cancelled(_: Any) -> Score:
        inner = asyncio.create_task(asyncio.sleep(10))
        inner.cancel()
        await inner
        raise AssertionError

    run = aevaluate([SAMPLE], RunnableLambda(length, cancelled), progress=False)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, PATIENCE)


# Metrics of the user's own, and wrapped ones


async def test_a_runnable_may_return_several_scores_and_all_stand_in_the_order_of_the_metrics(rows_of):
    both = RunnableLambda(lambda _: {"one": score_of(1, "one"), "two": score_of(2, "two")})
    slow = faithfulness(Judged(lambda _: time.sleep(0.02)), name="slow")
    (row,) = await rows_of([SAMPLE], [slow, both, metric])
    assert list(row.scores) == ["slow", "one", "two", "faithfulness"]


async def test_a_runnable_that_returns_no_score_or_raises_is_a_failure_of_its_own(rows_of):
    wrong, broken = RunnableLambda(lambda _: 0.5, name="wrong"), RunnableLambda(lambda _: 1 / 0, name="broken")
    (row,) = await rows_of([SAMPLE], [wrong, broken, metric])
    failures = [row.scores[name].failure for name in ("wrong", "broken")]
    assert "a metric returns a Score or a mapping of names to Scores" in failures[0].message
    errors = [("ConfigError", None), ("ZeroDivisionError", None)]
    assert [(failure.error, failure.step) for failure in failures] == errors
    assert row.scores["faithfulness"].value == 0.5


async def test_wrapped_metrics_keep_their_name_and_their_failures(rows_of):
    flaky = Counter[str]()

    def before(messages: Any) -> None:
        flaky["calls"] += 1
        if flaky["calls"] == 1:
            raise Lost("once")

    twice = {"stop_after_attempt": 2, "wait_exponential_jitter": False}
    retried = faithfulness(Judged(before), name="retried").with_retry(**twice)
    tagged = faithfulness(OfflineJudge(), name="tagged").with_config(tags=["mine"])
    other = faithfulness(OfflineJudge(), name="instead")
    instead = faithfulness(broken_judge(), name="instead").with_fallbacks([other])
    lost = faithfulness(broken_judge(), name="lost").with_retry(stop_after_attempt=1)
    (row,) = await rows_of([SAMPLE], [retried, tagged, instead, lost], retry=ONCE)
    values = {name: score.value for name, score in row.scores.items()}
    assert values == {"retried": 0.5, "tagged": 0.5, "instead": 0.5, "lost": None}
    failed = row.scores["lost"]
    assert (failed.aspect, failed.failure.step) == ("grounding", "extract_statements")


def test_the_report_notes_an_offline_judge_behind_any_wrapper():
    wrapped = faithfulness(Judge(OfflineJudge().with_retry())).with_retry()
    (note,) = evaluate([SAMPLE], wrapped, progress=False).notes
    assert "not a measure of quality" in note


# The end before the end


class Endless:
    """An async metric that finishes one sample and waits forever on the others."""

    def __init__(self) -> None:
        self.waiting = self.cancelled = 0

    async def __call__(self, sample: Sample) -> Score:
        if sample.id == "first":
            await auntil(lambda: self.waiting == 3)
            return length(sample)
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        raise AssertionError


SOME = [about("first"), about("1"), about("2"), about("3")]


@pytest.fixture
async def loop_complaints():
    """What the loop has to say of tasks that nobody looked after."""
    has_callbacks: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: has_callbacks.append(context))
    return has_callbacks


async def test_cancelling_aevaluate_cancels_all_that_is_under_way(loop_complaints):
    own, before = Endless(), asyncio.all_tasks()
    run = asyncio.create_task(aevaluate(SOME, RunnableLambda(length, own), progress=False))
    await auntil(lambda: own.waiting == 3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert asyncio.all_tasks() == before
    assert own.cancelled == 3
    assert loop_complaints == []


async def test_breaking_off_cancels_model_calls_and_closes_the_users_iterator(loop_complaints):
    state = SimpleNamespace(asked=0, cancelled=0, closed=False)

    async def ask(messages: Any) -> Any:
        if asked_about(messages) == "first":
            await auntil(lambda: state.asked >= 1)
            return offline_reply(messages)
        state.asked += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            state.cancelled += 1
            raise

    async def samples():
        try:
            for sample in SOME:
                yield sample
            await asyncio.Event().wait()
        finally:
            state.closed = True

    before = asyncio.all_tasks()
    async for _ in astream_evaluate(samples(), faithfulness(RunnableLambda(offline_reply, ask))):
        break
    await auntil(lambda: asyncio.all_tasks() == before and state.closed)
    assert state.cancelled == state.asked > 0
    assert loop_complaints == []


# Loops


async def test_aevaluate_leaves_the_loop_to_others():
    """A judge without async methods of its own works in a thread: each call waits until the loop has ticked."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.001)

    def tick_twice(_messages: Any) -> None:
        before = ticks
        until(lambda: ticks >= before + 2)

    ticking = asyncio.create_task(tick())
    report = await aevaluate([about(str(n)) for n in range(4)], faithfulness(Judged(tick_twice)), progress=False)
    ticking.cancel()
    assert [row.scores["faithfulness"].value for row in report.rows] == [0.5] * 4


async def test_several_evaluations_side_by_side_do_not_mix_and_evaluate_works_inside_a_running_loop():
    report = evaluate([SAMPLE], metric, progress=False)
    assert report.rows[0].scores["faithfulness"].value == 0.5
    samples = [[about(f"{run}-{number}") for number in range(5)] for run in range(3)]
    reports = await asyncio.gather(*(aevaluate(part, metric, progress=False) for part in samples))
    ids = [[row.sample.id for row in report.rows] for report in reports]
    assert ids == [[sample["id"] for sample in part] for part in samples]
