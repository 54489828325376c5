import asyncio
import threading
import time

import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, Pauses, until
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval.data.schema import Usage
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.drivers import adrive, astream_results, drive
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.requests import Call, Gather, InvokeChild, Locked, Pause, Shared
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run

AT_ONCE = RetryPolicy(attempts=4, initial=0.0)


def driven(work, run):
    return drive(work, run, {})


def adriven(work, run):
    return asyncio.run(adrive(work, run, {}))


BOTH = each("do", [driven, adriven], ids=["sync", "async"])


class Model:
    """Gives replies in order, raising those that are errors; keeps the options of each call."""

    def __init__(self, *replies):
        self.replies = list(replies)
        self.options = []
        self.runnable = RunnableLambda(self._answer, self._aanswer)

    def _answer(self, _messages, **options):
        self.options.append(options)
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _aanswer(self, messages, **options):
        return self._answer(messages, **options)

    def call(self, **more):
        return Call(self.runnable, [HumanMessage("?")], **more)


def asks(call):
    return (yield call)


def gives(value):
    return value
    yield


def raises(error):
    raise error
    yield


@BOTH
def test_the_reply_to_a_call_is_a_message_also_when_the_model_is_a_function_that_gives_text(do):
    assert do(asks(Model("да").call()), Run()).text == "да"
    assert do(asks(Model(AIMessage("да")).call()), Run()).text == "да"


@BOTH
def test_a_call_is_charged_with_the_tokens_of_its_reply_and_one_from_the_models_cache_with_none(do):
    run = Run()
    tokens = {"input_tokens": 7, "output_tokens": 2, "total_tokens": 9}
    do(asks(Model(AIMessage("a", usage_metadata=tokens)).call()), run)
    usage = run.meter.usage
    assert (usage.calls, usage.input_tokens, usage.output_tokens) == (1, 7, 2)
    assert usage.seconds > 0
    cached = Run()
    do(asks(Model(AIMessage("a", usage_metadata={**tokens, "total_cost": 0})).call()), cached)
    assert cached.meter.usage == Usage(calls=0, seconds=cached.meter.usage.seconds)


@BOTH
def test_a_call_is_retried_after_a_transport_error_and_every_try_is_charged(do):
    run = Run(retry=AT_ONCE)
    model = Model(TimeoutError(), ConnectionResetError(), AIMessage("a"))
    assert do(asks(model.call()), run).text == "a"
    assert run.meter.usage.calls == 3
    for lone, tries in ((Run(retry=AT_ONCE), 4), (Run(), 1)):  # without an evaluation around it, once
        model = Model(*(TimeoutError(str(number)) for number in range(1, 9)))
        with pytest.raises(TimeoutError, match=str(tries)):
            do(asks(model.call()), lone)
        assert len(model.options) == tries


@BOTH
def test_an_error_is_raised_in_the_operation_that_made_the_request(do):
    def careful():
        try:
            yield Model(ValueError("no")).call()
        except ValueError as error:
            return f"caught {error}"

    assert do(careful(), Run()) == "caught no"


def test_waiting_between_two_tries_holds_no_slot(monkeypatch):
    other_ended = threading.Event()
    pauses = Pauses(monkeypatch, over=other_ended.is_set)
    run = Run(Governor(limit=1), retry=RetryPolicy(attempts=2))
    waiting = run.threads.submit(lambda: driven(asks(Model(TimeoutError(), "late").call()), run))
    until(lambda: pauses.seconds)
    assert driven(asks(Model("soon").call()), run).text == "soon"
    other_ended.set()
    assert waiting.result(PATIENCE).text == "late"


@BOTH
def test_a_pause_lasts_as_long_as_asked(do):
    started = time.monotonic()
    do(asks(Pause(0.02)), Run())
    assert time.monotonic() - started >= 0.02


@BOTH
def test_a_client_with_a_timeout_option_gets_the_timeout_of_the_run(do):
    timed, untimed, endless = Model("a"), Model("a"), Model("a")
    do(asks(timed.call(options={"stream": False}, timeout_option="request_timeout")), Run(timeout=5.0))
    do(asks(untimed.call(options={"stream": False})), Run(timeout=5.0))
    do(asks(endless.call(timeout_option="request_timeout")), Run(timeout=None))
    assert timed.options == [{"stream": False, "request_timeout": 5.0}]
    assert untimed.options == [{"stream": False}]
    assert endless.options == [{}]


@BOTH
def test_gathered_operations_return_their_results_in_order_or_raise_the_first_error(do):
    assert do(asks(Gather([gives(1), gives(2), gives(3)])), Run()) == [1, 2, 3]
    assert do(asks(Gather([])), Run()) == []
    with pytest.raises(ValueError, match="first"):
        do(asks(Gather([gives(1), raises(ValueError("first")), raises(KeyError("second"))])), Run())


