"""Threads of a run, and single-flight: concurrent callers of one key share an execution."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from contextvars import ContextVar
from functools import partial

import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, auntil, holds_in_a_fork, needs_fork, until

from langchain_rageval.run.run import Run
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.run.threads import DaemonThreads

# Threads


WHO = ContextVar("WHO", default="nobody")


def printed(code):
    """Return what a program prints."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout


def test_results_come_in_the_order_of_the_jobs():
    slow = threading.Event()

    def first():
        slow.wait(PATIENCE)
        return "first"

    def second():
        slow.set()
        return "second"

    assert DaemonThreads().gather([first, second]) == ["first", "second"]


def test_an_error_is_raised_once_every_job_has_ended():
    ended = []

    def fail():
        raise ZeroDivisionError

    def linger():
        time.sleep(0.02)
        ended.append("lingered")

    with pytest.raises(ZeroDivisionError):
        DaemonThreads().gather([fail, linger])
    assert ended == ["lingered"]


def test_a_single_job_stays_in_the_callers_thread():
    assert DaemonThreads().gather([threading.current_thread]) == [threading.current_thread()]


def test_a_job_sees_the_context_variables_of_whoever_submits_it():
    threads = DaemonThreads()
    token = WHO.set("me")
    assert threads.submit(WHO.get).result(PATIENCE) == "me"
    WHO.reset(token)
    assert threads.submit(WHO.get).result(PATIENCE) == "nobody"


def test_an_idle_thread_is_used_again_and_one_whose_job_hangs_is_not():
    threads, hang = DaemonThreads(), threading.Event()
    first = threads.submit(threading.current_thread).result(PATIENCE)
    assert threads.submit(threading.current_thread).result(PATIENCE) is first
    hanging = threads.submit(hang.wait)
    assert threads.submit(threading.current_thread).result(PATIENCE) is not first
    hang.set()
    assert hanging.result(PATIENCE)


def test_a_job_cancelled_while_it_runs_does_not_end_its_thread():
    threads, started, go_on = DaemonThreads(), threading.Event(), threading.Event()

    def job():
        started.set()
        go_on.wait(PATIENCE)

    given_up = threads.submit(job)
    started.wait(PATIENCE)
    given_up.cancel()
    go_on.set()
    until(lambda: given_up.done() and threads._idle)
    assert [threads.submit(lambda: "alive").result(PATIENCE) for _ in range(3)] == ["alive"] * 3


def test_an_idle_thread_ends_by_itself_and_later_jobs_get_a_new_one(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.01)
    threads = DaemonThreads()
    old = threads.submit(threading.current_thread).result(PATIENCE)
    until(lambda: not old.is_alive())
    assert threads.submit(threading.current_thread).result(PATIENCE) is not old


@pytest.mark.parametrize("jobs", [60, pytest.param(200, marks=pytest.mark.gate)])
def test_no_job_is_lost_while_threads_retire(monkeypatch, jobs):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.0)
    threads = DaemonThreads()
    assert [threads.submit(lambda n=n: n).result(PATIENCE) for n in range(jobs)] == [*range(jobs)]


def test_an_idle_thread_keeps_nothing_of_its_last_job_alive(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 10 * PATIENCE)

    class Held:
        pass

    held = Held()
    gone = weakref.ref(held)
    threads = DaemonThreads()
    threads.submit(lambda held=held: None).result(PATIENCE)
    del held

    def collected():
        gc.collect()
        return gone() is None

    until(collected)  # sooner than an idle thread ends


@pytest.mark.gate
def test_a_hanging_call_does_not_keep_the_interpreter_alive():
    code = (
        "import time\n"
        "from langchain_rageval.run.run import Run\n"
        "try:\n"
        "    Run(timeout=0.05).call_with_timeout(lambda: time.sleep(600))\n"
        "except TimeoutError:\n"
        "    print('left behind')\n"
    )
    assert printed(code) == "left behind\n"


