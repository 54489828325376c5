import asyncio
import gc
import threading
import weakref

import pytest
from helpers.waiting import auntil, until
from langchain_core.runnables import RunnableConfig, RunnableLambda, RunnableParallel, RunnablePassthrough

from langchain_rageval.data.schema import Usage
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import Meter


class Answer:
    """A result that a weak reference can watch."""


class Operation:
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


def seen(_input: object, config: RunnableConfig) -> Run:
    return Run.of(config)


SEEN = RunnableLambda(seen)


@pytest.mark.parametrize(
    "wrapped",
    [
        SEEN,
        SEEN.with_retry(),
        SEEN.with_fallbacks([SEEN]),
        SEEN.with_config(configurable={"other": 1}),
        RunnableLambda(lambda _: SEEN),
        RunnableParallel(found=SEEN) | (lambda found: found["found"]),
        RunnablePassthrough.assign(found=SEEN) | (lambda found: found["found"]),
    ],
    ids=["bare", "retry", "fallbacks", "config", "lambda", "parallel", "assign"],
)
async def test_the_run_travels_through_whatever_a_user_wraps_around_a_step(wrapped):
    run = Run()
    config = run.into({"configurable": {"user": "me"}})
    assert wrapped.invoke({}, config) is run
    assert await wrapped.ainvoke({}, config) is run
    assert config["configurable"]["user"] == "me"


def test_a_config_without_a_run_makes_a_new_one_each_time():
    assert Run.of({}) is not Run.of({})


def test_a_metered_run_charges_its_parent_too():
    run = Run()
    part = run.metered()
    part.meter.add(calls=1, input_tokens=5, seconds=0.5)
    run.metered().meter.add(calls=2, output_tokens=3)
    assert part.meter.usage == Usage(calls=1, input_tokens=5, seconds=0.5)
    assert run.meter.usage == Usage(calls=3, input_tokens=5, output_tokens=3, seconds=0.5)
    assert part.flights is run.flights


def test_tokens_stay_unknown_while_no_model_reports_any():
    meter = Meter()
    meter.add(calls=1)
    assert (meter.usage.input_tokens, meter.usage.output_tokens) == (None, None)


def test_threads_that_need_the_same_work_have_it_done_once():
    run, hurry, done = Run(), threading.Barrier(8), []

    def work():
        done.append("once")
        until(lambda: run.flights["key"].waiting == 8)
        return Answer()

    def ask():
        hurry.wait(5)
        return run.share("key", work)

    answers = run.threads.gather([ask] * 8)
    assert done == ["once"]
    assert len(set(map(id, answers))) == 1


def test_other_keys_are_other_works():
    run = Run()
    assert [run.share(key, lambda key=key: key * 2) for key in (1, 2, 1)] == [2, 4, 2]


def test_a_result_is_kept_while_its_sample_lasts_and_dropped_with_it():
    run = Run()
    one, other = run.for_sample(), run.for_sample()
    result = weakref.ref(one.share("key", Answer))
    assert other.share("key", pytest.fail) is result()
    del one
    assert result() is not None
    del other
    assert result() is None
    assert not run.flights


async def test_an_async_result_is_dropped_with_its_sample():
    run = Run()
    sample = run.for_sample()

    async def work():
        return Answer()

    result = weakref.ref(await sample.ashare("key", work))
    assert result() is not None
    del sample
    await auntil(lambda: result() is None and not run.flights)


def test_a_failure_reaches_those_who_wait_and_is_not_kept():
    run = Run()

    def fail():
        until(lambda: run.flights["key"].waiting == 2)
        raise ZeroDivisionError

    both = [run.threads.submit(lambda: run.share("key", fail)) for _ in range(2)]
    for future in both:
        with pytest.raises(ZeroDivisionError):
            future.result(5)
    assert run.share("key", lambda: "mended") == "mended"


