import asyncio
import threading
import time
from contextlib import suppress
from types import SimpleNamespace
from uuid import uuid4

import httpx
import openai
import pytest
from helpers.each import each
from helpers.waiting import PATIENCE, Pauses, until
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, Generation, LLMResult
from langchain_core.runnables import RunnableLambda

from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.errors import JudgeUnavailable
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.billing import MeteredChain
from langchain_rageval.run.drivers import adrive, agather, astream_results, drive
from langchain_rageval.run.embedding import EmbedBatch
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.requests import (
    Call,
    Compute,
    Gather,
    Invoke,
    InvokeChild,
    Locked,
    Pause,
    Rate,
    Shared,
    ValidReply,
)
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import PriceList, UsageMeter

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
    meeting = threading.Barrier(2)
    call = Call(RunnableLambda(lambda _messages: str(meeting.wait(PATIENCE) >= 0)), [HumanMessage("?")])
    replies = driven(asks(Gather([asks(call), asks(call)])), Run(Governor(limit=2)))
    assert [reply.text for reply in replies] == ["True"] * 2


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


class Reported(AdaptiveLimiter):
    """Keeps the outcomes that are reported to it."""

    def __init__(self, limit):
        super().__init__(limit)
        self.outcomes = []

    def record_success(self, slot):
        self.outcomes.append("answered")
        super().record_success(slot)

    def record_rejection(self, slot, retry_after=None):
        self.outcomes.append(("rejected", retry_after))
        super().record_rejection(slot, retry_after)


async def test_on_a_loop_a_call_that_takes_too_long_is_cancelled():
    ended = []

    async def hang(_messages):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    call = Call(RunnableLambda(lambda _: "", hang), [HumanMessage("?")])
    with pytest.raises(TimeoutError):
        await adrive(asks(call), Run(timeout=0.02), {})
    assert ended == [True]


@BOTH
def test_a_cross_encoder_takes_a_slot(do):
    run, idle = Run(Governor(limit=4)), []
    scorer = SimpleNamespace(score=lambda pairs: idle.append(run.governor.limiter.idle) or [0.5])
    assert do(asks(Rate(scorer, [("a", "b")])), run) == [0.5]
    assert idle == [3]


def refusal(status, **headers):
    response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://judge"))
    return openai.APIStatusError("no", response=response, body=None)


class Refusing(Embeddings):
    """Rejects each request."""

    embed_query = None

    def embed_documents(self, texts):
        raise refusal(429)


@BOTH
def test_the_limiter_learns_of_answers_and_of_rejections_and_of_nothing_else(do):
    outcomes = {
        "answered": "a",
        ("rejected", None): refusal(429),
        ("rejected", 7.0): refusal(503, **{"Retry-After": "7"}),
        ("rejected", 60.0): refusal(429, **{"Retry-After": "900"}),
        None: refusal(500),
        "": ValueError("no"),
    }
    for expected, reply in outcomes.items():
        for as_chain in (False, True):
            run, model = Run(Governor(limit=4)), Model(reply)
            run.governor.limiter = limiter = Reported(4)
            request = Invoke(model.runnable, "?") if as_chain else model.call()
            with suppress(openai.APIStatusError, ValueError):
                do(asks(request), run)
            assert limiter.outcomes == ([expected] if expected else [])
            assert limiter.idle == 4
    run.governor.limiter = limiter = Reported(4)
    with suppress(openai.APIStatusError):  # embeddings usually have a quota of their own
        do(asks(EmbedBatch(Refusing(), ["a"])), run)
    assert limiter.outcomes == []


@BOTH
def test_an_endpoint_whose_calls_have_ended_is_not_called(do):
    run, model = Run(), Model("a")
    failure = Failure(step="verify", error="Rejected", message="no")
    run.governor.check_endpoint(model.runnable)
    for _ in range(20):
        run.governor.record_failed_score([model.runnable], failure)
    with pytest.raises(JudgeUnavailable):
        do(asks(model.call()), run)
    assert model.options == []
    run = Run()
    run.governor.check_endpoint(model.runnable)
    do(asks(ValidReply(model.runnable)), run)
    assert not any(run.governor.record_failed_score([model.runnable], failure) for _ in range(20))


