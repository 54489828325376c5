"""Single-flight: concurrent callers of one key share one execution and its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


@dataclass(eq=False)
class InFlightCall:
    """Execution of a function that is under way or done; callers with the same key share it.

    Attributes:
        waiters: number of callers that wait for the result.
        done: True once there is a result or an error.
        completion: future on which later callers wait; created when the first of them arrives.
        task: the asyncio task that executes the function; None if a thread executes it.
        value: result of the execution; None if it failed.
        error: error of the execution.
    """

    waiters: int = 0
    done: bool = False
    completion: Future[None] | None = None
    task: asyncio.Task[None] | None = None
    value: Any = None
    error: BaseException | None = None

    @property
    def result(self) -> Any:
        """Result of the execution; raises the error if the execution failed."""
        if self.error is not None:
            raise self.error
        return self.value


class SingleFlight:
    """Executes a function once per key; concurrent callers with the same key share the result.

    Callers may be in threads and on event loops. A result is reused as long as a `SingleFlight` object that took part
    in the call exists. If the function raises an error, all waiting callers receive it; the next caller executes the
    function again.

    Args:
        parent: object whose calls this object shares; None for a separate table of calls.

    Attributes:
        calls: the calls by key, as weak references.
        retained: the calls that this object took part in.
    """

    def __init__(self, parent: SingleFlight | None = None) -> None:
        self.calls: WeakValueDictionary[Hashable, InFlightCall] = parent.calls if parent else WeakValueDictionary()
        self._lock: threading.Lock = parent._lock if parent else threading.Lock()
        self.retained: list[InFlightCall] = []

    def do(self, key: Hashable, function: Callable[[], T]) -> T:
        """Execute a function in this thread and return its result, or wait for a running call with the same key."""
        call, is_first = self._join(key)
        try:
            if is_first:
                try:
                    self._complete(key, call, function())
                except BaseException as error:
                    self._complete(key, call, error=error)
                    raise
            elif completion := self._completion(call):
                completion.result()
            result: T = call.result
            return result
        finally:
            self._leave(key, call)

    async def ado(self, key: Hashable, function: Callable[[], Awaitable[T]]) -> T:
        """Execute an async function and return its result, or wait for a running call with the same key.

        The function runs in a separate task, so that cancelling one caller does not cancel the call for the others.
        """
        call, is_first = self._join(key)
        if is_first:
            call.task = asyncio.create_task(self._aexecute(key, call, function))
        try:
            if call.task is not None and call.task.get_loop() is asyncio.get_running_loop():
                await asyncio.shield(call.task)
            elif completion := self._completion(call):
                await asyncio.shield(asyncio.wrap_future(completion))
        finally:
            self._leave(key, call)
        result: T = call.result
        return result

    async def _aexecute(self, key: Hashable, call: InFlightCall, function: Callable[[], Awaitable[Any]]) -> None:
        """Store the outcome in the call.

        Errors are not raised: asyncio would log those that no caller waits for, and a SystemExit would end the loop.
        """
        try:
            self._complete(key, call, await function())
        except BaseException as error:
            self._complete(key, call, error=error)
            if isinstance(error, asyncio.CancelledError):
                raise

    def _join(self, key: Hashable) -> tuple[InFlightCall, bool]:
        """Return the call of a key, and True if the caller is the first one and has to execute the function."""
        with self._lock:
            call = self.calls.get(key)
            is_first = call is None
            if call is None:
                call = self.calls[key] = InFlightCall()
            call.waiters += 1
            self.retained.append(call)
            return call, is_first

    def _completion(self, call: InFlightCall) -> Future[None] | None:
        """Return a future that ends with the call, usable from any thread; None if the call is done."""
        with self._lock:
            if call.completion is None and not call.done:
                call.completion = Future()
            return None if call.done else call.completion

    def _leave(self, key: Hashable, call: InFlightCall) -> None:
        """Record that a caller no longer waits for a call.

        A task without waiters is cancelled, and later callers of its key start a new call.
        """
        with self._lock:
            call.waiters -= 1
            if call.waiters or call.task is None or call.done:
                return
            if self.calls.get(key) is call:
                del self.calls[key]
        call.task.get_loop().call_soon_threadsafe(call.task.cancel)

    def _complete(
        self, key: Hashable, call: InFlightCall, result: Any = None, error: BaseException | None = None
    ) -> None:
        with self._lock:
            call.value, call.error, call.done = result, error, True
            if error is not None and self.calls.get(key) is call:
                del self.calls[key]
            completion = call.completion
        if completion is not None:
            completion.set_result(None)
