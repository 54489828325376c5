"""Draft: which passage each row of a test set is tried with next. Nothing is asked here.

Rows are tried in rounds: all that are open at once, each with a passage of its own, dealt out in the order of the rows.
So what comes out depends on the seed and the answers, never on which of them came first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from langchain_rageval.testset.candidate import (
    NO_KEYPHRASE,
    NO_NEAR_PASSAGE,
    NOT_EVOLVED,
    PASSAGE_REJECTED,
    Candidate,
)
from langchain_rageval.testset.evolutions import Evolution
from langchain_rageval.testset.passage import Passage

MOST_ATTEMPTS = 8
"""Tries of one row, each with another passage or another key phrase."""


@dataclass
class Slot:
    """A row that is to be filled.

    Attributes:
        branch: its evolution.
        attempts: how often it was tried.
        filled: the candidate that was accepted.
        back_to: the passage to write another question about, after one that did not evolve.
    """

    branch: Evolution
    attempts: int = 0
    filled: Candidate | None = None
    back_to: Passage | None = None

    @property
    def open(self) -> bool:
        """Whether it is worth another try."""
        return self.filled is None and self.attempts < MOST_ATTEMPTS


class Draft:
    """The rows of a test set while it is made.

    Args:
        order: passages in the order in which they are drawn.
        branches: the evolution of each row.
        seed: of the run.
        near: whether a passage has another one near it.

    Attributes:
        slots: the rows, in order.
        attempts: candidates so far.
        rejected: why they were of no use, with counts.
    """

    def __init__(
        self, order: Sequence[Passage], branches: Sequence[Evolution], seed: int, near: Callable[[Passage], bool]
    ) -> None:
        self.slots = [Slot(branch) for branch in branches]
        self.attempts = 0
        self.rejected: Counter[str] = Counter()
        self._order = order
        self._seed = seed
        self._near = near
        self._left = deque(order)
        self._draws: Counter[str] = Counter()
        self._known: dict[str, Candidate] = {}
        self._failed: set[str] = set()
        self._useless: set[str] = set()

    def round(self) -> dict[int, Candidate]:
        """Number of each open row, for which a passage is left, to its candidate; empty when there is none."""
        starts: dict[int, Candidate] = {}
        for number, slot in enumerate(self.slots):
            passage = self._drawn(slot) if slot.open else None
            if passage is not None:
                slot.attempts += 1
                self.attempts += 1
                starts[number] = self._start(passage)
        return starts

    def settle(self, number: int, candidate: Candidate) -> None:
        """Take note of what became of a row's candidate."""
        slot, drawn = self.slots[number], candidate.passages[0]
        self._known[drawn.id] = candidate
        if candidate.rejected is None:
            slot.filled = candidate
            return
        self.rejected[candidate.rejected] += 1
        self._failed.add(drawn.id)
        if candidate.rejected in (PASSAGE_REJECTED, NO_KEYPHRASE):
            self._useless.add(drawn.id)
            self._left = deque(passage for passage in self._left if passage.id != drawn.id)
        once = self._draws[drawn.id] == 1
        slot.back_to = drawn if candidate.rejected == NOT_EVOLVED and once else None

    def _drawn(self, slot: Slot) -> Passage | None:
        if slot.back_to is not None:
            passage, slot.back_to = slot.back_to, None
            return passage
        wants_near = any(kind.adds_passage for kind in slot.branch.kinds)
        if wants_near and not any(self._near(passage) for passage in self._order):
            self.rejected[NO_NEAR_PASSAGE] += 1
            slot.branch = Evolution(tuple(kind for kind in slot.branch.kinds if not kind.adds_passage))
            wants_near = False
        for _ in range(2):
            for place, passage in enumerate(self._left):
                if not wants_near or self._near(passage):
                    del self._left[place]
                    return passage
            self._refill()
        return None

    def _refill(self) -> None:
        """Begin again with the passages that are good for another question; those that failed only if no others are."""
        waiting = {passage.id for passage in self._left}
        usable = [p for p in self._order if p.id not in self._useless and p.id not in waiting]
        self._left.extend([p for p in usable if p.id not in self._failed] or usable)

    def _start(self, passage: Passage) -> Candidate:
        """A candidate that knows what was found out about its passage before."""
        draw = self._draws[passage.id]
        self._draws[passage.id] += 1
        known = self._known.get(passage.id)
        start = Candidate(passages=[passage], draw=draw, seed=self._seed)
        if known is None:
            return start
        graded = [trial for trial in known.history if trial.kind == "passage"]
        return start.but(grade=known.grade, keyphrases=known.keyphrases, history=graded)


def dealt(shares: Mapping[Evolution, float], size: int, seed: int) -> list[Evolution]:
    """The evolution of each row: exact counts by largest remainder, in a seeded order.

    Args:
        shares: evolution to its share, all above 0 and together 1.
        size: number of rows.
        seed: of the order.
    """
    exact = [(branch, share * size) for branch, share in shares.items()]
    counts = {branch: int(wanted + 1e-9) for branch, wanted in exact}
    by_remainder = sorted(exact, key=lambda pair: counts[pair[0]] - pair[1])
    for branch, _ in by_remainder[: size - sum(counts.values())]:
        counts[branch] += 1
    rows = [branch for branch, count in counts.items() for _ in range(count)]
    Random(seed).shuffle(rows)
    return rows
