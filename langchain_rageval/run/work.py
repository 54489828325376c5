"""The work of a step, written once and without I/O.

A step is a generator: it yields what it needs and receives what came of it. Two short drivers run every step there
is: `drive` in the caller's thread through the model's sync methods, `adrive` on the caller's loop through its async
ones. No loop of ours ever runs a user's async client: clients share connections that belong to the user's loop.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Generator, Hashable, Iterable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rageval.errors import ConfigError
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.embedding import PATIENCE, Batch, Vector
from langchain_rageval.run.retry import is_rate_limited
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import tokens_in

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Ask a model; the reply is its message. Lost calls are tried again as the run allows.

    Args:
        model: anything from messages to a message or a text.
        messages: what is sent.
        options: keyword arguments of the call.
        timeout_option: name of the keyword under which this client takes a timeout in seconds, if it takes one.
        keeps_time: whether the client ends the call by that timeout, without retries of its own; else the run does.
        sync_only: whether the model has no async methods of its own.
        lost: what the transport did to the first try, made by the caller.
        limiter: asked for leave before each try; the time that takes is not the model's.
        schema: title of the schema that the reply is to follow.
    """

    model: Runnable[Any, Any]
    messages: Sequence[BaseMessage]
    options: dict[str, Any] = field(default_factory=dict)
    timeout_option: str | None = None
    keeps_time: bool = False
    sync_only: bool = False
    lost: Exception | None = None
    rate_limiter: BaseRateLimiter | None = None
    schema: str = ""


@dataclass(frozen=True, slots=True)
class Embed:
    """Embed texts; the reply is a list of vectors, in order. Texts of other samples travel along."""

    embeddings: Embeddings
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate:
    """Have a cross-encoder score pairs of texts; the reply is a list of numbers, in order."""

    cross_encoder: BaseCrossEncoder
    pairs: Sequence[tuple[str, str]]


_SHOWN_TO_THE_MODEL = ("tools", "functions")  # options that take tokens, unlike what only guides the decoding

ModelRequest = Call | Batch | Rate
"""What goes to a model, and is tried again when it gets lost on the way."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Do several works that do not depend on each other; the reply is the list of their results, in order.

    On a loop they are done side by side. In threads they are while slots of a pool lie idle, as they do for the last
    samples of a run; else one after the other, for other samples fill the slots, and nobody has to be woken.
    """

    works: Sequence[Operation[Any]]


@dataclass(frozen=True, slots=True)
class Shared:
    """Do a work unless the run is doing, or has just done, one of the same key; the reply is its result."""

    key: Hashable
    work: Operation[Any]


@dataclass(frozen=True, slots=True)
class Locked:
    """Do a work while nobody else holds the gate; the reply is its result."""

    gate: AdaptiveLimiter
    work: Operation[Any]


@dataclass(frozen=True, slots=True)
class SendOnce:
    """Send a call once; if it is lost, that is the caller's matter."""

    call: ModelRequest


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, holding no slot."""

    seconds: float


Request = ModelRequest | Embed | Gather | Shared | Locked | SendOnce | Pause
Operation = Generator[Request, Any, T]


def drive(work: Operation[T], run: Run, config: RunnableConfig) -> T:
    """Do a work in this thread."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            need = work.send(value) if error is None else work.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            error = None  # its traceback holds this frame
        try:
            value = _supply(need, run, config)
        except BaseException as caught:
            error = caught


def _supply(need: Request, run: Run, config: RunnableConfig) -> Any:
    match need:
        case Shared(key, part):
            return run.share((key, chosen(config)), partial(drive, part, run, config))
        case Call() | Batch() | Rate():
            return _answered(need, run, config)
        case SendOnce(call):
            return _tried(call, run, config)
        case Gather(works):
            return _together(works, run, config)
        case Embed(embeddings, texts):
            return _embedded(embeddings, texts, run, config)
        case Pause(seconds):
            return time.sleep(seconds)
        case Locked(gate, part):
            with gate:
                return drive(part, run, config)


def _together(works: Sequence[Operation[Any]], run: Run, config: RunnableConfig) -> list[Any]:
    if run.limiter.idle >= len(works) > 1:
        return run.threads.gather([partial(drive, part, run, config) for part in works])
    replies = []
    for part in works:  # no comprehension: its closure would hold config and run once more for each call under way
        replies.append(drive(part, run, config))
    return replies


