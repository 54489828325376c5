"""Passage scheduler: decides which passage each row of a test set is tried with next, without calling a model.

Rows are tried in rounds. A round holds all open rows (rows without an accepted question that have attempts left); each
gets a passage, in the order of the rows. The result depends
on the seed and the models' answers, never on the order in which the answers arrive.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from langchain_rageval.testset.candidate import (
    NO_KEYPHRASE,
    NO_NEAR_PASSAGE,
    NO_NUMBERS,
    NOT_EVOLVED,
    PASSAGE_REJECTED,
    Candidate,
)
from langchain_rageval.testset.evolutions import Branch, compose, kinds_of, parts_of
from langchain_rageval.testset.evolve import has_numbers
from langchain_rageval.testset.passage import Passage

MAX_ATTEMPTS = 8
"""Maximum number of attempts for one row; each uses another passage or another key phrase."""


@dataclass
class RowState:
    """State of one row of the test set: its attempts so far, and its accepted question if there is one.

    Attributes:
        evolution: evolution of the row.
        attempts: number of attempts so far.
        accepted: accepted candidate; None while the row is open.
        retry_passage: passage to write another question about, after a question that did not evolve.
    """

    evolution: Branch
    attempts: int = 0
    accepted: Candidate | None = None
    retry_passage: Passage | None = None

    @property
    def open(self) -> bool:
        """True if the row has no accepted question yet and has attempts left."""
        return self.accepted is None and self.attempts < MAX_ATTEMPTS


class PassageScheduler:
    """Assigns passages to rows, round by round.

    Passages are drawn without replacement. When all are drawn, those that can still give a question are drawn again,
    failed ones only if there are no others.

    Args:
        passages: passages in the order in which they are drawn.
        evolutions: evolution of each row.
        seed: random seed of the run.
        has_similar: returns True if a passage has a similar one.

    Attributes:
        rows: states of the rows, in order.
        attempts: number of candidates so far.
        rejected: number of rejections by reason.
        left_out: names of evolutions that were left out of rows, by the reason: no passage suits them.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        evolutions: Sequence[Branch],
        seed: int,
        has_similar: Callable[[Passage], bool],
    ) -> None:
        self.rows = [RowState(evolution) for evolution in evolutions]
        self.attempts = 0
        self.rejected: Counter[str] = Counter()
        self.left_out: dict[str, list[str]] = {}
        self._passages = passages
        self._seed = seed
        self._has_similar = has_similar
        self._undrawn = deque(passages)
        self._draws: Counter[str] = Counter()
        self._last_candidates: dict[str, Candidate] = {}
        self._failed: set[str] = set()
        self._exhausted: set[str] = set()

    def next_round(self) -> dict[int, Candidate]:
        """Return new candidates (questions to generate) by row number, for open rows; empty at the end.

        A row is open if it has no accepted question yet and has attempts left. Rows without a passage are left out.
        """
        candidates: dict[int, Candidate] = {}
        for number, row in enumerate(self.rows):
            passage = self._draw(row) if row.open else None
            if passage is not None:
                row.attempts += 1
                self.attempts += 1
                candidates[number] = self._new_candidate(passage)
        return candidates

    def record(self, number: int, candidate: Candidate) -> None:
        """Record the result of an attempt: the accepted question of the row, or the reason for the rejection.

        Args:
            number: number of the row.
            candidate: accepted or rejected candidate.
        """
        row, drawn = self.rows[number], candidate.passages[0]
        self._last_candidates[drawn.id] = candidate
        if candidate.rejected is None:
            row.accepted = candidate
            return
        self.rejected[candidate.rejected] += 1
        self._failed.add(drawn.id)
        if candidate.rejected in (PASSAGE_REJECTED, NO_KEYPHRASE):
            self._exhausted.add(drawn.id)
            self._undrawn = deque(passage for passage in self._undrawn if passage.id != drawn.id)
        first_draw = self._draws[drawn.id] == 1
        row.retry_passage = drawn if candidate.rejected == NOT_EVOLVED and first_draw else None

    def _draw(self, row: RowState) -> Passage | None:
        if row.retry_passage is not None:
            passage, row.retry_passage = row.retry_passage, None
            return passage
        for part in parts_of(row.evolution):
            if not any(self._suits(part, passage) for passage in self._passages):
                reason = NO_NEAR_PASSAGE if _adds_passage(part) else NO_NUMBERS
                self.rejected[reason] += 1
                names = self.left_out.setdefault(reason, [])
                names += [] if part.get_name() in names else [part.get_name()]
                row.evolution = compose(other for other in parts_of(row.evolution) if other != part)
        for _ in range(2):
            for index, passage in enumerate(self._undrawn):
                if self._suits(row.evolution, passage):
                    del self._undrawn[index]
                    return passage
            self._refill()
        return None

    def _suits(self, branch: Branch, passage: Passage) -> bool:
        """Return True if a passage has what the evolutions of a branch need: numbers, or another passage."""
        needs_numbers = any(kind.needs_numbers for kind in kinds_of(branch))
        return not (
            (needs_numbers and not has_numbers(passage)) or (_adds_passage(branch) and not self._has_similar(passage))
        )

    def _refill(self) -> None:
        """Make passages available again that can give another question; failed passages only if there are no others."""
        undrawn = {passage.id for passage in self._undrawn}
        usable = [p for p in self._passages if p.id not in self._exhausted and p.id not in undrawn]
        self._undrawn.extend([p for p in usable if p.id not in self._failed] or usable)

    def _new_candidate(self, passage: Passage) -> Candidate:
        """Return a candidate with the grade and key phrases that earlier attempts found for its passage."""
        draw = self._draws[passage.id]
        self._draws[passage.id] += 1
        earlier = self._last_candidates.get(passage.id)
        candidate = Candidate(passages=[passage], draw=draw, seed=self._seed)
        if earlier is None:
            return candidate
        grading = [trial for trial in earlier.history if trial.kind == "passage"]
        return candidate.replace(grade=earlier.grade, keyphrases=earlier.keyphrases, history=grading)


def _adds_passage(part: Branch) -> bool:
    return any(kind.adds_passage for kind in kinds_of(part))
