"""How a run ends early: errors that are no Exception, threads that cannot start, Ctrl-C, a judge that never answers."""

import asyncio
import threading
import time
from itertools import count

import pytest
from helpers.doors import report_by
from helpers.each import each, error_of
from helpers.samples import town
from helpers.scripted import Refusal, Vectors, offline_reply
from helpers.waiting import PATIENCE, until
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr

from langchain_rageval import (
    Judge,
    Metric,
    OfflineJudge,
    Report,
    RetryPolicy,
    Score,
    Step,
    Value,
    aevaluate,
    answer_similarity,
    astream_evaluate,
    cascade,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    noise_sensitivity,
    suite,
)
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import JudgeUnavailable

# Errors, threads and interrupts


EIGHT = [town(number) for number in range(8)]


class Ended(BaseException):
    """An error that no `except Exception` catches."""


ERRORS = [kind("enough") for kind in (Ended, GeneratorExit, SystemExit, pytest.fail.Exception)]
ERRORS += [BaseExceptionGroup("enough", [Ended("one")])]
every_error = each("error", ERRORS, ids=[type(error).__name__ for error in ERRORS])


class EndingModel(OfflineJudge):
    """A chat model that raises an error from its methods. LangChain calls the async one in a task."""

    _error: BaseException = PrivateAttr()

    def __init__(self, error):
        super().__init__()
        self._error = error

    def _generate(self, messages, stop=None, run_manager=None, **options):
        raise self._error


def raising(error, kind):
    """A judge that raises an error from its sync or its async method."""

    def reply(messages):
        raise error

    async def areply(messages):
        await asyncio.sleep(0)
        raise error

    return RunnableLambda(reply) if kind == "sync" else RunnableLambda(offline_reply, areply)


def metrics_of(error):
    def broken(_):
        raise error

    chain = RunnableLambda(lambda fields: fields["answer"]) | EndingModel(error)
    step = Step.from_chain(chain, reads=("answer",), key="reply")
    return {
        "sync judge": lambda: faithfulness(raising(error, "sync")),
        "async judge": lambda: faithfulness(raising(error, "async")),
        "chat model": lambda: faithfulness(EndingModel(error)),
        "chain": lambda: Metric("own", aspect="answer", reads={"answer"}, steps=step, reduce=lambda _: Value(1.0, "")),
        "judge of a suite": lambda: suite(
            context_recall(raising(error, "sync")), context_relevance(raising(error, "async"))
        ),
        "own metric": lambda: RunnableLambda(broken, name="own"),
        "embeddings": lambda: answer_similarity(Vectors(answer=broken)),
    }


async def bounded(work):
    """Await with a bound that cannot turn a hanging run into an error of the same kind."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait([task], timeout=PATIENCE)
    assert done, "the run hangs"
    return task


async def outcome_of(work):
    """Return what a coroutine raised; a SystemExit that left its task would end the test's loop."""
    try:
        await work
    except BaseException as error:
        return error
    return None


@every_error
@each("what", metrics_of(None))
async def test_aevaluate_ends_with_the_error(error, what):
    if isinstance(error, GeneratorExit | SystemExit) and what != "sync judge":
        return  # asyncio and LangChain give these two a meaning of their own in coroutines and tasks
    metric = metrics_of(error)[what]()
    raised = (await bounded(outcome_of(aevaluate(EIGHT, metric, progress=False)))).result()
    assert raised is error


@every_error
async def test_astream_evaluate_and_evaluate_end_with_the_error(error):
    metric = faithfulness(raising(error, "sync"))

    async def read():
        async for _ in astream_evaluate(EIGHT, metric):
            pass

    assert (await bounded(outcome_of(read()))).result() is error
    assert error_of(type(error), evaluate, EIGHT, metric, progress=False) is error


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_judge_that_runs_out_of_replies_is_a_failure_and_not_a_hang(kind):
    judge = raising(StopIteration(), kind)
    work = aevaluate(EIGHT, faithfulness(judge), progress=False, timeout=None)
    report = (await bounded(work)).result()
    assert {row.scores["faithfulness"].failure.error for row in report.rows} == {"RuntimeError"}
    exits = faithfulness(raising(GeneratorExit("enough"), "async"))
    await bounded(outcome_of(aevaluate(EIGHT, exits, progress=False)))


