"""Compress: make a question shorter and less direct, with the same answer."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step, question_objection


class QuestionCompressor(CandidateStep):
    """Replaces the question by a shorter one."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer to shorten the question: one call."""
        answer = yield from self._ask({"question": state.question}, drawn_text(state), question_objection)
        return state.with_question(answer.question, "compress")


def compress(writer: JudgeLike) -> CandidateStep:
    """Return the step that shortens a question.

    Args:
        writer: model that shortens; one call.
    """
    return QuestionCompressor(name="compress_question", model_step=prompt_step("compress_question", writer))
