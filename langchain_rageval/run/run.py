"""Run: the state that the metrics of one evaluation share, with its options; carried in LangChain's config."""

from __future__ import annotations

import asyncio
import threading
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, ClassVar, TypedDict, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config, patch_config

from langchain_rageval.errors import ConfigError, did_you_mean
from langchain_rageval.run.batch.recorder import Recording
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.embedding import EmbeddingQueues
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.retry import RetryPolicy, is_timeout
from langchain_rageval.run.single_flight import SingleFlight
from langchain_rageval.run.threads import DaemonThreads, shared_threads
from langchain_rageval.run.turns import ModelTurn
from langchain_rageval.run.usage import Price, PriceList, UsageMeter, model_label

T = TypeVar("T")

RUN_KEY = "__rageval_run"  # survives with_retry, with_fallbacks, RunnableParallel, assign and lambdas


@dataclass(frozen=True)
class Run:
    """State shared by the metrics of one evaluation, or of a single `invoke` outside of an evaluation.

    Args:
        governor: limits concurrency and cost, and ends the calls to endpoints that never answer.
        retry: policy for transport errors. By default the run makes no retries, so that a bare `invoke` relies on the
            client's own retries.
        timeout: seconds for one model call; None for the client's own limit.
        meter: counts calls, tokens, seconds and embedded texts.
        single_flight: lets equal questions share one call.
        embedding_queues: queues of the texts to embed.
        fake_reply: function that answers sync requests in place of the models, for a dry run.
        stopped: event that is set when the run ends early; no further model call is sent then.
        recording: answers calls from the replies of batches, and collects unanswered requests; None without a batch
            API.
    """

    governor: Governor = field(default_factory=Governor)
    retry: RetryPolicy = field(default_factory=lambda: RetryPolicy(attempts=1))
    timeout: float | None = None
    meter: UsageMeter = field(default_factory=UsageMeter)
    single_flight: SingleFlight = field(default_factory=SingleFlight)
    embedding_queues: EmbeddingQueues = field(default_factory=EmbeddingQueues)
    fake_reply: Callable[[Any], Any] | None = None
    stopped: threading.Event = field(default_factory=threading.Event)
    recording: Recording | None = None

    @property
    def threads(self) -> DaemonThreads:
        """Threads for sync calls, which can be abandoned after a timeout; shared by all runs of this process."""
        return shared_threads()

    def stop(self) -> None:
        """End the run early: send no further calls, and let the calls under way end."""
        self.stopped.set()

    def check_running(self) -> None:
        """Raise CancelledError if the run was stopped."""
        if self.stopped.is_set():
            raise CancelledError("the run was stopped")

    @classmethod
    def of(cls, config: RunnableConfig) -> Run:
        """Return the run that a LangChain config contains, or a new run if it contains none."""
        run = config.get("configurable", {}).get(RUN_KEY)
        return run if isinstance(run, Run) else cls()

    def into(self, config: RunnableConfig | None) -> RunnableConfig:
        """Return a copy of a LangChain config that contains this run."""
        return patch_config(config, configurable={RUN_KEY: self})

    def into_complete(self, config: RunnableConfig) -> RunnableConfig:
        """Return a copy of a LangChain config that contains this run, without other changes.

        Unlike `into`, the method adds neither LangChain's defaults nor values of the config in a context variable.
        """
        return {**config, "configurable": {**config.get("configurable", {}), RUN_KEY: self}}

    def for_sample(self) -> Run:
        """Return a copy of this run for the metrics of one sample.

        Equal calls of these metrics are made once. Their results are kept in memory as long as the copy exists.
        """
        return replace(self, single_flight=SingleFlight(self.single_flight))

    def metered(self) -> Run:
        """Return a copy of this run with a separate usage meter, whose counts are also added to this run's meter."""
        return replace(self, meter=UsageMeter(self.meter))

    def call_with_timeout(self, function: Callable[[], T], model: Any = None, turn: ModelTurn | None = None) -> T:
        """Call a function within the timeout. A call that takes longer is abandoned in its thread.

        Args:
            function: function that calls the model.
            model: the model, for the error message; None if it has no name.
            turn: lock of a model in this process, held until an abandoned call ends; None if calls are not limited.

        Raises:
            TimeoutError: if the function did not return in time.
        """
        if self.timeout is None:
            return function()
        future = self.threads.submit(function)
        try:
            return future.result(self.timeout)
        except TimeoutError:
            return self._late_result(future, model)
        finally:
            if turn and not future.done():
                turn.hold_for(future)

    async def acall_with_timeout(
        self, function: Callable[[], T], model: Any = None, turn: ModelTurn | None = None
    ) -> T:
        """Call a function in a thread within the timeout, without blocking the event loop.

        A call that takes longer goes on in its thread, and its result is ignored. `model` is named in the error. `turn`
        is the lock of a model in this process, held until such a call ends; None if calls are not limited.

        Raises:
            TimeoutError: if the function did not return in time.
        """
        future = self.threads.submit(function)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self.timeout)
        except TimeoutError:
            return self._late_result(future, model)
        finally:
            if turn and not future.done():
                turn.hold_for(future)

    async def await_with_timeout(self, awaitable: Awaitable[T], model: Any) -> T:
        """Await a model call within the timeout. A call that takes longer is cancelled.

        Raises:
            TimeoutError: if the call did not end in time.
        """
        try:
            async with asyncio.timeout(self.timeout) as scope:
                return await awaitable
        except Exception:  # or the error that a client makes of being cancelled
            if scope.expired():
                raise self._timeout_error(model) from None
            raise

    @contextmanager
    def timeout_of_client(self, model: Any) -> Iterator[None]:
        """Return a context in which a timeout error of the model's client becomes a TimeoutError.

        The TimeoutError names the model and the timeout of the run in seconds. If the run has no timeout, the client's
        error is raised unchanged.
        """
        try:
            yield
        except Exception as error:
            if self.timeout is None or isinstance(error, TimeoutError) or not is_timeout(error):
                raise
            raise self._timeout_error(model) from None

    def _timeout_error(self, model: Any) -> TimeoutError:
        """Return the error of a call that took longer than the timeout; it names the model and the seconds."""
        return TimeoutError(f"{model_label(model)} did not answer within {self.timeout:g} s")

    def _late_result(self, future: Future[T], model: Any) -> T:
        """Raise a TimeoutError and count the abandoned call; if the call has just ended, return or raise its outcome.

        A TimeoutError of the call itself is such an outcome.
        """
        if future.done() and not future.cancelled():
            return future.result()
        self.meter.add(abandoned=1)
        raise self._timeout_error(model) from None