def test_a_thread_that_cannot_start_ends_the_run_without_further_calls(monkeypatch):
    calls, going, lock = [], threading.Event(), threading.Lock()
    start, started = threading.Thread.start, []

    def judge(messages):
        with lock:
            calls.append(messages)
        going.wait(PATIENCE)
        return offline_reply(messages)

    def limited(thread):
        if len(started) == 3:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr("langchain_rageval.run.threads._SHARED._values", {})
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.05)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        with pytest.raises(RuntimeError, match=r"^can't start new thread$"):
            evaluate(EIGHT, faithfulness(RunnableLambda(judge)), progress=False, timeout=None)
    going.set()
    until(lambda: not any(thread.is_alive() for thread in started))
    assert len(calls) <= 3  # those that were under way


def test_an_interrupted_run_sends_no_further_calls():
    calls, lock = [], threading.Lock()

    def judge(messages):
        with lock:
            calls.append(messages)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return offline_reply(messages)

    def score(sample):
        return Score(metric="own", aspect="answer", value=1.0)

    metrics = [faithfulness(RunnableLambda(judge)), RunnableLambda(score, name="own")]
    report = evaluate(EIGHT, metrics, progress=False, max_concurrency=1)
    assert not report.complete
    assert report.failures() == []


@pytest.mark.parametrize("out", [None, "report.jsonl"])
def test_an_interrupted_run_keeps_the_finished_scores_of_a_begun_sample(tmp_path, out):
    def interrupted(messages):
        raise KeyboardInterrupt

    own = RunnableLambda(lambda _: Score(metric="own", aspect="answer", value=1.0), name="own")
    options = {"progress": False, "max_concurrency": 1, "out": out and tmp_path / out}
    report = evaluate(EIGHT, [own, faithfulness(RunnableLambda(interrupted))], **options)
    assert out is None or Report.load(tmp_path / out) == report
    assert {(row.sample.id, *row.scores) for row in report.rows} >= {("q-0", "own")}
    assert {name for row in report.rows for name in row.scores} == {"own"}
    assert any(f": {len(report.rows)} samples have scores." in note for note in report.notes)


# A judge that never answers ends its part of the run after a bounded number of calls


SAMPLES = [town(number) for number in range(60)]


REJECTED = Refusal("rejected with 401", 401)


class BadJudge:
    """A judge that fails in one way, from the call number `first` on."""

    def __init__(self, reply, first=0):
        self.calls, self._lock, self.failed = 0, threading.Lock(), threading.Event()
        self._reply, self._first = reply, first
        self.model = RunnableLambda(self._answer)

    def _answer(self, messages):
        with self._lock:
            self.calls += 1
            number = self.calls
        if number <= self._first:
            return offline_reply(messages)
        self.failed.set()
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply


@pytest.mark.parametrize(
    ("door", "reply", "attempts"),
    [
        ("evaluate", REJECTED, 1),
        ("evaluate", "I cannot help with this request.", 3),
        ("aevaluate", ConnectionRefusedError("refused"), 3),
        ("aevaluate", Refusal("rejected with 429", 429), 3),
    ],
)
async def test_the_run_ends_after_about_twenty_failures_beyond_concurrency(door, reply, attempts):
    judge, quick = BadJudge(reply), RetryPolicy(attempts=3, initial=0.0, max_wait=0.0)
    metrics = [faithfulness(judge.model), context_recall(judge.model)]
    report = await report_by(door, SAMPLES, metrics, retry=quick, max_concurrency=4)
    workers = 8
    assert 20 <= judge.calls <= (20 + workers) * attempts
    assert not report.complete
    assert report.notes[0].startswith("The run was stopped: RunnableLambda")
    assert "failed 20 times in a row without a valid reply; last failure: " in report.notes[0]
    assert len(report.left_out) + len(report.failures()) == 120
    assert {score.failure.error for _, score in report.failures()}.isdisjoint({"JudgeUnavailable"})


def test_the_metrics_of_another_judge_go_on():
    judge = BadJudge(REJECTED)
    report = evaluate(SAMPLES, [faithfulness(judge.model), context_recall(OfflineJudge())], progress=False)
    assert sum("context_recall" in row.scores for row in report.rows) == 60
    assert {name for _, name in report.left_out} == {"faithfulness"}
    assert not report.complete
    assert report.notes[0].startswith("A judge is not called any more: RunnableLambda")
    assert report.notes[0].endswith("in a row without a valid reply; last failure: Refusal: rejected with 401")


def test_a_judge_that_was_never_asked_is_not_said_to_have_failed():
    judge = BadJudge(REJECTED)
    report = evaluate(SAMPLES, faithfulness(cascade(judge.model, OfflineJudge())), progress=False)
    stopped = [note for note in report.notes if note.startswith("The run was stopped: ")]
    assert len(stopped) == 1
    assert stopped[0].startswith("The run was stopped: RunnableLambda")


