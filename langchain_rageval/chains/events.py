"""Collect the runs of a chain with a callback handler, and return the answer, contexts and error of a call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeVar, cast
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.outputs import LLMResult
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs, var_child_runnable_config

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.chains.prompt_search import prompt_of
from langchain_rageval.chains.run_trees import RootRun, RunTrees, RunType
from langchain_rageval.chains.sample_reader import read_chain_run
from langchain_rageval.data.messages import CONTEXT_NOTES
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def _guarded(skip: Callable[[RunTrees, dict[str, Any]], bool]) -> Callable[[_Handler], _Handler]:
    """Decorate an event handler: its errors do not reach the chain, and it is not called if `skip` returns True."""

    def decorate(handler: _Handler) -> _Handler:
        @wraps(handler)
        def guarded(self: ChainEvents, *args: Any, **kwargs: Any) -> None:
            try:
                if not skip(self._open, kwargs):
                    handler(self, *args, **kwargs)
            except Exception as error:
                with suppress(Exception):
                    self._log_event_error(error)

        return cast(_Handler, guarded)

    return decorate


class ChainEvents(BaseCallbackHandler):
    """Callback handler that collects the runs of chains, retrievers, tools and models, arranged in trees."""

    run_inline = True  # in async chains: a thread switch costs more than the handler, and loses the order of events

    ignore_retry = True  # retries do not affect the sample
    ignore_custom_event = True  # neither do the user's own events

    _open: RunTrees
    """Trees of the open runs."""

    @abstractmethod
    def _begin_tree(self, run_type: RunType, run_id: UUID, inputs: Any, event: Mapping[str, Any]) -> None:
        """Start a tree with a run whose parent is unknown: a whole chain, or a part of one that was called directly.

        Args:
            run_type: type of the run.
            run_id: id of the run.
            inputs: inputs of the run.
            event: further arguments of LangChain's event, such as `name`, `tags` and `metadata`.
        """

    @abstractmethod
    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Handle the end of a sampled tree; not `is_complete` if it raised, was cancelled or was abandoned."""

    @abstractmethod
    def _log_event_error(self, error: Exception) -> None:
        """Report that an event could not be handled."""

    @_guarded(RunTrees.skip_start)
    def on_chain_start(self, serialized: Any, inputs: Any, *, run_id: UUID, **event: Any) -> None:
        """Add the run of a step to its tree of runs, or start a new tree."""
        self._start("chain", run_id, inputs, event)

    @_guarded(RunTrees.skip_end)
    def on_chain_end(self, outputs: Any, *, run_id: UUID, **event: Any) -> None:
        """Record the end of a step, or of a whole tree of runs."""
        if (root := self._open.end(run_id, outputs, event.get("inputs"))) is not None:
            streamed = "inputs" in event
            is_complete = outputs is not None and not (streamed and root.open_steps)
            self._end_tree(root, event["inputs"] if streamed else root.inputs, outputs, is_complete=is_complete)

    @_guarded(lambda trees, event: False)  # errors are handled even in trees of runs that are not sampled
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **event: Any) -> None:
        """Record that a step, a retriever, a tool, a model or a whole tree of runs failed."""
        if (root := self._open.end(run_id, None, event.get("inputs"), error)) is not None:
            self._end_tree(root, root.inputs, None, is_complete=False)

    on_retriever_error = on_tool_error = on_llm_error = on_chain_error

    @_guarded(RunTrees.skip_start)
    def on_retriever_start(self, serialized: Any, query: str, *, run_id: UUID, **event: Any) -> None:
        """Add a retriever run to its tree, or start a new tree."""
        self._start("retriever", run_id, query, event)

    @_guarded(RunTrees.skip_end)
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **event: Any) -> None:
        """Record the retrieved documents."""
        if (root := self._open.end(run_id, documents)) is not None:
            self._end_tree(root, root.inputs, documents, is_complete=True)

    @_guarded(RunTrees.skip_start)
    def on_tool_start(self, serialized: Any, input_str: str, *, run_id: UUID, **event: Any) -> None:
        """Add a tool run to its tree."""
        name, inputs = (serialized or {}).get("name"), event.get("inputs") or input_str
        self._open.start_step(run_id, event.get("parent_run_id"), "tool", name, inputs)

    @_guarded(RunTrees.skip_end)
    def on_tool_end(self, output: Any, *, run_id: UUID, **event: Any) -> None:
        """Record the documents that a tool returned, if any."""
        self._open.end(run_id, output)

    @_guarded(RunTrees.skip_start)
    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **event: Any) -> None:
        """Record the messages that are sent to a chat model."""
        self._start("model", run_id, prompt_of(message for batch in messages for message in batch), event)

    @_guarded(RunTrees.skip_start)
    def on_llm_start(self, serialized: Any, prompts: list[str], *, run_id: UUID, **event: Any) -> None:
        """Record the texts that are sent to a language model."""
        self._start("model", run_id, prompt_of(prompts), event)

    @_guarded(RunTrees.skip_end)
    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **event: Any) -> None:
        """Record the reply of a model."""
        self._open.end(run_id, response)

    def _start(self, run_type: RunType, run_id: UUID, inputs: Any, event: Mapping[str, Any]) -> None:
        trees, parent_id = self._open, event.get("parent_run_id")
        if not parent_id and (config := var_child_runnable_config.get()):
            # LangChain passes none if a function of a chain calls another chain that has its own callbacks
            parent_id = getattr(config.get("callbacks"), "parent_run_id", None)
        is_known = trees.start_step(run_id, parent_id, run_type, event.get("name"), inputs) or trees.is_open(run_id)
        if not is_known:
            self._begin_tree(run_type, run_id, inputs, event)


ERROR = "error"
"""Name in the metadata of a sample: the error of the chain that should have answered its question."""


