"""Compress: a question made shorter and less direct, with the same answer."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, blank_question, text_of


class CompressQuestion(CandidateStep):
    """Writes the question anew, shorter."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call."""
        answer = yield from self._ask({"question": state.question}, text_of(state), blank_question)
        return state.asking(answer.question, "compress")


def compress(writer: JudgeLike) -> CandidateStep:
    """The step that shortens a question.

    Args:
        writer: asked once.
    """
    return CompressQuestion(name="compress_question", asks=asking("compress_question", writer))
