"""ChainCollector: collects the answer, the contexts and the error of one call of a RAG chain."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID, uuid4

from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config, merge_configs

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.data.messages import CONTEXT_SOURCES as SOURCES
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.run.chain_events import ChainEvents, RunLabels
from langchain_rageval.run.run_trees import RootRun, RunTrees, RunType
from langchain_rageval.run.sample_reader import SPANS, read_sample

ERROR = "error"
"""Name in the metadata of a sample: the error of the chain that should have answered its question."""


_REMEDY = "return a text, a message, Documents, or a mapping with an answer"


@dataclass(frozen=True)
class ChainAnswer:
    """Answer of a chain to one question, with its contexts or its error.

    Attributes:
        answer: text of the answer; None if the chain gave none, as a retriever does.
        contexts: texts of the retrieved chunks in their order; None if no retrieval was observed.
        context_ids: ids of the chunks; None unless all have one.
        sources: `source` of each chunk; None if none has one.
        spans: source and offsets of each chunk in its document; None if none is known.
        error: class and message of the error of a failed call; None if it succeeded.
    """

    answer: str | None = None
    contexts: list[str] | None = None
    context_ids: list[str] | None = None
    sources: list[str | None] | None = None
    spans: list[Any] | None = None
    error: str | None = None

    def into(self, sample: Sample) -> Sample:
        """Return a copy of a sample with this answer and nothing of an earlier chain."""
        metadata = {name: value for name, value in sample.metadata.items() if name not in (ERROR, SOURCES, SPANS)}
        added = {SOURCES: self.sources, SPANS: self.spans, ERROR: self.error}
        metadata |= {name: value for name, value in added.items() if value is not None}
        update = {"answer": self.answer, "contexts": self.contexts, "context_ids": self.context_ids}
        return sample.model_copy(update={**update, "metadata": metadata})

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
        answer = None if error else sample.answer
        places = (sample.metadata.get(SOURCES), sample.metadata.get(SPANS))
        return ChainAnswer(answer, sample.contexts, sample.context_ids, *places, message)

    def _read(self, question: str, output: Any) -> Sample:
        return read_sample(self._root, {"question": question}, output)

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
