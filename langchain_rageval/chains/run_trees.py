"""Run trees: the unfinished runs of observed chains, with the Documents and prompts seen in each sampled tree.

A run belongs to the tree of its parent. A run with an unknown parent is a root: a whole chain, or a part of a chain
that was given the callback handler. Only a sample of the trees is recorded. The runs of all other trees share one node
(record of an open run). For each of these runs, only one dictionary entry is stored, from the run's id to this node.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import count
from typing import Any, Literal
from uuid import UUID

from langchain_core.load.serializable import Serializable
from langchain_core.runnables.config import var_child_runnable_config
from pydantic import BaseModel

from langchain_rageval.chains.prompt_search import ModelCall
from langchain_rageval.data.messages import unwrap_text, without_score

RunType = Literal["chain", "retriever", "tool", "model"]
RunRecord = dict[str, Any]
"""A run as a mapping, with the field names of LangSmith; `child_runs` holds the records of its children."""

_MESSAGES = ("messages", "chat_history", "history")  # names in the inputs of steps
_EXAMPLES = re.compile(r"example|few_?shot|demonstration|^(?:shots|demos)$", re.IGNORECASE)
_ROUTES = re.compile(r"router|routing|intent", re.IGNORECASE)
_MAX_OPEN = 100_000  # bounds memory if the ends of runs are never reported
_MAX_CANCELLED = 1_000


@dataclass(eq=False, slots=True)
class RootRun:
    """Root of a tree of runs, with everything that is recorded about the tree until the root ends.

    Attributes:
        run_id: id of the run.
        name: name of the run.
        inputs: inputs of the run.
        metadata: metadata of the run's config, with its tags.
        record: nested record of the tree; None unless the user's `extract` function reads it.
        started: time of the start on the monotonic clock, in seconds.
        retrieved: mapping from the id of each run of a retriever, or of a tool that returned Documents, to the
            Documents, in the order of the starts; the Documents are None until the run ends.
        documents: the Documents that a step last received or returned.
        seen: mapping from the identity of each Document that a step received, returned or retrieved to the Document and
            the time of its first event.
        calls: mapping from the id of each run of a model to its call.
        queries: inputs of retrievers and tools, each with the time of the event.
        examples: texts of few-shot examples in the inputs of steps, recognised by the name of the input.
        examples_by_run: mapping from the run id to the name of each retriever that seems to return no contexts, but
            few-shot examples or routes (texts by which a router selects a branch of the chain).
        dropped: pairs, one for each step that returned none of the texts and Documents that it was given or retrieved:
            a list of these texts and Documents, and the time of the event. If all chunks that were seen before a model
            call had been dropped, the model has read no chunk.
        filled: pairs, one for each call of a prompt template: the inputs of the template, and the filled prompt.
        tick: function that returns the next time on the clock of the run, which counts events.
        open_steps: number of steps, without models, that have started and not ended.
        sources: mapping from the run id of each retrieval by a tool to the name of the tool and the id of its call, as
            one text.
        messages: messages or chat history of the first step that has some in its inputs; None until then.
        thread_id: id of the conversation that the run is a turn of; None if unknown.
        awaits_thread: True until the first step starts, which may show the id of the conversation.
        is_undecided: True while it is open whether the run is sampled, because its conversation may still become known.
        awaits_previous: True until `see_previous` has read the messages that a LangGraph entrypoint saved in the
            previous turn.
        is_new_conversation: True if no earlier turn can have left Documents in the chain's state.
    """

    run_id: UUID
    name: str
    inputs: Any
    metadata: dict[str, Any]
    record: RunRecord | None = None
    started: float = field(default_factory=time.monotonic)
    retrieved: dict[UUID, list[Any] | None] = field(default_factory=dict)
    documents: list[Any] = field(default_factory=list)
    seen: dict[int, tuple[Any, int]] = field(default_factory=dict)
    calls: dict[UUID, ModelCall] = field(default_factory=dict)
    queries: list[tuple[Any, int]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)
    examples_by_run: dict[UUID, str] = field(default_factory=dict)
    dropped: list[tuple[list[Any], int]] = field(default_factory=list)
    filled: list[tuple[Any, Any]] = field(default_factory=list)
    tick: Callable[[], int] = field(default_factory=lambda: count(1).__next__)
    open_steps: int = 0
    sources: dict[UUID, str] = field(default_factory=dict)
    messages: list[Any] | None = None
    thread_id: str | None = None
    awaits_thread: bool = False
    is_undecided: bool = False
    awaits_previous: bool = True
    is_new_conversation: bool = False

    @property
    def contexts(self) -> list[Any] | None:
        """Retrieved Documents, by the start of their retrieval, then by rank; None if no retrieval has ended yet."""
        lists = [documents for documents in self.retrieved.values() if documents is not None]
        return [document for documents in lists for document in documents] if lists else None

    def see(self, documents: Sequence[Any]) -> list[Any]:
        """Record Documents that a step of the chain received or returned; return a new list of all of them.

        A Document is recorded once, with the time, counted in events of the run, at which it was first seen.
        """
        if documents:
            time = self.tick()
            for document in documents:
                self.seen.setdefault(id(document), (document, time))
        return [*documents]

    def see_inputs(self, inputs: Any) -> None:
        """Record the Documents, messages and few-shot examples in the inputs of a step of the chain."""
        self.documents = self.see(find_documents(inputs)) or self.documents
        for name in inputs if isinstance(inputs, Mapping) else ():
            if isinstance(name, str) and _EXAMPLES.search(name):
                values = inputs[name] if isinstance(inputs[name], list) else [inputs[name]]
                texts = (getattr(value, "page_content", value) for value in values)
                self.examples += [text for text in texts if isinstance(text, str) and text.strip()]
        messages, known = find_messages(inputs), self.messages  # the first, or a list that puts a history before them
        if known is None or (messages and known and len(messages) > len(known) and messages[-len(known) :] == known):
            self.messages = messages

    def see_previous(self) -> None:
        """Put the messages of the conversation's previous turn in front of those in `messages`.

        A LangGraph entrypoint (a function of the user) saves the messages of each turn. Outside an entrypoint, nothing
        changes.
        """
        runtime, config = sys.modules.get("langgraph.runtime"), var_child_runnable_config.get()
        if runtime is None or not config or (config.get("metadata") or {}).get("langgraph_triggers") != ("__start__",):
            return
        self.awaits_previous = False
        saved = runtime.get_runtime().previous
        if isinstance(saved, Mapping):
            saved = next((saved[name] for name in _MESSAGES if name in saved), None)
        self.messages = [*(saved if isinstance(saved, list | tuple) else ()), *(self.messages or ())]

    def see_drop(self, given: Any, retrievals: Sequence[UUID]) -> None:
        """Record in `dropped` the texts and Documents of a step that has returned none of them.

        Args:
            given: inputs of the step. A list of texts is recorded, or the Documents that `find_documents` returns.
            retrievals: run ids of the retrievals within the step; their Documents are recorded, too.
        """
        texts = given if isinstance(given, list) and all(isinstance(item, str) for item in given) else []
        found = [document for run_id in retrievals for document in self.retrieved.get(run_id) or ()]
        if dropped := [*texts, *find_documents(given), *found]:
            self.dropped.append((dropped, self.tick()))

    @property
    def tools_by_text(self) -> dict[str, str]:
        """Mapping from the text of each Document that a tool returned to the name and call id of the tool."""
        found = ((self.sources.get(run_id), documents or ()) for run_id, documents in self.retrieved.items())
        return {document.page_content: source for source, documents in found if source for document in documents}


@dataclass(eq=False, slots=True)
class _Node:
    """An open run in a tree of runs; `root` is None if the tree is not sampled."""

    root: RootRun | None
    parent: _Node | None = None
    run_type: RunType = "chain"
    record: RunRecord | None = None
    retrievals: list[UUID] = field(default_factory=list)  # runs within this run that returned Documents
    inputs: Any = None


_UNSAMPLED = _Node(None)


class RunTrees:
    """Open runs by id, with the trees of runs that they belong to.

    Args:
        on_evict: function that is called with the root of each sampled tree that is dropped because too many runs are
            open.
    """

    def __init__(self, on_evict: Callable[[RootRun], None]) -> None:
        self._nodes: dict[int, _Node] = {}  # keys are UUID.int, whose lookup is many times faster than that of a UUID
        self._cancelled: deque[int] = deque()
        self._on_evict = on_evict
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return the number of open runs, including cancelled runs that are kept for a while."""
        return len(self._nodes)

    @property
    def n_sampled(self) -> int:
        """Number of run trees that are recorded and whose root has not ended."""
        with self._lock:
            roots = [node.root for node in list(self._nodes.values()) if node.root is not None and node.parent is None]
            return sum(not root.is_undecided for root in roots)

    def is_open(self, run_id: UUID) -> bool:
        """Return True if a run has started and its end is not recorded yet, whether or not its tree is sampled."""
        return run_id.int in self._nodes

    def root_that_awaits_thread(self, parent_id: UUID | None) -> RootRun | None:
        """Return the root of the tree of `parent_id` if the tree's conversation id is still unknown, otherwise None.

        The step that is starting may then show the conversation id.
        """
        node = self._nodes.get(parent_id.int) if parent_id else None
        return node.root if node is not None and node.root is not None and node.root.awaits_thread else None

    def drop_tree(self, root: RootRun) -> None:
        """Stop recording a tree before its first step starts, because the tree is not sampled after all."""
        self._nodes[root.run_id.int] = _UNSAMPLED

    def start_tree(self, run_id: UUID, root: RootRun | None, run_type: RunType = "chain") -> None:
        """Start a tree of runs, for one run of a whole chain; `root` is None if the tree is not sampled."""
        self._add(run_id, _Node(root, run_type=run_type, record=root.record) if root else _UNSAMPLED)

    def skip_start(self, event: Mapping[str, Any]) -> bool:
        """Record only the id of a step that starts, if its tree is not sampled.

        Most events belong to such trees, so this method and `skip_end` are called first and take no lock.

        Args:
            event: keyword arguments of LangChain's event.

        Returns:
            True if the tree is not sampled, so that the event needs no further handling; False if the tree is sampled
            or unknown, and nothing was recorded.
        """
        parent_id = event.get("parent_run_id")
        if parent_id is None or self._nodes.get(parent_id.int) is not _UNSAMPLED:
            return False
        self._add(event["run_id"], _UNSAMPLED)
        return True

    def skip_end(self, event: Mapping[str, Any]) -> bool:
        """Remove a run that ends, if its tree is not sampled.

        Return True if the run was removed. If the tree is sampled or unknown, change nothing and return False.
        """
        key = event["run_id"].int
        if self._nodes.get(key) is not _UNSAMPLED:
            return False
        self._nodes.pop(key, None)
        return True

    def start_step(
        self, run_id: UUID, parent_id: UUID | None, run_type: RunType, name: str | None, inputs: Any
    ) -> bool:
        """Record the start of a step in a tree; return False if the parent belongs to no tree."""
        parent = self._nodes.get(parent_id.int) if parent_id else None
        if parent is None:
            return False
        if (root := parent.root) is None:
            self._add(run_id, _UNSAMPLED)
            return True
        if root.awaits_previous:
            root.see_previous()
        if self.is_open(run_id):
            return True  # the chain was given the handler twice
        node = _Node(root, parent, run_type)
        if run_type == "model":
            root.calls[run_id] = ModelCall(root.tick(), inputs)
            self._add(run_id, node)
            return True
        if parent.record is not None:
            node.record = new_record(run_id, name, run_type, inputs)
            parent.record["child_runs"].append(node.record)
        self._add(run_id, node)
        with self._lock:
            root.open_steps += 1
        if run_type != "chain":
            root.queries.append((inputs, root.tick()))
            if all(node.run_type != "retriever" for node in _lineage(parent)):
                root.retrieved[run_id] = None
            if run_type == "retriever" and (_EXAMPLES.search(name or "") or _ROUTES.search(name or "")):
                root.examples_by_run[run_id] = name or ""
        else:
            node.inputs = record_fields(inputs)
            root.see_inputs(node.inputs)
        return True

    def end(self, run_id: UUID, outputs: Any, inputs: Any = None, error: BaseException | None = None) -> RootRun | None:
        """Record the end of a run; return the `RootRun` of a sampled tree if its root has ended, otherwise None."""
        node = self._nodes.pop(run_id.int, None)
        if node is not None and error is not None and not isinstance(error, Exception):
            self._remember_cancelled(run_id)
        if node is None or node.root is None:
            return None
        root = node.root
        if node.run_type == "model":
            root.calls[run_id].end(root.tick(), outputs)
            return None
        if node.parent is not None:
            with self._lock:
                root.open_steps -= 1
        if node.record is not None:
            node.record["outputs"] = outputs
            node.record["inputs"] = node.record["inputs"] if inputs is None else inputs
            node.record["error"] = None if error is None else repr(error)
        if node.parent is None:
            return root
        if node.run_type == "chain":
            given, result = record_fields(inputs) or node.inputs, record_fields(outputs)
            root.see_inputs(record_fields(inputs))  # those of a stream are known at its end
            root.documents = root.see(find_documents(result)) or root.documents
            if hasattr(result, "to_messages"):
                root.filled.append((given, result))
            elif _holds_nothing(given, result):
                root.see_drop(given, node.retrievals)
        else:
            self._record_documents(run_id, node, root, outputs)
        return None

    def _record_documents(self, run_id: UUID, node: _Node, root: RootRun, outputs: Any) -> None:
        """Record the Documents of a retriever, or of a tool; as retrieved if no retriever ran around or in it."""
        is_retriever = node.run_type == "retriever" and isinstance(outputs, Sequence)
        artifact, call = getattr(outputs, "artifact", None), getattr(outputs, "tool_call_id", None)
        found = find_documents(outputs if artifact is None else artifact) or None  # of a tool
        documents = list(outputs) if is_retriever else found
        source = " ".join(filter(None, (getattr(outputs, "name", None), call))) if call is not None else None
        root.see(documents or [])
        if node.retrievals and not unwrap_text(outputs):
            root.see_drop(None, node.retrievals)
        if run_id not in root.retrieved:
            return
        if source:  # the name of a tool and the id of its call, from its message
            root.sources |= dict.fromkeys([run_id, *node.retrievals], source)
        if node.retrievals or documents is None:
            root.retrieved.pop(run_id, None)
            return
        root.retrieved[run_id] = documents
        for ancestor in _lineage(node.parent):
            ancestor.retrievals.append(run_id)

    def _remember_cancelled(self, run_id: UUID) -> None:
        """Keep a cancelled run open for a while: its thread may continue and start steps, which are not new roots."""
        with self._lock:
            self._nodes[run_id.int] = _UNSAMPLED
            self._cancelled.append(run_id.int)
            if len(self._cancelled) > _MAX_CANCELLED:
                self._nodes.pop(self._cancelled.popleft(), None)

    def _add(self, run_id: UUID, node: _Node) -> None:
        self._nodes[run_id.int] = node
        if len(self._nodes) <= _MAX_OPEN:
            return
        with self._lock:  # drop the oldest tenth of the open runs
            oldest = list(self._nodes)[: len(self._nodes) // 10 + 1]
            dropped = [found for key in oldest if (found := self._nodes.pop(key, None)) is not None]
        for one in dropped:
            if one.root is not None and one.parent is None and not one.root.is_undecided:
                self._on_evict(one.root)


def new_record(run_id: UUID, name: str | None, run_type: RunType, inputs: Any) -> RunRecord:
    """Return the record of a run that has started, which the user's `extract` function reads.

    Its keys are `id`, `name`, `run_type`, `inputs`, `outputs`, `error` and `child_runs` (records of the inner runs).
    """
    record: RunRecord = {"id": str(run_id), "name": name, "run_type": run_type, "inputs": inputs}
    return record | {"outputs": None, "error": None, "child_runs": []}


def record_fields(value: Any) -> Any:
    """Return the fields of a user's pydantic model or dataclass as a mapping; return any other value unchanged."""
    is_model = isinstance(value, BaseModel) and not isinstance(value, Serializable)  # of the user, not of LangChain
    if is_model or (is_dataclass(value) and not isinstance(value, type)):
        names = type(value).model_fields if is_model else [part.name for part in fields(value)]
        return {name: getattr(value, name) for name in names}
    return value


def find_documents(value: Any) -> list[Any]:
    """Return the Documents in the inputs or outputs of a step.

    They are found in a list, or in lists that are values of a mapping. The items of a list may also be pairs of a
    Document and its score.
    """
    if isinstance(value, Mapping):
        return [document for part in value.values() if isinstance(part, list) for document in find_documents(part)]
    if not isinstance(value, list):
        return []
    items = [*map(without_score, value)]
    return items if all(hasattr(item, "page_content") for item in items) else []


def _holds_nothing(given: Any, result: Any) -> bool:
    """Return True if the result of a step is empty, or holds no Documents under a name under which it was given some.

    A step that was given none may have found them itself, and return them under any name.
    """
    if not isinstance(result, Mapping):
        return result == [] or (isinstance(result, str) and not result.strip())
    given = given if isinstance(given, Mapping) else {}
    had = [name for name, value in given.items() if isinstance(value, list) and find_documents(value)]
    if had:
        return any(result.get(name) == [] for name in had)
    return any(value == [] for value in result.values()) and all(
        not value or value == given.get(name) for name, value in result.items()
    )


def find_messages(value: Any) -> list[Any] | None:
    """Return the messages or the chat history in the inputs of a step of a chain; None if there are none.

    These are inputs that are a list of messages, or such a list under the key "messages", "chat_history" or
    "history". A list under a key may be empty.
    """
    if isinstance(value, Mapping):
        named = (value.get(name) for name in _MESSAGES)
        return next((list(part) for part in named if isinstance(part, list | tuple) and _are_messages(part)), None)
    return list(value) if isinstance(value, list) and value and _are_messages(value) else None


def _are_messages(items: Sequence[Any]) -> bool:
    return all(hasattr(item, "content") and hasattr(item, "type") for item in items)


def _lineage(node: _Node | None) -> Iterator[_Node]:
    """Yield a run, its parent, and so on up to the root."""
    while node is not None:
        yield node
        node = node.parent
