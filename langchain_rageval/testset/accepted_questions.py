"""AcceptedQuestions: the accepted questions of a run, by which repeated questions are found and rejected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from langchain_core.runnables import RunnableConfig
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.run.run import Traced
from langchain_rageval.testset.candidate import Candidate, Reason
from langchain_rageval.testset.row import TestsetRow

_BLOCK = 256  # questions that are compared with all earlier ones in one matrix product
_ROOM = 64  # vectors for which memory is taken at first


class AcceptedQuestions:
    """Accepted questions of a generation run, with the unit vectors that show whether a new question repeats one.

    Args:
        threshold: cosine from which two questions are duplicates; None rejects only equal questions.
    """

    def __init__(self, threshold: float | None) -> None:
        self._threshold = threshold
        self._questions: list[Candidate | TestsetRow] = []
        self._places: dict[str | tuple[str, ...], list[int]] = defaultdict(list)
        self._vectors = np.zeros((0, 0), np.float32)

    def __len__(self) -> int:
        """Return the number of accepted questions."""
        return len(self._questions)

    def add(self, accepted: Candidate | TestsetRow, vector: Any) -> None:
        """Add an accepted question with its unit vector; `vector` is None if the question has no vector."""
        place = len(self)
        for key in (accepted.standalone_question.casefold(), _as_asked(accepted)):
            self._places[key].append(place)
        self._questions.append(accepted)
        if vector is not None:
            if place >= len(self._vectors):
                room = np.zeros((max(_ROOM, 2 * place), len(vector)), np.float32)
                room[: len(self._vectors), : self._vectors.shape[1]] = self._vectors
                self._vectors = room
            self._vectors[place] = vector

    def add_new(self, candidates: Sequence[Candidate], vectors: Sequence[Any]) -> list[str]:
        """Add each question that repeats no earlier question, and report the repeated questions.

        Args:
            candidates: questions, in the order in which they are added.
            vectors: unit vector of each question; None for a question without a vector.

        Returns:
            For each candidate, the earlier question that it repeats; "" if it was added.
        """
        repeated: list[str] = []
        for start in range(0, len(candidates), _BLOCK):
            known, block = len(self), vectors[start : start + _BLOCK]
            near = self._near(block, 0, known)
            for place, candidate in enumerate(candidates[start : start + _BLOCK]):
                own = self._near(block[place : place + 1], known, len(self))
                repeated.append(self.first(candidate, len(self), [*near[place], *own[0]]))
                if not repeated[-1]:
                    self.add(candidate, block[place])
        return repeated

    def first(self, candidate: Candidate, among: int, near: Iterable[int] = ()) -> str:
        """Return the earliest accepted question that the candidate's question repeats; "" if there is none.

        A question repeats another if both are equal (upper and lower case do not count) or `near` lists the other.
        Questions are compared in the form that needs no earlier turns. The questions of a tree are variants of one
        question and share `tree_id`. Among these, only equal questions with equal earlier turns are repetitions.

        Args:
            candidate: candidate with the question to compare.
            among: number of accepted questions to compare with, beginning with the earliest.
            near: indices of the accepted questions whose vectors have a cosine of at least `threshold`, the argument
                of the class, with the candidate's vector.
        """
        as_asked = self._places.get(_as_asked(candidate), ())
        alike = {*near, *self._places.get(candidate.standalone_question.casefold(), ())}
        for place in sorted({*alike, *as_asked}):
            other: Candidate | TestsetRow = self._questions[place]
            variants = candidate.tree_id and candidate.tree_id == other.tree_id
            if place < among and place in (as_asked if variants else alike):
                return other.question
        return ""

    def _near(self, vectors: Sequence[Any], start: int, end: int) -> list[list[int]]:
        """Return for each vector the places of near questions from `start` to `end`."""
        there = [vector for vector in vectors if vector is not None]
        if self._threshold is None or not there or not self._vectors.size:
            return [[] for _ in vectors]
        cosines = self._vectors[start:end] @ np.asarray(there, np.float32).T
        found = iter((np.flatnonzero(column >= self._threshold) + start).tolist() for column in cosines.T)
        return [[] if vector is None else next(found) for vector in vectors]


def _as_asked(candidate: Candidate | TestsetRow) -> tuple[str, ...]:
    """Return the texts of a question and of the turns before it."""
    return (candidate.question.casefold(), *(turn.text for turn in candidate.chat_history))


class NewQuestion(Traced[Candidate, Candidate]):
    """Step, not shown in traces, that rejects a new question equal to a question accepted in an earlier round.

    A round makes one attempt (a new candidate) for each row without an accepted question. After the round,
    `Generation.accept` rejects near-duplicates and repetitions within the round, in the order of the rows, so that the
    order in which attempts finish has no effect.

    Attributes:
        accepted: accepted questions of the run.
        among: number of questions that were accepted before the current round.
    """

    in_traces: ClassVar[bool] = False
    model_config = ConfigDict(arbitrary_types_allowed=True)

    accepted: InstanceOf[AcceptedQuestions]
    among: int

    def _do(self, input: Candidate, config: RunnableConfig) -> Candidate:
        is_asked = input.question.strip() and not input.rejected
        other = self.accepted.first(input, self.among) if is_asked else ""
        return reject_duplicate(input, other) if other else input

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        return self._do(input, config)


def reject_duplicate(candidate: Candidate, other: str) -> Candidate:
    """Return a copy of the candidate, rejected as a duplicate of an accepted question.

    The last trial (attempt) in the history of the copy has the accepted question `other` as its `feedback`.
    """
    return candidate.with_trial("dedupe", accepted=False, feedback=other).reject(Reason.DUPLICATE)