class CallOptions(TypedDict, total=False):
    """Options of the model calls of a run.

    Attributes:
        max_concurrency: Maximum number of model calls at a time, 16 by default. The limit is lowered when a chat
            endpoint rejects a third of the calls (429), and raised again while calls succeed. If fewer are rejected,
            the limit stays, and only the rejected call waits for Retry-After. If calls are rejected in spite of the
            lower limit, they are sent at the rate that the endpoint states, or at the rate at which it answers. A call
            that takes ten times as long as usual no longer counts towards the limit.
        timeout: Seconds for one model call, including the client's own retries; 60 by default. None uses the client's
            timeout. The wait for a chat model's `rate_limiter` counts as time of the call only if the model has a cache
            or is inside another Runnable, as after `with_retry`.
        retry: Retry policy for transport errors; by default ten attempts with waits of at most a minute.
        price: Mapping from model names to prices. A price is a tuple: per million input tokens, per million output
            tokens, and optionally per million cached input tokens, as in `{"gpt-4o-mini": (0.15, 0.6, 0.075)}`. A
            single tuple is the price of all models. Any currency. `usage.money` is then counted; it is None if a model
            has no price or reports no tokens. None, the default, counts no money.
    """

    max_concurrency: int
    timeout: float | None
    retry: RetryPolicy | None
    price: Mapping[str, Price] | Price | None


class RunOptions(CallOptions, total=False):
    """Options of a run that stores its results and has a budget.

    Attributes:
        journal: Path of an SQLite file that stores each result when it is finished. After a crash or Ctrl-C, the same
            call with the same file pays only for missing results; failures are tried again. Several processes and
            several configurations may share one file. None, the default, stores nothing.
        budget: Limit on the cost of the run; None, the default, sets no limit. Work is started only if its expected
            cost still fits. A score that costs more than expected fails with `failure.error == "BudgetExceeded"` when
            the budget is spent. Only calls that are already under way may exceed the bound on tokens.
        progress: True to show the progress on stderr.
    """

    journal: str | Path | Journal | None
    budget: Budget | None
    progress: bool


CALL_DEFAULTS: CallOptions = {"max_concurrency": 16, "timeout": 60.0, "retry": None, "price": None}
RUN_DEFAULTS: RunOptions = {**CALL_DEFAULTS, "journal": None, "budget": None, "progress": True}

Options = TypeVar("Options", bound=Mapping[str, object])


def fill_defaults(function: Callable[..., Any], options: Options, defaults: Options) -> Options:
    """Return the keyword options of a call, with default values for missing options.

    Args:
        function: the function or class that was called; the error message names it and lists its parameters.
        options: the keyword arguments of the call.
        defaults: every option with its default value.

    Raises:
        TypeError: if an option does not exist.
    """
    for name in (name for name in options if name not in defaults):
        parameters = signature(function).parameters.values()
        named = [one.name for one in parameters if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)]
        known = list(dict.fromkeys([*named, *defaults]))
        hint = did_you_mean(name, known) or "."
        expected = f"{hint} Its options: {', '.join(known)}"
        raise TypeError(f"{function.__name__}() got an unexpected option {name!r}{expected}")
    return cast(Options, {**defaults, **options})