@pytest.mark.gate
def test_many_small_runs_share_their_threads():
    code = (
        "import threading\n"
        "from langchain_rageval import OfflineJudge, evaluate, faithfulness\n"
        "samples = [{'question': 'Q?', 'answer': f'A {n}.', 'contexts': [f'A {n}.']} for n in range(6)]\n"
        "for _ in range(160):\n"
        "    evaluate(samples, faithfulness(OfflineJudge()), progress=False, max_concurrency=4)\n"
        "print(threading.active_count() - 1)\n"
    )
    assert int(printed(code)) <= 2 * 8  # each worker may use a second thread for a call with a timeout


@needs_fork
def test_a_forked_child_has_threads_of_its_own():
    run = Run()
    run.threads.submit(time.time).result(PATIENCE)
    assert holds_in_a_fork(lambda: run.threads.submit(lambda: "in the child").result(PATIENCE) == "in the child")


def test_a_stream_yields_a_result_before_later_jobs_have_ended():
    last = threading.Event()
    results = DaemonThreads().stream([lambda: "first", lambda: last.wait(PATIENCE)], 2)
    assert next(results) == "first"
    last.set()
    assert list(results) == [True]


def test_after_a_stream_is_closed_no_waiting_job_is_started():
    started, closed = [], threading.Event()
    waiting = [lambda: closed.wait(PATIENCE), lambda: started.append("third")]
    pool = DaemonThreads()
    results = pool.stream([lambda: "first", *waiting], 1)
    assert next(results) == "first"
    results.close()
    closed.set()
    until(lambda: pool._idle)
    assert started == []


def test_while_the_interpreter_shuts_down_a_job_of_a_pool_thread_runs_in_it(monkeypatch):
    threads = DaemonThreads()
    message = "can't create new thread at interpreter shutdown"

    def start(thread):
        raise RuntimeError(message)

    def submit():
        return threading.current_thread(), threads.submit(threading.current_thread).result(0)

    go_on = threading.Event()
    outer = threads.submit(lambda: go_on.wait(PATIENCE) and submit())
    monkeypatch.setattr(threading.Thread, "start", start)
    go_on.set()
    own, used = outer.result(PATIENCE)
    assert own is used
    assert own.daemon
    until(lambda: threads._idle)
    assert threads.submit(threading.current_thread).result(PATIENCE) is own
    with pytest.raises(RuntimeError, match=message):
        DaemonThreads().submit(threading.current_thread)
    message = "can't start new thread"
    with pytest.raises(RuntimeError, match=message):
        threads.submit(lambda: DaemonThreads().submit(threading.current_thread)).result(PATIENCE)


# Single-flight


class Answer:
    """A result that a weak reference can watch."""


class Work:
    """A piece of async work that tells when it starts, waits to be let go, and notes how it ended."""

    def __init__(self):
        self.started, self.go_on = asyncio.Event(), asyncio.Event()
        self.times = 0
        self.cancelled = False

    async def __call__(self):
        self.times += 1
        self.started.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


def test_threads_share_one_execution_per_key():
    flight, hurry, done = SingleFlight(), threading.Barrier(8), []

    def work():
        done.append("once")
        until(lambda: flight.calls["key"].waiters == 8)
        return Answer()

    def ask():
        hurry.wait(PATIENCE)
        return flight.do("key", work)

    answers = DaemonThreads().gather([ask] * 8)
    assert done == ["once"]
    assert [flight.do(key, lambda key=key: key * 2) for key in (1, 2, 1)] == [2, 4, 2]
    assert len(set(map(id, answers))) == 1


def test_a_result_is_retained_as_long_as_its_samples_exist():
    flight = SingleFlight()
    one, other = SingleFlight(flight), SingleFlight(flight)
    result = weakref.ref(one.do("key", Answer))
    assert other.do("key", pytest.fail) is result()
    del one
    assert result() is not None
    del other
    assert result() is None
    assert not flight.calls


