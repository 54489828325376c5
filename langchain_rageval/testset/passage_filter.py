"""Passage filter: whether a passage is a good ground for a question."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import PASSAGE_REJECTED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, text_of

_CRITERIA = ("clarity", "depth", "structure", "relevance")
_LEAST, _MOST = 1, 3


class GradePassage(CandidateStep):
    """Grades the drawn passage and rejects the candidate when it is not good enough."""

    threshold: float

    def _options(self) -> Sequence[str]:
        return ["threshold"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none when the passage was graded before."""
        if state.grade is not None:
            return state if state.grade >= self.threshold else state.reject(PASSAGE_REJECTED)
        answer = yield from self._ask({"passage": text_of(state)}, text_of(state), _objection)
        grade = fmean(getattr(answer, name) for name in _CRITERIA)
        good = grade >= self.threshold
        graded = state.but(grade=grade).tried("passage", accepted=good, feedback=answer.reason)
        return graded if good else graded.reject(PASSAGE_REJECTED)


def passage_filter(critic: JudgeLike, *, threshold: float = 2.0) -> CandidateStep:
    """The step that lets good passages pass.

    Args:
        critic: asked once, for clarity, depth, structure and relevance, each from 1 to 3.
        threshold: least mean of the four.

    Raises:
        ConfigError: if `threshold` is no number from 1 to 3.
    """
    if not isinstance(threshold, int | float) or not _LEAST <= threshold <= _MOST:
        raise ConfigError(f"threshold takes a number from {_LEAST} to {_MOST}, got {threshold!r}")
    return GradePassage(name="grade_passage", asks=asking("grade_passage", critic), threshold=threshold)


def _objection(answer: Any) -> str | None:
    wrong = [name for name in _CRITERIA if not _LEAST <= getattr(answer, name) <= _MOST]
    return f"{', '.join(wrong)}: each grade is {_LEAST}, 2 or {_MOST}" if wrong else None