_OWN = ("answer", "contexts", "context_ids", "retrieved", "retrieved_ids")
_REMEDY = "return a text, a message, Documents, or a mapping with an answer"


@dataclass(frozen=True)
class ChainAnswer:
    """Answer of a chain to one question, with its contexts, or with the error of a failed call.

    Attributes:
        answer: text of the answer; None if the chain gave no answer, as a retriever does.
        contexts: texts of the chunks that the model read, in their order; None if no retrieval was observed.
        context_ids: ids of these chunks; None unless every chunk has an id.
        retrieved: texts of the chunks that retrievers returned; None if they are the same as `contexts`.
        retrieved_ids: ids of the retrieved chunks; None unless every chunk has an id.
        notes: facts about the contexts, which `into` copies to the metadata of the sample. The keys are some of
            `context_sources`, `context_spans`, `contexts_from` and `no_contexts`.
        error: class and message of the error of a failed call; None if the call succeeded.
    """

    answer: str | None = None
    contexts: list[str] | None = None
    context_ids: list[str] | None = None
    retrieved: list[str] | None = None
    retrieved_ids: list[str] | None = None
    notes: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None

    def into(self, sample: Sample) -> Sample:
        """Return a copy of a sample with this answer; answers and contexts of an earlier chain are removed."""
        metadata = {name: value for name, value in sample.metadata.items() if name not in (ERROR, *CONTEXT_NOTES)}
        metadata |= {**self.notes, **({} if self.error is None else {ERROR: self.error})}
        own = {name: getattr(self, name) for name in _OWN}
        return sample.model_copy(update={**own, "metadata": metadata})


class ChainCollector(ChainEvents):
    """Callback handler that collects the documents and the model calls of one call of a chain."""

    def __init__(self) -> None:
        self._root = RootRun(uuid4(), "", None, {}, is_new_conversation=True)
        self._open = RunTrees(lambda _: None)
        self._open.start_tree(self._root.run_id, self._root)

    def config(self, config: RunnableConfig | None, conversation_keys: set[str]) -> RunnableConfig:
        """Return a copy of the user's config with this callback handler, for one call.

        Args:
            config: config of the user. Its callbacks and values are kept.
            conversation_keys: names of the configurable values that identify a conversation. A name that the user does
                not set gets a new value, so that no question sees the answers to other questions.
        """
        base = ensure_config(config)
        conversation = dict.fromkeys(conversation_keys - base.get("configurable", {}).keys(), str(self._root.run_id))
        return merge_configs(base, {"callbacks": [self], "configurable": conversation})

    def answer(self, question: str, output: Any, chain: Any, given: Any = None) -> ChainAnswer:
        """Return the answer, contexts and error of the call, from its output and the observed runs.

        Args:
            question: the question that the chain was asked.
            output: output of the chain, or the exception that it raised.
            chain: the chain. Its secrets are removed from the text of an error.
            given: input of the chain. If the error is about a name in the input, such as a KeyError, the message of the
                error lists the names in `given`.
        """
        error = output if isinstance(output, Exception) else None
        if output is None or isinstance(output, bool | int | float | bytes):
            what = "None" if output is None else type(output).__name__
            error = TypeError(f"the chain returned {what}: {_REMEDY}")
        try:
            sample = self._read(question, None if error else output)
        except (SampleError, TypeError, RecursionError) as unreadable:
            sample, error = self._read(question, None), self._without_id(unreadable)
        if error is None and sample.answer is None and isinstance(output, Mapping) and "__interrupt__" in output:
            problem = "the graph waits for a person: pass a graph that answers without an interrupt"
            error = SampleError(problem, "answer")
        elif error is None and sample.answer is None and sample.contexts is None:
            keys = f" in {sorted(map(str, output))}" if isinstance(output, Mapping) else ""
            error = SampleError(f"the chain returned no answer{keys}: {_REMEDY}", "answer")
        message = (
            None if error is None else f"{type(error).__name__}: {redact_message(error, chain)}{_hint(error, given)}"
        )
        own = {name: getattr(sample, name) for name in _OWN} | ({"answer": None} if error else {})
        notes = {name: sample.metadata[name] for name in CONTEXT_NOTES if name in sample.metadata}
        return ChainAnswer(**own, notes=notes, error=message)

    def _read(self, question: str, output: Any) -> Sample:
        return read_chain_run(self._root, {"question": question}, output)

    def _without_id(self, error: Exception) -> Exception:
        """Return an error about the output of the chain without the id of this call, which is unknown to the user."""
        problem, _, rest = str(error).partition(f"sample {str(self._root.run_id)!r}: ")
        return error if problem or not rest else SampleError(f"{rest.partition(': correct it')[0]}: {_REMEDY}")

    def _begin_tree(self, run_type: RunType, run_id: UUID, inputs: Any, event: Mapping[str, Any]) -> None:
        """Add a run without a known parent, such as the whole chain."""
        self._open.start_step(run_id, self._root.run_id, run_type, event.get("name"), inputs)

    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Do nothing: the root is the call, which ends when `answer` is called."""

    def _log_event_error(self, error: Exception) -> None:
        """Ignore an error in reading an event of the chain; the contexts in that event are then missing."""


def _hint(error: Exception, given: Any) -> str:
    """Return what a chain was given, if an error is about names in its input; else ""."""
    if not isinstance(given, Mapping) or not isinstance(error, KeyError | TypeError | ValueError):
        return ""
    is_about_names = isinstance(error, KeyError) or any(repr(name) in str(error) for name in (*given, "dict"))
    names = ", ".join(map(str, given))
    remedy = "if it takes something else, pass a function of the question that calls it"
    return f" (the chain was given {{{names}}}: {remedy})" if is_about_names else ""
