"""Run: what the metrics of one evaluation share, and how it travels with LangChain's config."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar
from weakref import WeakValueDictionary

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config

from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.embedding import Batches
from langchain_rageval.run.retry import CircuitBreaker, RetryPolicy
from langchain_rageval.run.threads import DaemonThreads
from langchain_rageval.run.usage_meter import Meter

T = TypeVar("T")

RUN_KEY = "__rageval_run"  # survives with_retry, with_fallbacks, RunnableParallel, assign and lambdas


class InFlightCall:
    """A work that somebody is doing, or whose result somebody still holds.

    Attributes:
        waiting: how many want the result.
        landed: whether there is one, or an error.
        landing: what those wait for who came before that; few flights have any.
        task: the one that flies it on a loop.
    """

    def __init__(self) -> None:
        self.waiting = 0
        self.landed = False
        self.landing: Future[None] | None = None
        self.task: asyncio.Task[None] | None = None
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def result(self) -> Any:
        """The result, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._result

    def land(self, result: Any, error: BaseException | None) -> None:
        """There it is."""
        self._result, self._error, self.landed = result, error, True


@dataclass(frozen=True)
class Run:
    """Shared by the metrics of one evaluation, or of one `invoke` when there is no evaluation around it.

    Args:
        slots: one is held during each model call.
        retry: for calls that the transport lost; a bare `invoke` leaves them to the model's own retries.
        silence: whether anybody is at the address at all.
        timeout: seconds for one model call; None waits as long as the client does.
        threads: where sync calls run that may have to be left behind.
        meter: what was paid.
        flights: works under way or kept, by key; a flight lives as long as someone in `held` keeps it.
        held: the flights of one sample, kept until its last metric ends.
        batches: texts to embed, by the id of the object that embeds them.
        stand_in: answers sync calls in the models' place, from what would be sent; for a rehearsal.
        lock: of the flights.
    """

    limiter: AdaptiveLimiter = field(default_factory=AdaptiveLimiter)
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=1))
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    timeout: float | None = None
    threads: DaemonThreads = field(default_factory=DaemonThreads)
    meter: Meter = field(default_factory=Meter)
    flights: WeakValueDictionary[Hashable, InFlightCall] = field(default_factory=WeakValueDictionary)
    held: list[InFlightCall] = field(default_factory=list)
    batches: dict[int, Batches] = field(default_factory=dict)
    fake_reply: Callable[[Any], Any] | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, config: RunnableConfig) -> Run:
        """The run that the config carries, or a new one."""
        run = config.get("configurable", {}).get(RUN_KEY)
        return run if isinstance(run, Run) else cls()

    def into(self, config: RunnableConfig | None) -> RunnableConfig:
        """The config with this run in it."""
        return patch_config(config, configurable={RUN_KEY: self})

    def within(self, config: RunnableConfig) -> RunnableConfig:
        """As `into`, for a config that is complete, as a Runnable's own work gets it."""
        return {**config, "configurable": {**config.get("configurable", {}), RUN_KEY: self}}

    def for_sample(self) -> Run:
        """The same run, keeping its own hold on the flights it takes part in."""
        return self._with(self.meter, [])

    def metered(self) -> Run:
        """The same run with a meter of its own, which also charges this one."""
        return self._with(Meter(self.meter), self.held)

    def _with(self, meter: Meter, held: list[InFlightCall]) -> Run:
        """The same but for these. `dataclasses.replace` takes many times as long, and each score needs two."""
        run = object.__new__(Run)
        vars(run).update(vars(self), meter=meter, held=held)
        return run

    def batches_for(self, embeddings: Embeddings) -> Batches:
        """Where texts wait to be embedded by an object; it is kept alive, so its id is not given out again."""
        with self.lock:
            return self.batches.setdefault(id(embeddings), Batches(embeddings))

    def leave(self, batches: Batches) -> None:
        """Wait for none of these texts any more; batches that are called back are replaced for whoever comes next."""
        if batches.leave():
            with self.lock:
                if self.batches.get(id(batches.embeddings)) is batches:
                    del self.batches[id(batches.embeddings)]

    def bounded(self, call: Callable[[], T]) -> T:
        """Make a sync call within the timeout; a call that takes longer is left behind in its thread.

        Raises:
            TimeoutError: if the model did not answer in time.
        """
        if self.timeout is None:
            return call()
        future = self.threads.submit(call)
        try:
            return future.result(self.timeout)
        except TimeoutError:
            self._leave_behind(future)

    def share(self, key: Hashable, do: Callable[[], T]) -> T:
        """Do a work, or wait for whoever is doing it; what failed is not kept."""
        flight, first = self._board(key)
        try:
            if first:
                return self._do(key, flight, do)
            if landing := self._landing(flight):
                landing.result()
            result: T = flight.result
            return result
        finally:
            self._leave(key, flight)

    async def abounded(self, call: Callable[[], T]) -> T:
        """Make a sync call in a thread, within the timeout, without holding up the loop."""
        future = self.threads.submit(call)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.timeout)
        except TimeoutError:
            self._leave_behind(future)

    def _leave_behind(self, future: Future[Any]) -> NoReturn:
        """Give up on a call; an error of its own that says the same is passed on."""
        if future.done() and not future.cancelled():
            future.result()
        self.meter.add(abandoned=1)
        raise TimeoutError(f"the model did not answer within {self.timeout:g} s") from None

    async def ashare(self, key: Hashable, do: Callable[[], Awaitable[T]]) -> T:
        """Do a work in a task of its own, so that a cancelled caller takes nobody with it, or wait for it."""
        flight, first = self._board(key)
        if first:
            flight.task = asyncio.create_task(self._fly(key, flight, do))
        try:
            if flight.task is not None and flight.task.get_loop() is asyncio.get_running_loop():
                await asyncio.shield(flight.task)
            elif landing := self._landing(flight):
                await asyncio.shield(asyncio.wrap_future(landing))
        finally:
            self._leave(key, flight)
        result: T = flight.result
        return result

    def _do(self, key: Hashable, flight: InFlightCall, do: Callable[[], T]) -> T:
        try:
            result = do()
        except BaseException as error:
            self._land(key, flight, error=error)
            raise
        self._land(key, flight, result)
        return result

    async def _fly(self, key: Hashable, flight: InFlightCall, do: Callable[[], Awaitable[Any]]) -> None:
        """Land the result, or the error, in the flight; a task that raises would complain when nobody waits for it."""
        try:
            result = await do()
        except BaseException as error:
            self._land(key, flight, error=error)
            if not isinstance(error, Exception):
                raise
        else:
            self._land(key, flight, result)

    def _board(self, key: Hashable) -> tuple[InFlightCall, bool]:
        with self.lock:
            flight = self.flights.get(key)
            first = flight is None
            if flight is None:
                flight = self.flights[key] = InFlightCall()
            flight.waiting += 1
            self.held.append(flight)
            return flight, first

    def _landing(self, flight: InFlightCall) -> Future[None] | None:
        """What to wait for, wherever it flies; None when it has landed."""
        with self.lock:
            if flight.landing is None and not flight.landed:
                flight.landing = Future()
            return None if flight.landed else flight.landing

    def _leave(self, key: Hashable, flight: InFlightCall) -> None:
        """Wait no more; a flight that nobody waits for is called back, and nobody boards it while it turns round."""
        with self.lock:
            flight.waiting -= 1
            if flight.waiting or flight.task is None or flight.landed:
                return
            if self.flights.get(key) is flight:
                del self.flights[key]
        flight.task.get_loop().call_soon_threadsafe(flight.task.cancel)

    def _land(
        self, key: Hashable, flight: InFlightCall, result: Any = None, error: BaseException | None = None
    ) -> None:
        with self.lock:
            flight.land(result, error)
            if error is not None and self.flights.get(key) is flight:
                del self.flights[key]
            landing = flight.landing
        if landing is not None:
            landing.set_result(None)
