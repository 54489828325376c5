"""Traced: base class of Runnables that appear in traces, but skip tracing if no callback handler is attached."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config

from langchain_rageval.run.run import Run

Input = TypeVar("Input")
Output = TypeVar("Output")


class Traced(RunnableSerializable[Input, Output]):
    """Base class of steps, metrics and suites.

    LangChain's signature of `_call_with_config` requires a `run_manager` parameter that its code does not, hence the
    two type ignores.
    """

    def invoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Run this Runnable in this thread, through the models' sync methods."""
        config = ensure_config(config)
        if kwargs or has_callbacks(config):
            return self._call_with_config(self._do, input, config, **kwargs)  # type: ignore[arg-type]
        return self._do(input, config)

    async def ainvoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Run this Runnable on the caller's event loop, through the models' async methods."""
        config = ensure_config(config)
        if kwargs or has_callbacks(config):
            return await self._acall_with_config(self._ado, input, config, **kwargs)  # type: ignore[arg-type]
        return await self._ado(input, config)

    def invoke_child(self, input: Input, config: RunnableConfig) -> Output:
        """Like `invoke`, within a parent's `_do`: skips tracing if the parent's config has no callbacks."""
        return self._do(input, config) if config.get("callbacks") is None else self.invoke(input, config)

    async def ainvoke_child(self, input: Input, config: RunnableConfig) -> Output:
        """Like `ainvoke`, within a parent's `_ado`: skips tracing if the parent's config has no callbacks."""
        return await (self._ado(input, config) if config.get("callbacks") is None else self.ainvoke(input, config))

    @abstractmethod
    def _do(self, input: Input, config: RunnableConfig) -> Output:
        """Compute the output of the Runnable.

        `config["callbacks"]` is for child runs, and None if no handler is attached.
        """

    @abstractmethod
    async def _ado(self, input: Input, config: RunnableConfig) -> Output:
        """Compute the output of the Runnable on the caller's event loop."""


def has_callbacks(config: RunnableConfig) -> bool:
    """Return True if a callback handler is attached, by the config, its context or LangChain's tracing.

    Return False for a dry run, which is never traced.
    """
    return Run.of(config).fake_reply is None and bool(get_callback_manager_for_config(config).handlers)
