"""Closed-book filter: drops questions that a model answers without the documents."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import KNOWN_WITHOUT, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, text_of
from langchain_rageval.text.stemming import stems_of


class AnswerUnaided(CandidateStep):
    """Rejects a question whose answer from memory holds the words of the reference."""

    threshold: float

    def _options(self) -> Sequence[str]:
        return ["threshold"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none for a question that the documents do not answer."""
        if not state.answerable or not state.reference:
            return state
        reply = yield from self._ask({"question": state.question}, text_of(state))
        new = stems_of(state.reference) - stems_of(state.question)
        known = len(new & stems_of(reply.answer)) / len(new) if new else 0.0
        if known < self.threshold:
            return state
        return state.tried("closed_book", accepted=False, feedback=reply.answer).reject(KNOWN_WITHOUT)


def closed_book_filter(judge: JudgeLike, *, threshold: float = 0.8) -> CandidateStep:
    """The step that keeps the questions for which the documents are needed.

    Args:
        judge: asked once, for an answer from memory.
        threshold: share, from above 0 to 1, of the word stems and numbers that the reference has beside the question's;
            a question is dropped when the answer from memory holds as many.

    Raises:
        ConfigError: if `threshold` is out of range.
    """
    if not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise ConfigError(f"threshold takes a number above 0 and at most 1, got {threshold!r}")
    return AnswerUnaided(name="answer_unaided", asks=asking("answer_unaided", judge), threshold=threshold)