def check_options(options: Mapping[str, object]) -> None:
    """Raise ConfigError if an option of a run or of a chain call is invalid. Missing options are not checked."""
    most, timeout, journal = options.get("max_concurrency", 1), options.get("timeout"), options.get("journal")
    version = options.get("version")  # of a user's chain
    PriceList.of(options.get("price"))
    is_number = timeout is None or (isinstance(timeout, int | float) and timeout > 0)
    expected = {
        "max_concurrency": (isinstance(most, int) and most is not True and most > 0, "a whole number of at least 1"),
        "timeout": (is_number, "a number of seconds above 0, or None"),
        "retry": (isinstance(options.get("retry"), RetryPolicy | None), "a RetryPolicy(attempts=...)"),
        "journal": (isinstance(journal, str | Path | Journal | None), "the path of a file"),
        "budget": (isinstance(options.get("budget"), Budget | None), "a Budget(calls=..., tokens=...)"),
        "version": (isinstance(version, str | None) and version != "", "a text such as '1.4'"),
    }
    for name, (is_valid, what) in expected.items():
        if not is_valid:
            raise ConfigError(f"{name} must be {what}, got {options[name]!r}")
    if journal is None and (version is not None or options.get("resume") or options.get("retry_failed")):
        raise ConfigError("version, resume and retry_failed need a journal: name its file")


def build_run(options: CallOptions, budget: Budget | None = None) -> Run:
    """Return a new run with these options; missing options have their default values.

    Args:
        options: the options of the model calls.
        budget: bounds on the cost of the run; None for no bounds.

    Raises:
        ConfigError: if an option has an invalid value.
    """
    check_options(options)
    complete: CallOptions = {**CALL_DEFAULTS, **options}
    meter = UsageMeter(prices=PriceList.of(complete["price"]))
    governor, retry = Governor(budget, meter, complete["max_concurrency"]), complete["retry"] or RetryPolicy()
    return Run(governor=governor, retry=retry, timeout=complete["timeout"], meter=meter)


Input = TypeVar("Input")
Output = TypeVar("Output")


class Traced(RunnableSerializable[Input, Output]):
    """Base class of steps, metrics and suites.

    Each call is a run in LangChain's traces. The two comments `type: ignore` in the code concern LangChain's method
    `_call_with_config`: its type requires a function with a parameter `run_manager`, which LangChain does not need.

    Attributes:
        in_traces: False for a wrapper: only the wrapped Runnable appears in traces.
    """

    in_traces: ClassVar[bool] = True

    def invoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Run this Runnable in this thread, through the models' sync methods."""
        config = ensure_config(config)
        if self.in_traces and (kwargs or has_callbacks(config)):
            return self._call_with_config(self._do, input, config, **kwargs)  # type: ignore[arg-type]
        return self._do(input, config)

    async def ainvoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Run this Runnable on the caller's event loop, through the models' async methods."""
        config = ensure_config(config)
        if self.in_traces and (kwargs or has_callbacks(config)):
            return await self._acall_with_config(self._ado, input, config, **kwargs)  # type: ignore[arg-type]
        return await self._ado(input, config)

    @abstractmethod
    def _do(self, input: Input, config: RunnableConfig) -> Output:
        """Compute the output of the Runnable.

        `config["callbacks"]` is for child runs, and None if no handler is attached.
        """

    @abstractmethod
    async def _ado(self, input: Input, config: RunnableConfig) -> Output:
        """Compute the output of the Runnable on the caller's event loop."""


def without_run(config: RunnableConfig) -> RunnableConfig:
    """Return a copy of a config without the `Run` that it contains.

    A model that accepts any configurable option would otherwise take the run for an option.
    """
    choices = {name: choice for name, choice in config.get("configurable", {}).items() if name != RUN_KEY}
    return {**config, "configurable": choices}


def invoke_child(runnable: Runnable[Input, Output], input: Input, config: RunnableConfig) -> Output:
    """Invoke a Runnable with the config of its parent; skip tracing if the config has no callbacks."""
    if isinstance(runnable, Traced) and config.get("callbacks") is None:
        return cast(Output, runnable._do(input, config))
    return runnable.invoke(input, config)


async def ainvoke_child(runnable: Runnable[Input, Output], input: Input, config: RunnableConfig) -> Output:
    """Invoke a Runnable with the config of its parent, through its async method; trace only if there are callbacks."""
    if isinstance(runnable, Traced) and config.get("callbacks") is None:
        return cast(Output, await runnable._ado(input, config))
    return await runnable.ainvoke(input, config)


def has_callbacks(config: RunnableConfig) -> bool:
    """Return True if a callback handler is set in a LangChain config, by a context manager or by LangChain's tracing.

    Such a context manager is `get_usage_metadata_callback`. A dry run is never traced; the result is then False.
    """
    return Run.of(config).fake_reply is None and bool(get_callback_manager_for_config(config).handlers)
