"""Drivers run operations (generators that yield requests): `drive` in this thread, `adrive` on the event loop.

`drive` calls the sync methods of the models, and `adrive` calls the async methods. The package never runs a user's
async client on a separate event loop: clients share connections that belong to the user's loop.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rageval.run.batch.recorder import Recording, Unanswered
from langchain_rageval.run.billing import MeteredChain, MeteredTry
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.embedding import MAX_WAIT, EmbedBatch, Vector
from langchain_rageval.run.requests import (
    Call,
    Compute,
    Count,
    Embed,
    Gather,
    Invoke,
    InvokeChild,
    Locked,
    ModelRequest,
    Operation,
    Pause,
    Rate,
    Request,
    SendOnce,
    Shared,
    ValidReply,
)
from langchain_rageval.run.retry import is_server_error, is_stale_connection
from langchain_rageval.run.run import Run, ainvoke_child, invoke_child, without_run
from langchain_rageval.run.turns import ModelTurn, gates_of

T = TypeVar("T")


def drive(operation: Operation[T], run: Run, config: RunnableConfig) -> T:
    """Run an operation (a generator that yields requests) in this thread and return its result."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = operation.send(value) if error is None else operation.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            error = None  # its traceback holds this frame
        try:
            value = _reply_to(request, run, config)
        except BaseException as caught:
            error = caught


def _reply_to(request: Request, run: Run, config: RunnableConfig) -> Any:
    match request:
        case Shared(key, operation):
            return run.single_flight.do((key, configurable_choices(config)), partial(drive, operation, run, config))
        case SendOnce(once):
            return _send_once(once, run, config)
        case Gather(operations):
            return _gather(operations, run, config)
        case Embed(embeddings, texts):
            return _embed(embeddings, texts, run, config)
        case InvokeChild(runnable, value):
            return invoke_child(runnable, value, _add_configurable(request.configurable, config))
        case Compute(function):
            return None if run.fake_reply else _compute(function, run)
        case Count() | ValidReply():
            return _record(request, run)
        case Pause(seconds):
            return time.sleep(seconds)
        case Locked(gate, operation):
            with gate.slot():
                return drive(operation, run, config)
    return drive(_tries(request, run), run, config)


def _record(event: Count | ValidReply, run: Run) -> None:
    if isinstance(event, Count):
        run.meter.count(event.event)
    else:
        run.governor.record_try(event.endpoint, None, is_valid=True)


def _gather(operations: Sequence[Operation[Any]], run: Run, config: RunnableConfig) -> list[Any]:
    if run.governor.limiter.idle >= len(operations) > 1 and run.recording is None:
        return run.threads.gather([partial(drive, operation, run, config) for operation in operations])
    replies, unanswered = [], None
    for operation in operations:  # a comprehension's closure would hold config and run once more per call under way
        try:
            replies.append(drive(operation, run, config))
        except Unanswered as error:  # the others belong to the same wave
            unanswered = error
    if unanswered is not None:
        raise unanswered
    return replies


