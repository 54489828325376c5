"""Closed-book filter: reject questions that a model answers without the documents."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import KNOWN_WITHOUT_DOCUMENTS, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step
from langchain_rageval.text.stemming import stems_of


class ClosedBookFilter(CandidateStep):
    """Rejects a question if an answer from memory contains the words of the reference answer."""

    threshold: float

    def _option_names(self) -> Sequence[str]:
        return ["threshold"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Compare an answer from memory with the reference answer: one call; no call for an unanswerable question."""
        if not state.answerable or not state.reference:
            return state
        question = state.standalone_question
        reply = yield from self._ask({"question": question}, drawn_text(state))
        expected = stems_of(state.reference) - stems_of(question)
        share = len(expected & stems_of(reply.answer)) / len(expected) if expected else 0.0
        if share < self.threshold:
            return state
        trial = state.with_trial("closed_book", accepted=False, feedback=reply.answer)
        return trial.reject(KNOWN_WITHOUT_DOCUMENTS)


def closed_book_filter(judge: JudgeLike, *, threshold: float = 0.8) -> CandidateStep:
    """Return the step that rejects questions that can be answered without the documents.

    Args:
        judge: model that answers from memory; one call.
        threshold: share of the reference's word stems and numbers, those of the question excluded, at which the answer
            from memory counts as correct; above 0 and at most 1.

    Raises:
        ConfigError: if `threshold` is out of range.
    """
    if not isinstance(threshold, int | float) or not 0 < threshold <= 1:
        raise ConfigError(f"threshold must be a number above 0 and at most 1, got {threshold!r}")
    return ClosedBookFilter(name="answer_unaided", model_step=prompt_step("answer_unaided", judge), threshold=threshold)
