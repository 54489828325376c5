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

        Questions of one tree are variants of one question, so that only equal ones are duplicates.
        """
        for other, other_vector in self._questions:
            if other.question.casefold() == candidate.question.casefold():
                return other.question
            if vector is None or other_vector is None or self._threshold is None:
                continue
            if candidate.tree_id and candidate.tree_id == other.tree_id:
                continue
            if float(vector @ other_vector) >= self._threshold:
                return other.question
        return ""


def to_unit_vector(vector: Any) -> Any:
    """Return a vector divided by its length; None for a vector without direction."""
    length = float(np.linalg.norm(vector))
    return vector / length if isfinite(length) and length > 0 else None
