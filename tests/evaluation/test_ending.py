"""How a run ends when a judge raises something that is no Exception, or a thread cannot start."""

import asyncio
import threading

import pytest
from helpers.each import each, error_of
from helpers.samples import town
from helpers.scripted import Vectors, offline_reply
from helpers.waiting import PATIENCE, until
from langchain_core.runnables import RunnableLambda
from pydantic import PrivateAttr

from langchain_rageval import (
    Metric,
    OfflineJudge,
    Report,
    Score,
    Step,
    Value,
    aevaluate,
    answer_similarity,
    astream_evaluate,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    suite,
)

SAMPLES = [town(number) for number in range(8)]


class Ended(BaseException):
    """An error that no `except Exception` catches."""


ERRORS = [
    Ended("enough"),
    GeneratorExit("enough"),
    SystemExit("enough"),
    BaseExceptionGroup("enough", [Ended("one")]),
    pytest.fail.Exception("enough"),
]
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
    raised = (await bounded(outcome_of(aevaluate(SAMPLES, metric, progress=False)))).result()
    assert raised is error


@every_error
async def test_astream_evaluate_and_evaluate_end_with_the_error(error):
    metric = faithfulness(raising(error, "sync"))

    async def read():
        async for _ in astream_evaluate(SAMPLES, metric):
            pass

    assert (await bounded(outcome_of(read()))).result() is error
    assert error_of(type(error), evaluate, SAMPLES, metric, progress=False) is error


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_judge_that_runs_out_of_replies_is_a_failure_and_not_a_hang(kind):
    judge = raising(StopIteration(), kind)
    work = aevaluate(SAMPLES, faithfulness(judge), progress=False, timeout=None)
    report = (await bounded(work)).result()
    assert {row.scores["faithfulness"].failure.error for row in report.rows} == {"RuntimeError"}
    exits = faithfulness(raising(GeneratorExit("enough"), "async"))
    await bounded(outcome_of(aevaluate(SAMPLES, exits, progress=False)))


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
            evaluate(SAMPLES, faithfulness(RunnableLambda(judge)), progress=False, timeout=None)
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
    report = evaluate(SAMPLES, metrics, progress=False, max_concurrency=1)
    assert not report.complete
    assert report.failures() == []


@pytest.mark.parametrize("out", [None, "report.jsonl"])
def test_an_interrupted_run_keeps_the_finished_scores_of_a_begun_sample(tmp_path, out):
    def interrupted(messages):
        raise KeyboardInterrupt

    own = RunnableLambda(lambda _: Score(metric="own", aspect="answer", value=1.0), name="own")
    options = {"progress": False, "max_concurrency": 1, "out": out and tmp_path / out}
    report = evaluate(SAMPLES, [own, faithfulness(RunnableLambda(interrupted))], **options)
    assert out is None or Report.load(tmp_path / out) == report
    assert {(row.sample.id, *row.scores) for row in report.rows} >= {("q-0", "own")}
    assert {name for row in report.rows for name in row.scores} == {"own"}
    assert any(f": {len(report.rows)} samples have scores." in note for note in report.notes)
