"""Accepted questions of a test set, in which duplicates of a new question are searched."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np

from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.row import TestsetRow


class AcceptedQuestions:
    """Accepted questions with their vectors.

    Args:
        threshold: cosine from which two questions are duplicates; None rejects only equal questions.
    """

    def __init__(self, threshold: float | None) -> None:
        self._threshold = threshold
        self._questions: list[tuple[Candidate | TestsetRow, Any]] = []

    def add(self, accepted: Candidate | TestsetRow, vector: Any) -> None:
        """Add an accepted question with its unit vector, or None if it has none."""
        self._questions.append((accepted, vector))

    def find_duplicate(self, candidate: Candidate, vector: Any) -> str:
        """Return the first accepted question that is equal or near enough; "" if there is none.

        Questions of one tree are variants of one question, so that only equal ones are duplicates. A follow-up is
        otherwise compared as it is understood without its turns.
        """
        standalone = candidate.standalone_question.casefold()
        for other, other_vector in self._questions:
            if candidate.tree_id and candidate.tree_id == other.tree_id:
                if _as_asked(other) == _as_asked(candidate):
                    return other.question
            elif other.standalone_question.casefold() == standalone or self._is_near(vector, other_vector):
                return other.question
        return ""

    def _is_near(self, vector: Any, other: Any) -> bool:
        if vector is None or other is None or self._threshold is None:
            return False
        return float(vector @ other) >= self._threshold


def _as_asked(candidate: Candidate | TestsetRow) -> tuple[str, ...]:
    """Return the texts of a question and of the turns before it."""
    return (candidate.question.casefold(), *(turn.text for turn in candidate.chat_history))


def to_unit_vector(vector: Any) -> Any:
    """Return a vector divided by its length; None for a vector without direction."""
    length = float(np.linalg.norm(vector))
    return vector / length if isfinite(length) and length > 0 else None