async def test_an_async_result_is_dropped_with_its_sample():
    flight = SingleFlight()
    sample = SingleFlight(flight)

    async def work():
        return Answer()

    result = weakref.ref(await sample.ado("key", work))
    assert result() is not None
    del sample
    await auntil(lambda: result() is None and not flight.calls)


async def test_an_error_reaches_all_waiters_and_is_not_retained():
    flight = SingleFlight()

    def fail():
        until(lambda: flight.calls["key"].waiters == 2)
        raise ZeroDivisionError

    both = [DaemonThreads().submit(lambda: flight.do("key", fail)) for _ in range(2)]
    for future in both:
        with pytest.raises(ZeroDivisionError):
            future.result(PATIENCE)
    assert flight.do("key", lambda: "mended") == "mended"

    async def afail():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    results = await asyncio.gather(*(flight.ado("a", afail) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 3
    assert await flight.ado("a", partial(asyncio.sleep, 0, "mended")) == "mended"


async def test_a_cancelled_first_caller_does_not_cancel_the_others():
    flight, work = SingleFlight(), Work()
    leader, follower = (asyncio.create_task(flight.ado("key", work)) for _ in range(2))
    await work.started.wait()
    leader.cancel()
    await asyncio.wait([leader])
    work.go_on.set()
    assert await follower == "done"
    assert leader.cancelled()
    assert work.times == 1


async def test_an_execution_without_waiters_is_cancelled():
    flight, work = SingleFlight(), Work()
    both = [asyncio.create_task(flight.ado("key", work)) for _ in range(2)]
    await work.started.wait()
    for task in both:
        task.cancel()
    await asyncio.wait(both)
    await auntil(lambda: work.cancelled)


async def test_a_caller_during_a_cancellation_starts_a_new_execution():
    flight, work, again = SingleFlight(), Work(), Work()
    again.go_on.set()
    leader = asyncio.create_task(flight.ado("key", work))
    await work.started.wait()
    leader.cancel()
    late = asyncio.create_task(flight.ado("key", again))
    assert await late == "done"
    assert leader.cancelled()
    assert (work.times, again.times) == (1, 1)


@each(
    "ask",
    [lambda flight: flight.do("key", pytest.fail), lambda flight: asyncio.run(flight.ado("key", Work()))],
    ids=["a thread", "a loop of another thread"],
)
async def test_a_caller_elsewhere_shares_an_execution_and_keeps_that_of_a_cancelled_task_alive(ask):
    flight, work = SingleFlight(), Work()
    leader = asyncio.create_task(flight.ado("key", work))
    await work.started.wait()
    follower = asyncio.create_task(asyncio.to_thread(ask, flight))
    await auntil(lambda: flight.calls["key"].waiters == 2)
    leader.cancel()
    await asyncio.wait([leader])
    work.go_on.set()
    assert await asyncio.wait_for(follower, PATIENCE) == "done"
    assert (work.times, work.cancelled) == (1, False)


async def test_a_task_may_wait_for_a_thread():
    flight, started, go_on = SingleFlight(), threading.Event(), threading.Event()

    def work():
        started.set()
        go_on.wait(PATIENCE)
        return "done"

    leader = asyncio.create_task(asyncio.to_thread(flight.do, "key", work))
    await auntil(started.is_set)
    follower = asyncio.create_task(flight.ado("key", Work()))
    await auntil(lambda: flight.calls["key"].waiters == 2)
    go_on.set()
    assert [await leader, await follower] == ["done", "done"]


async def test_a_thread_that_is_interrupted_as_it_waits_does_not_keep_an_execution_alive(monkeypatch):
    class Interrupted:
        def result(self):
            raise KeyboardInterrupt

    flight, work = SingleFlight(), Work()
    leader = asyncio.create_task(flight.ado("key", work))
    await work.started.wait()
    monkeypatch.setattr(flight, "_completion", lambda _call: Interrupted())
    with pytest.raises(KeyboardInterrupt):
        flight.do("key", pytest.fail)
    leader.cancel()
    await auntil(lambda: work.cancelled)
