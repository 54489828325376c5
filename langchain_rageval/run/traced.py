"""Traced: base class of Runnables that appear in traces, but skip tracing if no callback handler is attached."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config

from langchain_rageval.run.run import Run

Input = TypeVar("Input")
Output = TypeVar("Output")


class Traced(RunnableSerializable[Input, Output]):
    """Base class of steps, metrics and suites.

    LangChain's signature of `_call_with_config` requires a `run_manager` parameter that its code does not, hence the
    two type ignores.

    Attributes:
        in_traces: False for a wrapper, which has no run in traces, only the Runnable that it calls.
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


def invoke_child(runnable: Runnable[Input, Output], input: Input, config: RunnableConfig) -> Output:
    """Invoke a Runnable with the config of its parent; skip tracing if that config has no callbacks."""
    if isinstance(runnable, Traced) and config.get("callbacks") is None:
        return cast(Output, runnable._do(input, config))
    return runnable.invoke(input, config)


async def ainvoke_child(runnable: Runnable[Input, Output], input: Input, config: RunnableConfig) -> Output:
    """Like `invoke_child`, through the models' async methods."""
    if isinstance(runnable, Traced) and config.get("callbacks") is None:
        return cast(Output, await runnable._ado(input, config))
    return await runnable.ainvoke(input, config)


def has_callbacks(config: RunnableConfig) -> bool:
    """Return True if a callback handler is attached, by the config, its context or LangChain's tracing.

    Return False for a dry run, which is never traced.
    """
    return Run.of(config).fake_reply is None and bool(get_callback_manager_for_config(config).handlers)