def _answered(call: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    """The reply to a call, which as a rule comes at the first try."""
    lost = call.lost if isinstance(call, Call) else None
    if lost is None:
        try:
            reply = _tried(call, run, config)
        except Exception as error:
            lost = error
        else:
            run.breaker.record(_model_of(call), None)
            return reply
    return drive(_with_retries(call, lost, run), run, config)


async def adrive(work: Operation[T], run: Run, config: RunnableConfig) -> T:
    """Do a work on this loop."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            need = work.send(value) if error is None else work.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            error = None
        try:
            value = await _asupply(need, run, config)
        except BaseException as caught:
            error = caught


async def _asupply(need: Request, run: Run, config: RunnableConfig) -> Any:
    match need:
        case Shared(key, part):
            return await run.ashare((key, chosen(config)), partial(adrive, part, run, config))
        case Call() | Batch() | Rate():
            return await _aanswered(need, run, config)
        case SendOnce(call):
            return await _atried(call, run, config)
        case Gather(works):
            return await agather(adrive(part, run, config) for part in works)
        case Embed(embeddings, texts):
            return await _aembedded(embeddings, texts, run, config)
        case Pause(seconds):
            return await asyncio.sleep(seconds)
        case Locked(gate, part):
            async with gate:
                return await adrive(part, run, config)


async def _aanswered(call: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    lost = call.lost if isinstance(call, Call) else None
    if lost is None:
        try:
            reply = await _atried(call, run, config)
        except Exception as error:
            lost = error
        else:
            run.breaker.record(_model_of(call), None)
            return reply
    return await adrive(_with_retries(call, lost, run), run, config)


async def agather(jobs: Iterable[Awaitable[T]]) -> list[T]:
    """Do jobs side by side and wait for all, so that none is left running; raises what the first failing one raised."""
    jobs = list(jobs)
    if len(jobs) == 1:
        return [await jobs[0]]
    results = await asyncio.gather(*jobs, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results  # type: ignore[return-value]


def chosen(config: RunnableConfig) -> str:
    """What the config chooses of configurable models: with another choice, the same judge is another model."""
    choices = config.get("configurable", {})
    return repr(sorted((name, repr(choice)) for name, choice in choices.items() if not name.startswith("__")))


def _tried(call: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    with run.limiter as since:
        match call:
            case Call():
                if call.rate_limiter and not run.fake_reply:
                    call.rate_limiter.acquire()
                with _Bill(call, run, since) as bill:
                    return bill.read(run.fake_reply(call) if run.fake_reply else _sent(call, run, config))
            case _ if run.fake_reply:
                return run.fake_reply(call)
            case Batch(embeddings, texts):
                return run.bounded(partial(embeddings.embed_documents, list(texts)))
            case Rate(cross_encoder, pairs):
                return run.bounded(partial(cross_encoder.score, list(pairs)))


async def _atried(call: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    async with run.limiter as since:
        match call:
            case Call():
                if call.rate_limiter:
                    await call.rate_limiter.aacquire()
                with _Bill(call, run, since) as bill:
                    return bill.read(await _asked(call, run, config))
            case Batch(embeddings, texts) if type(embeddings).aembed_documents is Embeddings.aembed_documents:
                return await run.abounded(partial(embeddings.embed_documents, list(texts)))
            case Batch(embeddings, texts):
                async with asyncio.timeout(run.timeout):
                    return await embeddings.aembed_documents(list(texts))
            case Rate(cross_encoder, pairs):  # has no async methods
                return await run.abounded(partial(cross_encoder.score, list(pairs)))


def _sent(call: Call, run: Run, config: RunnableConfig) -> Any:
    options = _options(call, run)
    if call.keeps_time:
        return call.model.invoke(call.messages, config, **options)
    return run.bounded(partial(call.model.invoke, call.messages, config, **options))


async def _asked(call: Call, run: Run, config: RunnableConfig) -> Any:
    options = _options(call, run)
    if call.sync_only:  # the loop's own executor has a handful of threads
        return await run.abounded(partial(call.model.invoke, call.messages, config, **options))
    async with asyncio.timeout(run.timeout):
        return await call.model.ainvoke(call.messages, config, **options)


def _embedded(embeddings: Embeddings, texts: Sequence[str], run: Run, config: RunnableConfig) -> list[Vector]:
    batches = run.batches_for(embeddings)

    def start() -> None:
        run.threads.submit(lambda: drive(batches.work(), run, config))

    vectors, fresh, due = batches.enlist(texts)
    try:
        run.meter.add(embedded=fresh)
        if due:
            start()
        if wait(vectors, PATIENCE).not_done and batches.late(texts):
            start()
        return [vector.result() for vector in vectors]
    finally:
        run.leave(batches)


async def _aembedded(embeddings: Embeddings, texts: Sequence[str], run: Run, config: RunnableConfig) -> list[Vector]:
    batches = run.batches_for(embeddings)

    def start() -> None:
        batches.keep(asyncio.create_task(adrive(batches.work(), run, config)))

    def start_late() -> None:
        if batches.late(texts):
            start()

    vectors, fresh, due = batches.enlist(texts)
    hurry = asyncio.get_running_loop().call_later(PATIENCE, start_late)
    try:
        run.meter.add(embedded=fresh)
        if due:
            start()
        return await agather(map(asyncio.wrap_future, vectors))
    finally:
        hurry.cancel()
        run.leave(batches)


def _with_retries(call: ModelRequest, lost: Exception, run: Run) -> Operation[Any]:
    """What follows the first try, which was lost."""
    tried, model = 0, _model_of(call)
    while True:
        tried += 1
        run.breaker.record(model, lost)
        wait = run.retry.wait(lost, tried)
        if wait is None or run.breaker.lasting(model):
            raise lost
        yield Pause(wait)
        try:
            reply = yield SendOnce(call)
        except Exception as error:
            lost = error
        else:
            run.breaker.record(model, None)
            return reply


def _model_of(call: ModelRequest) -> object:
    match call:
        case Call(model=model):
            return model
        case Batch(embeddings=embeddings):
            return embeddings
        case Rate(cross_encoder=cross_encoder):
            return cross_encoder


def _options(call: Call, run: Run) -> dict[str, Any]:
    if call.timeout_option is None or run.timeout is None:
        return call.options
    return {**call.options, call.timeout_option: run.timeout}


class _Bill:
    """Charges a try to the run's meter, also when it fails, and tells the slots whether the endpoint has room for more.

    Embeddings have no say: theirs is as a rule another quota, and they go out one batch at a time as it is. Nobody else
    waits out a Retry-After: one call turned away by chance would stop a run that is otherwise well served.
    """

    __slots__ = ("_call", "_cost", "_run", "_since", "_started")

    def __init__(self, call: Call, run: Run, since: int) -> None:
        self._call = call
        self._run = run
        self._since = since
        self._cost: dict[str, Any] = {"calls": 1}

    def __enter__(self) -> _Bill:
        self._started = time.perf_counter()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._run.meter.add(seconds=time.perf_counter() - self._started, **self._cost)
        if error is None:
            self._run.limiter.record_success(self._since)
        elif isinstance(error, Exception) and is_rate_limited(error):
            self._run.limiter.record_rejection(self._since)

    def read(self, reply: Any) -> BaseMessage:
        """The reply's message, which says what it cost."""
        message = _message(reply)
        tokens = getattr(message, "usage_metadata", None) or {}
        if tokens.get("total_cost") == 0:  # LangChain's mark of a reply from the model's cache
            self._cost["calls"] = 0
        elif tokens:
            self._cost.update(input_tokens=tokens.get("input_tokens"), output_tokens=tokens.get("output_tokens"))
        else:
            self._cost["unreported"] = tokens_in(*shown_to(self._call), *_written(message))
        return message


def _message(reply: Any) -> BaseMessage:
    """What a model gave as a message; an empty one for None, as some clients give for a function that was not called.

    Raises:
        ConfigError: if it is neither a message nor a text.
    """
    if isinstance(reply, BaseMessage):
        return reply
    if reply is None or isinstance(reply, str):
        return AIMessage(reply or "")
    raise ConfigError(
        f"a judge gives a message or a text, this one gave {type(reply).__name__}: hand over the model itself, without "
        "a parser or with_structured_output"
    )


def shown_to(call: Call) -> list[str]:
    """All the text that the model of a call reads."""
    told = [json.dumps(call.options[name], default=str) for name in _SHOWN_TO_THE_MODEL if name in call.options]
    return [*(message.text for message in call.messages), *told]


def _written(message: BaseMessage) -> list[str]:
    """All the text of a reply: words, and the arguments of functions."""
    calls = [call for name in ("tool_calls", "invalid_tool_calls") for call in getattr(message, name, [])]
    return [message.text, *(json.dumps(call["args"], ensure_ascii=False) for call in calls)]
