"""Traced: a Runnable that shows in traces when somebody listens, and costs next to nothing when nobody does."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig, RunnableSerializable
from langchain_core.runnables.config import ensure_config, get_callback_manager_for_config

from langchain_rageval.run.run import Run

Input = TypeVar("Input")
Output = TypeVar("Output")


class Traced(RunnableSerializable[Input, Output]):
    """What steps, metrics and suites have in common as Runnables.

    LangChain's own signature asks for a `run_manager` beside the config; its code does without, hence the two ignores.
    """

    def invoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Do the work through the judge's sync methods."""
        config = ensure_config(config)
        if kwargs or has_callbacks(config):
            return self._call_with_config(self._do, input, config, **kwargs)  # type: ignore[arg-type]
        return self._do(input, config)

    async def ainvoke(self, input: Input, config: RunnableConfig | None = None, **kwargs: Any) -> Output:
        """Do the work through the judge's async methods, on the caller's loop."""
        config = ensure_config(config)
        if kwargs or has_callbacks(config):
            return await self._acall_with_config(self._ado, input, config, **kwargs)  # type: ignore[arg-type]
        return await self._ado(input, config)

    def invoke_child(self, input: Input, config: RunnableConfig) -> Output:
        """As `invoke`, in the `_do` that was given this config: to whom nobody listened, nobody listens now."""
        return self._do(input, config) if config.get("callbacks") is None else self.invoke(input, config)

    async def ainvoke_child(self, input: Input, config: RunnableConfig) -> Output:
        """As `ainvoke`, in the `_ado` that was given this config."""
        return await (self._ado(input, config) if config.get("callbacks") is None else self.ainvoke(input, config))

    @abstractmethod
    def _do(self, input: Input, config: RunnableConfig) -> Output:
        """The work; `config` carries the callbacks of its children, None when nobody listens."""

    @abstractmethod
    async def _ado(self, input: Input, config: RunnableConfig) -> Output:
        """The same on the caller's loop."""


def has_callbacks(config: RunnableConfig) -> bool:
    """Whether there is a callback handler: of the config, of the context around it, or LangChain's own tracing.

    In a rehearsal nobody listens: it is no run.
    """
    return Run.of(config).fake_reply is None and bool(get_callback_manager_for_config(config).handlers)
