import asyncio
import threading
import weakref
from functools import partial

import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, auntil, until

from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.run.threads import DaemonThreads


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
