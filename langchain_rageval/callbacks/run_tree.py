"""Following: the runs of a chain that are open, and what those of a sampled tree have retrieved so far.

A run belongs to the tree of its parent. One whose parent was never seen is a root: a chain, or the part of a larger one
to which the handler was given. Trees that are not sampled share one node, so that they cost an entry in a table.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import UUID

Kind = Literal["chain", "retriever", "tool"]
Tree = dict[str, Any]

_MOST_OPEN = 100_000  # an end that never comes must not cost memory for ever
_MOST_CANCELLED = 1_000


@dataclass(eq=False, slots=True)
class Root:
    """A sampled tree while it runs.

    Attributes:
        run_id: of its root.
        name: likewise.
        inputs: as the root was given them.
        metadata: of the root's config, its tags included.
        started: on the monotonic clock.
        retrieved: of each retriever, or tool that gave Documents, what it gave; in the order in which they started.
        documents: the last Documents that went from one step to another.
        open: steps that have begun and not ended.
        tree: the runs as nested mappings, where they are asked for.
    """

    run_id: UUID
    name: str
    inputs: Any
    metadata: dict[str, Any]
    tree: Tree | None = None
    started: float = field(default_factory=time.monotonic)
    retrieved: dict[UUID, list[Any] | None] = field(default_factory=dict)
    documents: list[Any] = field(default_factory=list)
    open: int = 0

    @property
    def contexts(self) -> list[Any] | None:
        """What was retrieved; None when nothing was asked for any."""
        lists = [documents for documents in self.retrieved.values() if documents is not None]
        return [document for documents in lists for document in documents] if lists else None


@dataclass(eq=False, slots=True)
class Node:
    """An open run of a sampled tree; `root` is None in a tree that is not."""

    root: Root | None
    parent: Node | None = None
    kind: Kind = "chain"
    tree: Tree | None = None
    searched: bool = False  # whether a retriever ran within it


UNFOLLOWED = Node(None)


class Following:
    """The open runs, by id.

    Args:
        evicted: called with each tree that is given up, because too many runs are open for one of them to end.
    """

    def __init__(self, evicted: Callable[[Root], None]) -> None:
        self._nodes: dict[int, Node] = {}  # by the id's number: it is looked up in a fraction of an id's time
        self._cancelled: deque[int] = deque()
        self._evicted = evicted
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of open runs, and of the last ones that were cancelled."""
        return len(self._nodes)

    @property
    def roots(self) -> int:
        """Number of sampled trees that run."""
        with self._lock:
            return sum(node.root is not None and node.parent is None for node in list(self._nodes.values()))

    def holds(self, run_id: UUID) -> bool:
        """Whether a run is open."""
        return run_id.int in self._nodes

    def plant(self, run_id: UUID, root: Root | None) -> None:
        """Begin a tree; without a root, one that is not followed."""
        self._keep(run_id, Node(root, tree=root.tree) if root else UNFOLLOWED)

    def passes(self, told: Mapping[str, Any]) -> bool:
        """Begin a step of a tree that is not followed, as LangChain tells of it; False when it is none.

        Most events are of such trees, so this and `passed` take no lock and come before all else.
        """
        parent_id = told.get("parent_run_id")
        if parent_id is None or self._nodes.get(parent_id.int) is not UNFOLLOWED:
            return False
        self._keep(told["run_id"], UNFOLLOWED)
        return True

    def passed(self, told: Mapping[str, Any]) -> bool:
        """End such a step, or such a tree; False when it is none."""
        number = told["run_id"].int
        if self._nodes.get(number) is not UNFOLLOWED:
            return False
        self._nodes.pop(number, None)
        return True

    def begin(self, run_id: UUID, parent_id: UUID | None, kind: Kind, name: str | None, inputs: Any) -> bool:
        """Begin a step within a tree; False when its parent is in none."""
        parent = self._nodes.get(parent_id.int) if parent_id else None
        if parent is None:
            return False
        root = parent.root
        if root is None:
            self._keep(run_id, UNFOLLOWED)
            return True
        if self.holds(run_id):
            return True  # the handler was given twice
        node = Node(root, parent, kind)
        if parent.tree is not None:
            node.tree = grown(run_id, name, kind, inputs)
            parent.tree["child_runs"].append(node.tree)
        self._keep(run_id, node)
        with self._lock:
            root.open += 1
        if kind != "chain" and not _within_retriever(parent):
            root.retrieved[run_id] = None
        elif kind == "chain":
            root.documents = documents_in(inputs) or root.documents
        return True

    def end(self, run_id: UUID, outputs: Any, inputs: Any = None, error: BaseException | None = None) -> Root | None:
        """End a run; gives the tree when it was its root."""
        node = self._nodes.pop(run_id.int, None)
        if node is None:
            return None
        if error is not None and not isinstance(error, Exception):
            self._bury(run_id)
        root = node.root
        if root is None:
            return None
        if node.parent is not None:
            with self._lock:
                root.open -= 1
        if node.tree is not None:
            node.tree["outputs"] = outputs
            node.tree["inputs"] = node.tree["inputs"] if inputs is None else inputs
            node.tree["error"] = None if error is None else repr(error)
        if node.parent is None:
            return root
        if node.kind == "chain":
            root.documents = documents_in(outputs) or documents_in(inputs) or root.documents
        elif run_id in root.retrieved:
            self._retrieved(run_id, node, root, outputs)
        return None

    def _retrieved(self, run_id: UUID, node: Node, root: Root, outputs: Any) -> None:
        """Keep what a retriever gave, or a tool in which none ran: what one gave is there already."""
        found = list(outputs) if node.kind == "retriever" and isinstance(outputs, Sequence) else given_by_tool(outputs)
        if node.searched or found is None:
            root.retrieved.pop(run_id, None)
            return
        root.retrieved[run_id] = found
        above = node.parent
        while above is not None:
            above.searched = True
            above = above.parent

    def _bury(self, run_id: UUID) -> None:
        """Remember a cancelled run for a while: a thread of it may go on and begin steps, which are no new roots."""
        with self._lock:
            self._nodes[run_id.int] = UNFOLLOWED
            self._cancelled.append(run_id.int)
            if len(self._cancelled) > _MOST_CANCELLED:
                self._nodes.pop(self._cancelled.popleft(), None)

    def _keep(self, run_id: UUID, node: Node) -> None:
        self._nodes[run_id.int] = node
        if len(self._nodes) > _MOST_OPEN:
            self._evict()

    def _evict(self) -> None:
        """Give up the oldest runs, a tenth of all at once."""
        with self._lock:
            oldest = list(self._nodes)[: len(self._nodes) // 10 + 1]
            lost = [node for number in oldest if (node := self._nodes.pop(number, None)) is not None]
        for node in lost:
            if node.root is not None and node.parent is None:
                self._evicted(node.root)


def grown(run_id: UUID, name: str | None, kind: Kind, inputs: Any) -> Tree:
    """A run as a mapping, in LangSmith's words."""
    run: Tree = {"id": str(run_id), "name": name, "run_type": kind, "inputs": inputs, "outputs": None, "error": None}
    return run | {"child_runs": []}


def documents_in(value: Any) -> list[Any]:
    """The Documents in what a step takes or gives: a list of them, or such lists under the names of a mapping."""
    if isinstance(value, Mapping):
        return [document for part in value.values() if isinstance(part, list) for document in documents_in(part)]
    whole = isinstance(value, list) and bool(value) and all(hasattr(item, "page_content") for item in value)
    return value if whole else []


def given_by_tool(outputs: Any) -> list[Any] | None:
    """The Documents that a tool gave: as its message's artifact, or as they are; None when it is no search."""
    artifact = getattr(outputs, "artifact", None)
    return documents_in(outputs if artifact is None else artifact) or None


def _within_retriever(node: Node | None) -> bool:
    while node is not None:
        if node.kind == "retriever":
            return True
        node = node.parent
    return False
