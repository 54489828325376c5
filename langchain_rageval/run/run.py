"""Run: the state that the metrics of one evaluation share, carried in LangChain's config."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import patch_config

from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.batch.recorder import Recording
from langchain_rageval.run.budget import BudgetCeiling
from langchain_rageval.run.circuit_breaker import CircuitBreaker
from langchain_rageval.run.embedding import EmbeddingQueues
from langchain_rageval.run.model_label import model_label
from langchain_rageval.run.retry import RetryPolicy, is_timeout
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.run.threads import DaemonThreads, shared_threads
from langchain_rageval.run.turns import ModelTurn
from langchain_rageval.run.usage_meter import UsageMeter

T = TypeVar("T")

RUN_KEY = "__rageval_run"  # survives with_retry, with_fallbacks, RunnableParallel, assign and lambdas


@dataclass(frozen=True)
class Run:
    """State shared by the metrics of one evaluation, or of a single `invoke` outside of an evaluation.

    Args:
        limiter: limits the model calls under way; each call holds one slot.
        retry: policy for transport errors; by default none, so that a bare `invoke` relies on the client's own retries.
        breaker: counts consecutive failures in transit per model.
        timeout: seconds for one model call; None for the client's own limit.
        meter: counts calls, tokens, seconds and embedded texts.
        single_flight: makes equal questions share one call.
        embedding_queues: the texts that wait to be embedded.
        fake_reply: function that answers sync requests instead of the models, for a dry run.
        ceiling: refuses the calls that would exceed the budget; None if there is no budget.
        stopped: set when the run ends early; no further model call is then sent.
        recording: answers calls from the replies of batches, and records the others; None without a batch API.
    """

    limiter: AdaptiveLimiter = field(default_factory=AdaptiveLimiter)
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=1))
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    timeout: float | None = None
    meter: UsageMeter = field(default_factory=UsageMeter)
    single_flight: SingleFlight = field(default_factory=SingleFlight)
    embedding_queues: EmbeddingQueues = field(default_factory=EmbeddingQueues)
    fake_reply: Callable[[Any], Any] | None = None
    ceiling: BudgetCeiling | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    recording: Recording | None = None

    @property
    def threads(self) -> DaemonThreads:
        """Threads for sync calls that may have to be abandoned, shared by all runs of this process."""
        return shared_threads()

    def stop(self) -> None:
        """Let the calls under way end, and send no further ones."""
        self.stopped.set()

    def charge_call(self) -> AbstractContextManager[None]:
        """Return a context manager that holds room in the budget for one model call."""
        return nullcontext() if self.ceiling is None else self.ceiling.charge_call()

    def check_running(self) -> None:
        """Raise CancelledError if the run was stopped."""
        if self.stopped.is_set():
            raise CancelledError("the run was stopped")

    @classmethod
    def of(cls, config: RunnableConfig) -> Run:
        """Return the run that a LangChain config contains, or a new run."""
        run = config.get("configurable", {}).get(RUN_KEY)
        return run if isinstance(run, Run) else cls()

    def into(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return a copy of a LangChain config that contains this run."""
        return patch_config(config, configurable={RUN_KEY: self})

    def into_complete(self, config: RunnableConfig) -> RunnableConfig:
        """Return a complete config with this run in it. Unlike `into`, fills in no missing keys from the context."""
        return {**config, "configurable": {**config.get("configurable", {}), RUN_KEY: self}}

    def for_sample(self) -> Run:
        """Return a run for one sample: shared results of the sample are kept as long as the returned run exists."""
        return replace(self, single_flight=SingleFlight(self.single_flight))

    def metered(self) -> Run:
        """Return a copy of this run with a separate usage meter, whose counts are also added to this run's meter."""
        return replace(self, meter=UsageMeter(self.meter))

    def call_with_timeout(self, function: Callable[[], T], model: Any = None, turn: ModelTurn | None = None) -> T:
        """Call a function within the timeout; a slower call is abandoned in its thread.

        Args:
            function: calls the model.
            model: the model, named in the error; None if it has no name.
            turn: turn of the call, held until an abandoned call ends; None if calls are not limited.

        Raises:
            TimeoutError: if the function did not return in time.
        """
        if self.timeout is None:
            return function()
        future = self.threads.submit(function)
        try:
            return future.result(self.timeout)
        except TimeoutError:
            self._abandon(future, model)
        finally:
            if turn and not future.done():
                turn.hold_for(future)

    async def acall_with_timeout(
        self, function: Callable[[], T], model: Any = None, turn: ModelTurn | None = None
    ) -> T:
        """Like `call_with_timeout`, in a thread, without blocking the event loop."""
        future = self.threads.submit(function)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.timeout)
        except TimeoutError:
            self._abandon(future, model)
        finally:
            if turn and not future.done():
                turn.hold_for(future)

    async def await_with_timeout(self, awaitable: Awaitable[T], model: Any) -> T:
        """Await a call to a model within the timeout; a slower call is cancelled.

        Raises:
            TimeoutError: if the call did not end in time.
        """
        try:
            async with asyncio.timeout(self.timeout) as scope:
                return await awaitable
        except TimeoutError:
            if scope.expired():
                raise self._timeout_error(model) from None
            raise

    @contextmanager
    def timeout_of_client(self, model: Any) -> Iterator[None]:
        """Replace the timeout error of a client that enforces the timeout by one that names model and seconds."""
        try:
            yield
        except Exception as error:
            if self.timeout is None or isinstance(error, TimeoutError) or not is_timeout(error):
                raise
            raise self._timeout_error(model) from None

    def _timeout_error(self, model: Any) -> TimeoutError:
        """Return the error of a call that took longer than the timeout; it names the model and the seconds."""
        return TimeoutError(f"{model_label(model)} did not answer within {self.timeout:g} s")

    def _abandon(self, future: Future[Any], model: Any) -> NoReturn:
        """Raise a TimeoutError and count the abandoned call; a TimeoutError of the call itself is raised unchanged."""
        if future.done() and not future.cancelled():
            future.result()
        self.meter.add(abandoned=1)
        raise self._timeout_error(model) from None