def test_a_judge_that_has_answered_once_is_asked_to_the_end():
    judge = BadJudge(REJECTED, first=1)

    def one_by_one():
        yield SAMPLES[0]
        assert judge.failed.wait(60)  # the second call about the first sample: the first reply has been read
        yield from SAMPLES[1:]

    report = evaluate(one_by_one(), faithfulness(judge.model), progress=False)
    assert judge.calls == 61
    assert report.complete
    assert report.left_out == []


def test_replies_to_canaries_are_no_replies_about_samples():
    judge = BadJudge(REJECTED, first=8)
    report = evaluate(SAMPLES, faithfulness(judge.model), progress=False, canaries=True, max_concurrency=1)
    assert report.canaries.right == 8
    assert judge.calls == 8 + 20
    assert report.notes[0].startswith("The run was stopped: RunnableLambda")


def test_a_judge_with_other_options_on_the_same_model_is_counted_separately():
    judge = BadJudge(REJECTED)

    def reply(messages):
        is_about_references = "Henry founded town" in str(messages[-1].content)
        return judge._answer(messages) if is_about_references else offline_reply(messages)

    model = RunnableLambda(reply)
    metrics = [faithfulness(Judge(model)), context_recall(Judge(model, attempts=2))]
    report = evaluate(SAMPLES, metrics, progress=False, max_concurrency=1)
    assert judge.calls == 20
    assert sum("faithfulness" in row.scores for row in report.rows) == 60
    assert {name for _, name in report.left_out} == {"context_recall"}


async def test_a_failed_call_that_two_metrics_share_counts_once():
    for door in ("evaluate", "aevaluate"):
        judge = BadJudge(REJECTED)
        slow = RunnableLambda(lambda _: time.sleep(0.02)) | judge.model  # so that the other metric can join the call
        shared = Judge(slow)
        report = await report_by(door, SAMPLES, [faithfulness(shared), noise_sensitivity(shared)], max_concurrency=1)
        assert judge.calls >= 20
        assert len(report.failures()) > judge.calls


def test_an_error_of_a_metric_is_not_the_judges():
    def broken(_sample):
        raise ValueError("a mistake of the metric")

    report = evaluate(SAMPLES, [RunnableLambda(broken, name="own"), faithfulness(OfflineJudge())], progress=False)
    assert report.complete
    assert len(report.failures()) == 60


def test_an_endless_source_is_read_no_further():
    judge = BadJudge(REJECTED)
    report = evaluate(map(town, count()), faithfulness(judge.model), progress=False)
    assert not report.complete
    assert judge.calls < 60


async def test_a_stream_raises_after_its_last_row():
    judge = BadJudge(REJECTED)
    rows = []

    async def read():
        async for row in astream_evaluate(SAMPLES, faithfulness(judge.model)):
            rows.append(row)

    with pytest.raises(JudgeUnavailable, match=r"^The run was stopped: .* last failure: Refusal: rejected with 401$"):
        await read()
    assert 20 <= len(rows) < 60


UNAVAILABLE = JudgeUnavailable.__name__


@each(
    ("errors", "kept"),
    [({}, True), ({"b": UNAVAILABLE}, True), (dict.fromkeys("ab", UNAVAILABLE), False),
     ({"a": "TimeoutError", "b": UNAVAILABLE}, False), (dict.fromkeys("ab", "TimeoutError"), True)],
)  # fmt: skip
def test_scores_that_all_failed_are_left_out_if_a_judge_was_given_up(errors, kept):
    def score(name):
        lost = {"failure": Failure(error=errors[name], message="down", step="rate")} if name in errors else {}
        return Score(**{"metric": name, "aspect": "answer", **(lost or {"value": 1.0})})

    both = RunnableLambda(lambda _: {name: score(name) for name in "ab"}, name="both")
    report = evaluate(SAMPLES[:1], both, progress=False)
    assert [[*row.scores] for row in report.rows] == [["a", "b"]] * kept
    assert report.left_out == ([] if kept else [(0, "both")])


def test_one_failed_score_ends_the_reading_of_no_source():
    def reply(messages):
        return "no JSON" if "town 0000 " in str(messages) else offline_reply(messages)

    metric = faithfulness(RunnableLambda(reply))
    report = evaluate(iter(SAMPLES[:12]), metric, progress=False, max_concurrency=1)
    assert (len(report.rows), len(report.failures()), report.left_out, report.complete) == (12, 1, [], True)