@BOTH
def test_retries_end_when_an_endpoint_has_answered_none_of_fifty_tries(do):
    run, model = Run(retry=RetryPolicy(attempts=99, initial=0)), Model(*[TimeoutError()] * 99)
    with pytest.raises(TimeoutError):
        do(asks(model.call()), run)
    assert len(model.options) == 50


@BOTH
def test_as_many_stale_connections_as_a_client_keeps_do_not_make_a_judge_unavailable(do):
    run, model = Run(), Model(*[RuntimeError("Event loop is closed")] * 99, "a")
    assert do(asks(model.call()), run).text == "a"
    assert run.meter.usage.calls == 100


@BOTH
def test_a_server_error_is_for_the_caller_that_looks_for_its_cause_and_the_clients_tries_count(do):
    for error, more, tries in (
        (refusal(500), {}, 4),
        (refusal(500), {"retries_server_errors": False}, 1),
        (refusal(429), {"retries_server_errors": False}, 4),
        (refusal(500), {"own_tries": 2}, 2),
        (refusal(500), {"first_error": refusal(500)}, 3),
    ):
        model = Model(*[error] * 9)
        with pytest.raises(openai.APIStatusError):
            do(asks(model.call(**more)), Run(retry=AT_ONCE))
        assert len(model.options) == tries, more


async def test_gathered_coroutines_run_to_their_end_though_one_is_cancelled():
    ended = []

    async def cancelled():
        raise asyncio.CancelledError

    async def slow():
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append("slow")

    with pytest.raises(asyncio.CancelledError):
        await agather([cancelled(), slow()])
    assert ended == ["slow"]


async def test_a_function_of_the_user_runs_in_the_callers_thread_or_beside_its_loop():
    async def double():
        return 2 * 21

    async def later():
        return asyncio.sleep(0, "awaited")

    def compute(function):
        return driven(asks(Compute(function)), Run())

    assert await asyncio.to_thread(lambda: compute(threading.current_thread) is threading.current_thread())
    assert [compute(double), await asyncio.to_thread(compute, double)] == [42, 42]
    assert compute(threading.current_thread) is not threading.current_thread()  # this thread runs a loop
    assert await adrive(asks(Compute(double)), Run(), {}) == 42
    assert await adrive(asks(Compute(lambda: double())), Run(), {}) == 42
    assert (await adrive(asks(Compute(threading.current_thread)), Run(), {})).name == "rageval"


@BOTH
def test_a_result_is_shared_only_among_equal_configurable_values(do):
    run, results = Run(), {}
    drives = drive if do is driven else lambda *a: asyncio.run(adrive(*a))
    configs = [{}, {"model": 1}, {"model": 2}, {"tone": 1, "model": 1}, {"model": 1, "tone": 1}, {"__own": 1}]
    for number, configurable in enumerate(configs):
        results[number] = drives(asks(Shared("key", gives(number))), run, {"configurable": configurable})
    assert results == {0: 0, 1: 1, 2: 2, 3: 3, 4: 3, 5: 0}


def test_the_calls_of_a_chain_are_charged_by_the_names_of_their_models():
    tokens = {"input_tokens": 1_000_000, "output_tokens": 500_000, "total_tokens": 1_500_000}
    for metadata, money in (({"ls_model_name": "m"}, 4.0), ({"ls_model_name": "n"}, None), ({}, None), (None, None)):
        run = Run(meter=UsageMeter(prices=PriceList.of({"m": (3.0, 2.0)})))
        with MeteredChain(run, None) as chain:
            number = uuid4()
            chain.on_chat_model_start({}, [[HumanMessage("?")]], run_id=number, metadata=metadata)
            reply = ChatGeneration(message=AIMessage("a", usage_metadata=tokens))
            chain.on_llm_end(LLMResult(generations=[[reply]]), run_id=number)
        usage = run.meter.usage
        assert (usage.calls, usage.input_tokens, usage.output_tokens, usage.money) == (1, 10**6, 500_000, money)
    run = Run()
    with MeteredChain(run, None) as chain:
        for prompts, reply in ((["abcd", "ef"], "ghijk"), (["a" * 8], "b" * 8)):
            number = uuid4()
            chain.on_llm_start({}, prompts, run_id=number)
            chain.on_llm_end(LLMResult(generations=[[Generation(text=reply)]]), run_id=number)
    assert (run.meter.usage.calls, run.meter.unreported) == (2, 11 // 4 + 16 // 4)
