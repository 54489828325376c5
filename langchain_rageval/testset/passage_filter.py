"""Passage filter: reject passages that are too poor to write a question about."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import PASSAGE_REJECTED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step

_CRITERIA = ("clarity", "depth", "structure", "relevance")
_LOWEST, _HIGHEST = 1, 3


class PassageFilter(CandidateStep):
    """Grades the drawn passage and rejects the candidate if the grade is below the threshold."""

    threshold: float

    def _option_names(self) -> Sequence[str]:
        return ["threshold"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic to grade the passage: one call; no call if the passage is graded already."""
        if state.grade is not None:
            return state if state.grade >= self.threshold else state.reject(PASSAGE_REJECTED)
        answer = yield from self._ask({"passage": drawn_text(state)}, drawn_text(state), _objection)
        grade = fmean(getattr(answer, name) for name in _CRITERIA)
        accepted = grade >= self.threshold
        graded = state.replace(grade=grade).with_trial("passage", accepted=accepted, feedback=answer.reason)
        return graded if accepted else graded.reject(PASSAGE_REJECTED)


def passage_filter(critic: JudgeLike, *, threshold: float = 2.0) -> CandidateStep:
    """Return the step that rejects passages whose grade is below a threshold.

    Args:
        critic: model that grades clarity, depth, structure and relevance, each 1, 2 or 3; one call.
        threshold: minimum mean of the four grades, from 1 to 3.

    Raises:
        ConfigError: if `threshold` is not a number from 1 to 3.
    """
    if not isinstance(threshold, int | float) or not _LOWEST <= threshold <= _HIGHEST:
        raise ConfigError(f"threshold must be a number from {_LOWEST} to {_HIGHEST}, got {threshold!r}")
    return PassageFilter(name="grade_passage", model_step=prompt_step("grade_passage", critic), threshold=threshold)


def _objection(answer: Any) -> str | None:
    invalid = [name for name in _CRITERIA if not _LOWEST <= getattr(answer, name) <= _HIGHEST]
    return f"{', '.join(invalid)}: each grade is {_LOWEST}, 2 or {_HIGHEST}" if invalid else None