async def test_an_async_failure_reaches_those_who_wait_and_is_not_kept():
    run = Run()

    async def fail():
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def mended():
        return "mended"

    results = await asyncio.gather(*(run.ashare("key", fail) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [ZeroDivisionError] * 3
    assert await run.ashare("key", mended) == "mended"


async def test_a_cancelled_leader_takes_nobody_with_it():
    run, work = Run(), Operation()
    leader, follower = (asyncio.create_task(run.ashare("key", work)) for _ in range(2))
    await work.started.wait()
    leader.cancel()
    await asyncio.wait([leader])
    work.go_on.set()
    assert await follower == "done"
    assert leader.cancelled()
    assert work.times == 1


async def test_a_work_that_nobody_waits_for_any_more_is_cancelled():
    run, work = Run(), Operation()
    both = [asyncio.create_task(run.ashare("key", work)) for _ in range(2)]
    await work.started.wait()
    for task in both:
        task.cancel()
    await asyncio.wait(both)
    await auntil(lambda: work.cancelled)


async def test_whoever_comes_while_a_work_is_being_cancelled_has_it_done_anew():
    run, work, again = Run(), Operation(), Operation()
    again.go_on.set()
    leader = asyncio.create_task(run.ashare("key", work))
    await work.started.wait()
    leader.cancel()
    late = asyncio.create_task(run.ashare("key", again))
    assert await late == "done"
    assert leader.cancelled()
    assert (work.times, again.times) == (1, 1)


async def test_a_thread_that_waits_keeps_the_work_of_a_cancelled_task_alive():
    run, work = Run(), Operation()
    leader = asyncio.create_task(run.ashare("key", work))
    await work.started.wait()
    follower = asyncio.create_task(asyncio.to_thread(run.share, "key", pytest.fail))
    await auntil(lambda: run.flights["key"].waiting == 2)
    leader.cancel()
    await asyncio.wait([leader])
    work.go_on.set()
    assert await asyncio.wait_for(follower, 5) == "done"
    assert not work.cancelled


async def test_a_task_may_wait_for_a_thread():
    run, started, go_on = Run(), threading.Event(), threading.Event()

    def work():
        started.set()
        go_on.wait(5)
        return "done"

    leader = asyncio.create_task(asyncio.to_thread(run.share, "key", work))
    await auntil(started.is_set)
    follower = asyncio.create_task(run.ashare("key", Operation()))
    await auntil(lambda: run.flights["key"].waiting == 2)
    go_on.set()
    assert [await leader, await follower] == ["done", "done"]


def test_a_call_that_takes_too_long_is_left_behind_and_counted():
    run, hang = Run(timeout=0.02), threading.Event()
    part = run.metered()
    with pytest.raises(TimeoutError, match=r"within 0\.02 s"):
        part.bounded(lambda: hang.wait(5))
    assert (part.meter.abandoned, run.meter.abandoned) == (1, 1)
    hang.set()
    assert part.bounded(lambda: "next") == "next"


async def test_an_async_caller_leaves_a_sync_call_behind_and_the_next_one_still_runs():
    run, hang = Run(timeout=0.2), threading.Event()
    with pytest.raises(TimeoutError, match=r"within 0\.2 s"):
        await run.abounded(lambda: hang.wait(5))
    assert run.meter.abandoned == 1
    hang.set()
    await auntil(lambda: run.threads._idle)
    assert [await run.abounded(lambda: "next") for _ in range(3)] == ["next"] * 3


def test_a_timeout_of_the_clients_own_is_passed_on_as_it_is():
    def impatient():
        raise TimeoutError("the client's own")

    run = Run(timeout=5)
    with pytest.raises(TimeoutError, match="the client's own"):
        run.bounded(impatient)
    with pytest.raises(TimeoutError, match="the client's own"):
        asyncio.run(run.abounded(impatient))
    assert run.meter.abandoned == 0


def test_without_a_timeout_a_call_stays_in_its_thread():
    assert Run(timeout=None).bounded(threading.current_thread) is threading.current_thread()


def test_a_failed_work_leaves_nothing_in_the_table():
    run = Run()
    with pytest.raises(ZeroDivisionError):
        run.share("key", lambda: 1 / 0)
    gc.collect()
    assert not run.flights