def test_in_threads_gathered_operations_overlap_while_slots_are_idle():
    meeting = threading.Barrier(3)
    call = Call(RunnableLambda(lambda _messages: str(meeting.wait(PATIENCE) >= 0)), [HumanMessage("?")])
    replies = driven(asks(Gather([asks(call), asks(call), asks(call)])), Run(Governor(limit=3)))
    assert [reply.text for reply in replies] == ["True"] * 3


@each(("number", "limit"), [(3, None), (3, 2), (1, 3)], ids=["no pool", "too few slots", "a single operation"])
def test_without_idle_slots_gathered_operations_stay_in_the_callers_thread(number, limit):
    seen = []
    model = RunnableLambda(lambda _messages: seen.append(threading.get_ident()) or "done")
    works = [asks(Call(model, [HumanMessage("?")])) for _ in range(number)]
    driven(asks(Gather(works)), Run(Governor(limit=limit)))
    assert seen == [threading.get_ident()] * number


async def test_on_a_loop_gathered_operations_overlap():
    meeting = asyncio.Barrier(3)

    async def meet(_messages):
        await meeting.wait()
        return "met"

    def sync(_messages):
        raise AssertionError("the loop calls the async method")

    call = Call(RunnableLambda(sync, meet), [HumanMessage("?")])
    async with asyncio.timeout(PATIENCE):
        replies = await adrive(asks(Gather([asks(call), asks(call), asks(call)])), Run(), {})
    assert [reply.text for reply in replies] == ["met"] * 3


@BOTH
def test_a_gate_admits_one_operation_at_a_time_and_is_released_after_an_error(do):
    gate = AdaptiveLimiter(1)
    assert do(asks(Locked(gate, gives(1))), Run()) == 1
    with pytest.raises(ValueError, match="no"):
        do(asks(Locked(gate, raises(ValueError("no")))), Run())
    assert do(asks(Locked(gate, gives(2))), Run()) == 2


@BOTH
def test_operations_of_one_key_share_a_result_and_those_of_another_do_not(do):
    def same_twice():
        return (yield Gather([asks(Shared("key", gives(object()))) for _ in range(2)] + [asks(Shared("b", gives(0)))]))

    one, other, third = do(same_twice(), Run())
    assert one is other
    assert third == 0


@pytest.mark.parametrize("sync_only", [True, False])
async def test_a_model_without_async_methods_runs_in_a_thread_of_ours(sync_only):
    names = []
    model = RunnableLambda(lambda _: names.append(threading.current_thread().name) or "a")
    await adrive(asks(Call(model, [HumanMessage("?")], sync_only=sync_only)), Run(), {})
    assert (names == ["rageval"]) is sync_only


async def test_on_a_loop_a_call_that_takes_too_long_is_cancelled():
    ended = []

    async def hang(_messages):
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    call = Call(RunnableLambda(lambda _: "", hang), [HumanMessage("?")])
    with pytest.raises(TimeoutError):
        await adrive(asks(call), Run(timeout=0.02), {})
    assert ended == [True]


@BOTH
def test_a_slot_is_free_again_after_a_call_that_failed(do):
    run = Run(Governor(limit=1))
    with pytest.raises(ValueError, match="no"):
        do(asks(Model(ValueError("no")).call()), run)
    assert do(asks(Model("a").call()), run).text == "a"


@BOTH
def test_a_runnable_is_invoked_with_more_configurable_values_and_those_of_the_caller_take_precedence(do):
    def work(config):
        look = RunnableLambda(lambda value, config: (value, config["configurable"].get("writer")))
        return (yield InvokeChild(look, "a", config))

    assert do(work({"writer": "of the operation"}), Run()) == ("a", "of the operation")
    assert drive(work({"writer": 1}), Run(), {"configurable": {"writer": 0}}) == ("a", 0)


async def test_results_are_streamed_in_order_and_each_as_soon_as_possible():
    last = asyncio.Event()
    results = astream_results([asyncio.sleep(0, "first"), last.wait()])
    assert await anext(results) == "first"
    last.set()
    assert [result async for result in results] == [True]


async def test_after_an_error_or_close_streamed_coroutines_are_cancelled():
    ended = []

    async def endless():
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def fail():
        await asyncio.sleep(0)
        raise ValueError("first")

    with pytest.raises(ValueError, match=r"^first$"):
        _ = [result async for result in astream_results([fail(), endless()])]
    results = astream_results([asyncio.sleep(0), endless()])
    await anext(results)
    await results.aclose()
    assert ended == ["cancelled"] * 2


@BOTH
def test_a_run_that_was_stopped_sends_nothing_more(do):
    run, model = Run(), Model("a", "b")
    run.stop()
    with pytest.raises(BaseException, match="the run was stopped"):
        do(asks(Call(model.runnable, [HumanMessage("?")])), run)
    assert model.options == []
