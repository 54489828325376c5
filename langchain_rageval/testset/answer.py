"""Answer: the reference answer, from the passages alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import ANSWERED_AFTER_ALL, NOT_ANSWERED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, numbered, text_of
from langchain_rageval.text.language import detect_language

NOT_IN_THE_DOCUMENTS: Mapping[str, str] = {
    "en": "The documents do not say.",
    "ru": "В документах этого нет.",
}
"""The reference of a question that the documents do not answer, by language; English where there is none."""


class WriteAnswer(CandidateStep):
    """Adds `reference`. Where the passages are not meant to answer, it is the sentence that says so."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call."""
        inputs = {"question": state.question, "passages": numbered(state.passages)}
        answer = yield from self._ask(inputs, text_of(state), _objection)
        if answer.answerable != state.answerable:
            return state.reject(NOT_ANSWERED if state.answerable else ANSWERED_AFTER_ALL)
        if state.answerable:
            return state.but(reference=answer.answer.strip())
        told = NOT_IN_THE_DOCUMENTS.get(detect_language(text_of(state)), NOT_IN_THE_DOCUMENTS["en"])
        return state.but(reference=told)


def answer(writer: JudgeLike) -> CandidateStep:
    """The step that writes the reference answer, and drops what its passages do not answer.

    Args:
        writer: asked once.
    """
    return WriteAnswer(name="write_answer", asks=asking("write_answer", writer))


def _objection(reply: Any) -> str | None:
    return (
        "the answer is blank, though it is called answerable" if reply.answerable and not reply.answer.strip() else None
    )