def _send_once(request: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    with _turn(request, run) as turn, run.governor.limiter.slot() as slot:
        run.check_running()
        run.governor.check_endpoint(_endpoint_of(request))
        match request:
            case Call() if run.recording is not None:
                return _replay(request, run.recording, run, config, turn)
            case Call():
                if request.rate_limiter and not run.fake_reply:
                    request.rate_limiter.acquire()
                with MeteredTry(run, slot) as metered:
                    reply = run.fake_reply(request) if run.fake_reply else _invoke(request, run, config, turn)
                    return metered.message_of(reply, request)
            case Invoke(chain, chain_input):
                with MeteredChain(run, slot) as chain_meter:
                    if run.fake_reply:
                        return chain_meter.rehearse(run.fake_reply(request))
                    chain_config = chain_meter.config_of(config)
                    return run.call_with_timeout(partial(chain.invoke, chain_input, chain_config), chain, turn)
            case _ if run.fake_reply:
                return run.fake_reply(request)
            case EmbedBatch(embeddings, texts):
                return run.call_with_timeout(partial(embeddings.embed_documents, list(texts)), embeddings, turn)
            case Rate(cross_encoder, pairs):
                return run.call_with_timeout(partial(cross_encoder.score, list(pairs)), cross_encoder, turn)


def _replay(call: Call, recording: Recording, run: Run, config: RunnableConfig, turn: ModelTurn) -> Any:
    """Return the reply that a batch gave to a call; raise Unanswered if the call waits for the next wave."""
    copy = replace(call, model=recording.recorder.model_of(call.model))
    with MeteredTry(run, None, in_budget=True) as metered, recording.attempt(call.draw, call.rate_limiter) as attempt:
        try:
            reply = _invoke(copy, run, config, turn)
        finally:
            metered.is_charged = attempt.is_charged
        return metered.message_of(reply, copy)


def _replay_vectors(
    embeddings: Embeddings, texts: Sequence[str], recording: Recording, run: Run, config: RunnableConfig
) -> list[Vector]:
    """Return the vectors that a batch gave to texts; each text is one request."""
    copy, distinct = recording.recorder.model_of(embeddings), list(dict.fromkeys(texts))

    def embed(text: str) -> Operation[Vector]:
        with recording.attempt() as attempt:
            (vector,) = yield from _tries(EmbedBatch(copy, [text]), run)
        run.meter.add(embedded=attempt.is_charged)
        return np.array(vector, dtype=np.float64)

    vectors = dict(zip(distinct, _gather([embed(text) for text in distinct], run, config), strict=True))
    return [vectors[text] for text in texts]


def _invoke(call: Call, run: Run, config: RunnableConfig, turn: ModelTurn) -> Any:
    options, config = _options(call, run), without_run(config)
    if call.client_enforces_timeout:
        with run.timeout_of_client(call.model):
            return call.model.invoke(call.messages, config, **options)
    return run.call_with_timeout(partial(call.model.invoke, call.messages, config, **options), call.model, turn)


def _turn(request: ModelRequest, run: Run) -> ModelTurn:
    """Return the turn of a request: at one time, one call to a model that runs in this process."""
    if run.fake_reply:
        return ModelTurn()
    return ModelTurn(request.gates if isinstance(request, Call) else gates_of(_endpoint_of(request)))


def _embed(embeddings: Embeddings, texts: Sequence[str], run: Run, config: RunnableConfig) -> list[Vector]:
    if run.recording is not None and run.recording.recorder.records(embeddings):
        return _replay_vectors(embeddings, texts, run.recording, run, config)
    queue = run.embedding_queues.queue_for(embeddings)

    def start_worker() -> None:
        run.threads.submit(lambda: drive(queue.send_batches(), run, config))

    vectors, needs_worker = queue.add(texts, partial(_charge_texts, run))
    try:
        if needs_worker:
            start_worker()
        if wait(vectors, MAX_WAIT).not_done and queue.add_worker_if_late(texts):
            start_worker()
        return [vector.result() for vector in vectors]
    finally:
        run.embedding_queues.leave(queue)


def _charge_texts(run: Run, number: int) -> None:
    run.governor.spend(Cost(embeddings=number), partial(run.meter.add, embedded=number))


def _compute(function: Callable[[], Any], run: Run) -> Any:
    async def awaited(result: Awaitable[Any]) -> Any:
        return await result

    def call() -> Any:
        result = function()
        return asyncio.run(awaited(result)) if inspect.isawaitable(result) else result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return call()
    return run.threads.submit(call).result()  # this thread's loop, such as a notebook's, allows no second one


async def adrive(operation: Operation[T], run: Run, config: RunnableConfig) -> T:
    """Run an operation (a generator that yields requests) on the running event loop and return its result."""
    value: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = operation.send(value) if error is None else operation.throw(error)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            error = None
        try:
            value = await _areply_to(request, run, config)
        except BaseException as caught:
            error = caught


async def _areply_to(request: Request, run: Run, config: RunnableConfig) -> Any:
    match request:
        case Shared(key, operation):
            shared_key = key, configurable_choices(config)
            return await run.single_flight.ado(shared_key, partial(adrive, operation, run, config))
        case SendOnce(once):
            return await _asend_once(once, run, config)
        case Gather(operations):
            return await agather(adrive(operation, run, config) for operation in operations)
        case Embed(embeddings, texts):
            return await _aembed(embeddings, texts, run, config)
        case InvokeChild(runnable, value):
            return await ainvoke_child(runnable, value, _add_configurable(request.configurable, config))
        case Compute(function):
            return await _acompute(function, run)
        case Count() | ValidReply():
            return _record(request, run)
        case Pause(seconds):
            return await asyncio.sleep(seconds)
        case Locked(gate, operation):
            async with gate.slot():
                return await adrive(operation, run, config)
    return await adrive(_tries(request, run), run, config)


async def _asend_once(request: ModelRequest, run: Run, config: RunnableConfig) -> Any:
    async with _turn(request, run) as turn, run.governor.limiter.slot() as slot:
        run.check_running()
        run.governor.check_endpoint(_endpoint_of(request))
        match request:
            case Call():
                if request.rate_limiter:
                    await request.rate_limiter.aacquire()
                with MeteredTry(run, slot) as metered:
                    return metered.message_of(await _ainvoke(request, run, config, turn), request)
            case Invoke(chain, chain_input):
                with MeteredChain(run, slot) as chain_meter:
                    return await _ainvoke_with_timeout(run, chain, chain_input, chain_meter.config_of(config))
            case EmbedBatch(embeddings, texts) if type(embeddings).aembed_documents is Embeddings.aembed_documents:
                return await run.acall_with_timeout(partial(embeddings.embed_documents, list(texts)), embeddings, turn)
            case EmbedBatch(embeddings, texts):
                return await run.await_with_timeout(embeddings.aembed_documents(list(texts)), embeddings)
            case Rate(cross_encoder, pairs):  # has no async methods
                return await run.acall_with_timeout(partial(cross_encoder.score, list(pairs)), cross_encoder, turn)


async def _ainvoke(call: Call, run: Run, config: RunnableConfig, turn: ModelTurn) -> Any:
    options, config = _options(call, run), without_run(config)
    if call.sync_only:  # the event loop's default executor has only a handful of threads
        invoke = partial(call.model.invoke, call.messages, config, **options)
        return await run.acall_with_timeout(invoke, call.model, turn)
    with run.timeout_of_client(call.model) if call.client_enforces_timeout else nullcontext():
        return await _ainvoke_with_timeout(run, call.model, call.messages, config, **options)


async def _ainvoke_with_timeout(
    run: Run, runnable: Runnable[Any, Any], value: Any, config: RunnableConfig, **options: Any
) -> Any:
    try:
        return await run.await_with_timeout(runnable.ainvoke(value, config, **options), runnable)
    except AttributeError as error:
        # langchain-core 1.7 takes an error that is not an Exception for a result, and raises an AttributeError about it
        if error.name == "generations" and isinstance(error.obj, BaseException):
            raise error.obj from None
        raise


async def _acompute(function: Callable[[], Any], run: Run) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function()
    result = await asyncio.wrap_future(run.threads.submit(function))
    return await result if inspect.isawaitable(result) else result


async def _aembed(embeddings: Embeddings, texts: Sequence[str], run: Run, config: RunnableConfig) -> list[Vector]:
    queue = run.embedding_queues.queue_for(embeddings)

    async def send_batches() -> None:
        with suppress(SystemExit, KeyboardInterrupt):  # the callers get them; raised in a task, they would end the loop
            await adrive(queue.send_batches(), run, config)

    def start_worker() -> None:
        queue.keep_task(asyncio.create_task(send_batches()))

    def start_worker_if_late() -> None:
        if queue.add_worker_if_late(texts):
            start_worker()

    vectors, needs_worker = queue.add(texts, partial(_charge_texts, run))
    timer = asyncio.get_running_loop().call_later(MAX_WAIT, start_worker_if_late)
    try:
        if needs_worker:
            start_worker()
        return await agather(map(asyncio.wrap_future, vectors))
    finally:
        timer.cancel()
        run.embedding_queues.leave(queue)


async def agather(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """Await coroutines concurrently and return their results, in order.

    If a coroutine fails, the other coroutines still run to their end; the first error is then raised. `asyncio.gather`,
    in contrast, may leave coroutines running.
    """
    awaitables = list(awaitables)
    if len(awaitables) == 1:
        return [await awaitables[0]]
    outcomes = await asyncio.gather(*map(_outcome_of, awaitables), return_exceptions=True)
    results: list[Any] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):  # a CancelledError
            raise outcome
        result, error = outcome
        if error is not None:
            raise error
        results.append(result)
    return results


async def astream_results(awaitables: Iterable[Awaitable[T]]) -> AsyncGenerator[T]:
    """Await coroutines concurrently and yield their results in order, each as soon as all earlier results are there.

    After an error, or if the generator is closed early, the remaining coroutines are cancelled.
    """
    tasks = [asyncio.ensure_future(_outcome_of(awaitable)) for awaitable in awaitables]
    try:
        for task in tasks:
            result, error = await task
            if error is not None:
                raise error
            yield cast(T, result)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _outcome_of(awaitable: Awaitable[T]) -> tuple[T, None] | tuple[None, BaseException]:
    """Return the result or the error; a SystemExit that a task raises would end the event loop."""
    try:
        return await awaitable, None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error


def configurable_choices(config: RunnableConfig) -> str:
    """Return the values of configurable fields (LangChain's `configurable`) in a config as text.

    Calls share a result only if these values are equal, because other values may select another model.
    """
    choices = config.get("configurable", {})
    return repr(sorted((name, repr(choice)) for name, choice in choices.items() if not name.startswith("__")))


def _add_configurable(values: Mapping[str, Any], config: RunnableConfig) -> RunnableConfig:
    """Return the config with more configurable values; those that it has already are kept."""
    return {**config, "configurable": {**values, **config.get("configurable", {})}} if values else config


def _tries(request: ModelRequest, run: Run) -> Operation[Any]:
    """Send a request, and retry it after a transport error."""
    tries, endpoint = 0, _endpoint_of(request)
    error = request.first_error if isinstance(request, Call) else None
    while True:
        if error is None:
            try:
                reply = yield SendOnce(request)
            except Exception as caught:
                error = caught
            else:
                run.governor.record_try(endpoint, None)
                return reply
        tries += 1
        if not is_stale_connection(error):  # says nothing about the server
            run.governor.record_try(endpoint, error)
        is_for_caller = isinstance(request, Call) and not request.retries_server_errors and is_server_error(error)
        seconds = run.retry.wait(error, tries, request.own_tries if isinstance(request, Call) else 1)
        if seconds is None or not run.governor.allows_retry(endpoint):
            seconds = run.governor.pause(endpoint, error)
        if seconds is None or is_for_caller:
            raise error
        yield Pause(seconds)
        error = None


def _endpoint_of(request: ModelRequest) -> object:
    match request:
        case Call(model=model, endpoint=endpoint):
            return model if endpoint is None else endpoint
        case EmbedBatch(embeddings=embeddings):
            return embeddings
        case Rate(cross_encoder=cross_encoder):
            return cross_encoder
        case Invoke(chain=chain):
            return chain


def _options(call: Call, run: Run) -> dict[str, Any]:
    if call.timeout_option is None or run.timeout is None:
        return call.options
    return {**call.options, call.timeout_option: run.timeout}
