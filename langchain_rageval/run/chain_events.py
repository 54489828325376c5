"""ChainEvents: base class of the callback handlers that collect what a chain did.

LangChain reports the start and the end of each chain, retriever and tool. The handler passes them to `RunTrees`, which
collects the Documents of each tree of runs; subclasses decide what happens at the root of a tree.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables.config import var_child_runnable_config

from langchain_rageval.run.run_trees import RootRun, RunTrees, RunType

_Handler = TypeVar("_Handler", bound=Callable[..., Any])
_Skip = Callable[[RunTrees, dict[str, Any]], bool]


class RunLabels(NamedTuple):
    """Tags and metadata of a run, from its config."""

    tags: list[str] | None
    metadata: dict[str, Any] | None


def _guarded(skip: _Skip) -> Callable[[_Handler], _Handler]:
    """Decorate an event handler: its errors do not reach the chain, and it is not called if `skip` returns True."""

    def decorate(handler: _Handler) -> _Handler:
        @wraps(handler)
        def guarded(self: ChainEvents, *args: Any, **kwargs: Any) -> None:
            try:
                if not skip(self._trees, kwargs):
                    handler(self, *args, **kwargs)
            except Exception as error:
                with suppress(Exception):
                    self._log_event_error(error)

        return cast(_Handler, guarded)

    return decorate


def _never_skip(trees: RunTrees, event: dict[str, Any]) -> bool:
    """Return False, so that error events are always handled, even in trees of runs that are not sampled."""
    return False


class ChainEvents(BaseCallbackHandler):
    """Callback handler that collects the runs of chains, retrievers and tools in trees of runs."""

    run_inline = True  # in async chains: a thread switch costs more than the handler, and loses the order of events

    @property
    @abstractmethod
    def _trees(self) -> RunTrees:
        """Trees of the open runs."""

    @abstractmethod
    def _begin_tree(self, run_type: RunType, run_id: UUID, name: str | None, inputs: Any, labels: RunLabels) -> None:
        """Start a tree with a run whose parent is unknown: a whole chain, or a retriever that was called directly."""

    @abstractmethod
    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Handle the end of a sampled tree; not `is_complete` if it raised, was cancelled or was abandoned."""

    @abstractmethod
    def _log_event_error(self, error: Exception) -> None:
        """Report that an event could not be handled."""

    @property
    def ignore_llm(self) -> bool:
        """True, so that LangChain sends no events of models: they add nothing to the chain's outputs."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """True, so that LangChain sends no events of models: they add nothing to the chain's outputs."""
        return True

    @property
    def ignore_retry(self) -> bool:
        """True, so that LangChain sends no retry events: retries do not affect the sample."""
        return True

    @property
    def ignore_custom_event(self) -> bool:
        """True, so that LangChain sends no custom events: custom events do not affect the sample."""
        return True

    @_guarded(RunTrees.skip_start)
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add the run of a step to its tree of runs, or start a new tree."""
        self._start("chain", run_id, parent_run_id, kwargs.get("name"), inputs, RunLabels(tags, metadata))

    @_guarded(RunTrees.skip_end)
    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **kwargs: Any) -> None:
        """End the run of a step, or a tree of runs."""
        root = self._trees.end(run_id, outputs, kwargs.get("inputs"))
        if root is not None:
            streamed = "inputs" in kwargs
            is_complete = outputs is not None and not (streamed and root.open_steps)
            self._end_tree(root, kwargs["inputs"] if streamed else root.inputs, outputs, is_complete=is_complete)

    @_guarded(_never_skip)
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the run of a step that failed, or a tree of runs."""
        self._end_failed(run_id, error, kwargs.get("inputs"))

    @_guarded(RunTrees.skip_start)
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add a retriever run to its tree, or start a new tree."""
        self._start("retriever", run_id, parent_run_id, kwargs.get("name"), query, RunLabels(tags, metadata))

    @_guarded(RunTrees.skip_end)
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """Record the retrieved documents."""
        root = self._trees.end(run_id, documents)
        if root is not None:
            self._end_tree(root, root.inputs, documents, is_complete=True)

    @_guarded(_never_skip)
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End a retriever run that failed, without documents."""
        self._end_failed(run_id, error)

    @_guarded(RunTrees.skip_start)
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add a tool run to its tree."""
        name = (serialized or {}).get("name")
        self._trees.start_step(run_id, parent_run_id, "tool", name, inputs or input_str)

    @_guarded(RunTrees.skip_end)
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the documents that the tool returned, if any."""
        self._trees.end(run_id, output)

    @_guarded(_never_skip)
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End a tool run that failed, without documents."""
        self._trees.end(run_id, None, error=error)

    def _start(
        self, run_type: RunType, run_id: UUID, parent_id: UUID | None, name: str | None, inputs: Any, labels: RunLabels
    ) -> None:
        trees = self._trees
        parent_id = parent_id or _enclosing_run_id()
        if not trees.start_step(run_id, parent_id, run_type, name, inputs) and not trees.is_open(run_id):
            self._begin_tree(run_type, run_id, name, inputs, labels)

    def _end_failed(self, run_id: UUID, error: BaseException, inputs: Any = None) -> None:
        root = self._trees.end(run_id, None, inputs, error)
        if root is not None:
            self._end_tree(root, root.inputs, None, is_complete=False)


def _enclosing_run_id() -> UUID | None:
    """Return the id of the run around this one, from the context.

    LangChain passes no parent id if a function of a chain calls another chain that has its own callbacks.
    """
    config = var_child_runnable_config.get()
    return getattr(config.get("callbacks"), "parent_run_id", None) if config else None
