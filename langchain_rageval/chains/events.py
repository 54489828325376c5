"""Events of a chain: the handler that collects its runs; and the answer, contexts and error of one call."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import BaseMessage
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs, var_child_runnable_config

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.chains.prompt_search import prompt_of
from langchain_rageval.chains.run_trees import RootRun, RunTrees, RunType
from langchain_rageval.chains.sample_reader import CONTEXT_NOTES, read_chain_run
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError

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
    """Callback handler that collects the runs of chains, retrievers, tools and models in trees of runs."""

    run_inline = True  # in async chains: a thread switch costs more than the handler, and loses the order of events

    @property
    @abstractmethod
    def _trees(self) -> RunTrees:
        """Trees of the open runs."""

    @abstractmethod
    def _begin_tree(self, run_type: RunType, run_id: UUID, name: str | None, inputs: Any, labels: RunLabels) -> None:
        """Start a tree with a run whose parent is unknown: a whole chain, or a part of one that was called directly."""

    @abstractmethod
    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Handle the end of a sampled tree; not `is_complete` if it raised, was cancelled or was abandoned."""

    @abstractmethod
    def _log_event_error(self, error: Exception) -> None:
        """Report that an event could not be handled."""

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

    @_guarded(RunTrees.skip_start)
    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the messages that a chat model is given."""
        prompt = prompt_of(message for batch in messages for message in batch)
        labels = RunLabels(kwargs.get("tags"), kwargs.get("metadata"))
        self._start("model", run_id, parent_run_id, None, prompt, labels)

    @_guarded(RunTrees.skip_start)
    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Record the texts that a language model is given."""
        self._start(
            "model",
            run_id,
            parent_run_id,
            None,
            prompt_of(prompts),
            RunLabels(kwargs.get("tags"), kwargs.get("metadata")),
        )

    @_guarded(RunTrees.skip_end)
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Record the reply of a model."""
        self._trees.end(run_id, response)

    @_guarded(_never_skip)
    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """End the call of a model that failed, without a reply."""
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


ERROR = "error"
"""Name in the metadata of a sample: the error of the chain that should have answered its question."""


_OWN = ("answer", "contexts", "context_ids", "retrieved", "retrieved_ids")
_REMEDY = "return a text, a message, Documents, or a mapping with an answer"


@dataclass(frozen=True)
class ChainAnswer:
    """Answer of a chain to one question, with its contexts or its error.

    Attributes:
        answer: text of the answer; None if the chain gave none, as a retriever does.
        contexts: texts of the chunks that the model read, in their order; None if no retrieval was observed.
        context_ids: ids of the chunks; None unless all have one.
        retrieved: texts of the chunks that retrievers returned; None if they are the contexts.
        retrieved_ids: ids of these chunks; None unless all have one.
        notes: what the metadata of a sample says about contexts, by the names in `CONTEXT_NOTES`.
        error: class and message of the error of a failed call; None if it succeeded.
    """

    answer: str | None = None
    contexts: list[str] | None = None
    context_ids: list[str] | None = None
    retrieved: list[str] | None = None
    retrieved_ids: list[str] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def into(self, sample: Sample) -> Sample:
        """Return a copy of a sample with this answer and nothing of an earlier chain."""
        metadata = {name: value for name, value in sample.metadata.items() if name not in (ERROR, *CONTEXT_NOTES)}
        metadata |= {**self.notes, **({} if self.error is None else {ERROR: self.error})}
        own = {name: getattr(self, name) for name in _OWN}
        return sample.model_copy(update={**own, "metadata": metadata})

    def to_json(self) -> str:
        """Return the answer as JSON, for a journal."""
        return json.dumps(asdict(self), ensure_ascii=False)


class ChainCollector(ChainEvents):
    """Callback handler of one call of a chain. Every run that it observes belongs to this call."""

    def __init__(self) -> None:
        self._root = RootRun(uuid4(), "", None, {}, is_new_conversation=True)
        self._open = RunTrees(lambda _: None)
        self._open.start_tree(self._root.run_id, self._root)

    def config(self, config: RunnableConfig | None, conversation_keys: set[str]) -> RunnableConfig:
        """Return a config of the call with this handler.

        Args:
            config: config of the user; its callbacks and values are kept.
            conversation_keys: names of the configurable values that identify a conversation; each that the user does
                not set gets a new value, so that no question sees the answers to others.
        """
        base = ensure_config(config)
        conversation = dict.fromkeys(conversation_keys - base.get("configurable", {}).keys(), str(self._root.run_id))
        return merge_configs(base, {"callbacks": [self], "configurable": conversation})

    def answer(self, question: str, output: Any, chain: Any) -> ChainAnswer:
        """Return the answer of the chain.

        Args:
            question: the question.
            output: output of the chain, or the exception that it raised.
            chain: the chain, whose secrets are removed from the text of an error.
        """
        error = output if isinstance(output, Exception) else _type_error(output)
        try:
            sample = self._read(question, None if error else output)
        except (SampleError, TypeError, RecursionError) as unreadable:
            sample, error = self._read(question, None), self._without_id(unreadable)
        if error is None and sample.answer is None and isinstance(output, Mapping) and "__interrupt__" in output:
            error = SampleError("the graph waits for a person: ask one that answers without an interrupt", "answer")
        elif error is None and sample.answer is None and sample.contexts is None:
            keys = f" in {sorted(map(str, output))}" if isinstance(output, Mapping) else ""
            error = SampleError(f"the chain returned no answer{keys}: {_REMEDY}", "answer")
        message = None if error is None else f"{type(error).__name__}: {redact_message(error, chain)}"
        own = {name: getattr(sample, name) for name in _OWN} | ({"answer": None} if error else {})
        notes = {name: sample.metadata[name] for name in CONTEXT_NOTES if name in sample.metadata}
        return ChainAnswer(**own, notes=notes, error=message)

    def _read(self, question: str, output: Any) -> Sample:
        return read_chain_run(self._root, {"question": question}, output).resolve()

    def _without_id(self, error: Exception) -> Exception:
        """Return an error about the output of the chain without the id of this call, which is unknown to the user."""
        problem, _, rest = str(error).partition(f"sample {str(self._root.run_id)!r}: ")
        return error if problem or not rest else SampleError(f"{rest.partition(': correct it')[0]}: {_REMEDY}")

    def _begin_tree(self, run_type: RunType, run_id: UUID, name: str | None, inputs: Any, labels: RunLabels) -> None:
        """Add a run without a known parent, such as the whole chain."""
        self._open.start_step(run_id, self._root.run_id, run_type, name, inputs)

    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Do nothing: the root is the call, which ends when `answer` is called."""

    def _log_event_error(self, error: Exception) -> None:
        """Ignore an error in reading an event of the chain; the contexts in that event are then missing."""

    @property
    def _trees(self) -> RunTrees:
        return self._open


def _type_error(output: Any) -> TypeError | None:
    """Return an error if the output of a chain can hold no answer."""
    if output is None or isinstance(output, bool | int | float | bytes):
        what = "None" if output is None else type(output).__name__
        return TypeError(f"the chain returned {what}: {_REMEDY}")
    return None
