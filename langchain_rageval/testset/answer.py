"""Step that writes the reference answer from the passages alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import ANSWERED_BY_DOCUMENTS, NOT_ANSWERED, Candidate
from langchain_rageval.testset.candidate_step import (
    CandidateStep,
    drawn_text,
    numbered_passages,
    prompt_step,
)
from langchain_rageval.text.language import detect_language

NOT_IN_THE_DOCUMENTS: Mapping[str, str] = {
    "en": "The documents do not say.",
    "ru": "В документах этого нет.",
}
"""Reference answer of an unanswerable question, by language; other languages use English."""


class AnswerWriter(CandidateStep):
    """Step that adds the reference answer; for an unanswerable question, a sentence that the documents have none."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer for the reference answer: one call.

        The candidate is rejected if the writer disagrees with `answerable`. For an unanswerable question the writer
        also reads the `nearest` passages.
        """
        passages = [*state.passages, *state.nearest]
        inputs = {"question": state.standalone_question, "passages": numbered_passages(passages)}
        answer = yield from self._ask(inputs, drawn_text(state), _objection)
        if answer.answerable != state.answerable:
            trial = state.with_trial(self.get_name(), accepted=False, feedback=answer.answer)
            return trial.reject(NOT_ANSWERED if state.answerable else ANSWERED_BY_DOCUMENTS)
        if state.answerable:
            return state.replace(reference=answer.answer.strip())
        language = detect_language(drawn_text(state))
        return state.replace(reference=NOT_IN_THE_DOCUMENTS.get(language, NOT_IN_THE_DOCUMENTS["en"]))


def answer(writer: JudgeLike) -> CandidateStep:
    """Return the step that writes the reference answer and rejects questions that the passages do not answer.

    A question that is meant to be unanswerable is rejected if the passages do answer it.

    Args:
        writer: model that answers; one call.
    """
    return AnswerWriter(name="write_answer", model_step=prompt_step("write_answer", writer))


def _objection(reply: Any) -> str | None:
    blank = reply.answerable and not reply.answer.strip()
    return "the answer is blank, but `answerable` is true" if blank else None
