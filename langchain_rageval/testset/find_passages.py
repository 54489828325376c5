"""Find passages: those that a question really needs."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NOT_ALL_NEEDED, NOT_IN_PASSAGES, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, numbered, text_of
from langchain_rageval.testset.evolutions import MULTI_CONTEXT


class FindPassages(CandidateStep):
    """Keeps the passages that the question needs; a question over several must need them all."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none for a question that the documents do not answer."""
        if not state.answerable:
            return state
        shown = numbered(state.passages)
        answer = yield from self._ask({"question": state.question, "passages": shown}, text_of(state))
        needed = [p for number, p in enumerate(state.passages, 1) if number in answer.passages]
        if not needed:
            return state.tried("find_passages", accepted=False, feedback=answer.reason).reject(NOT_IN_PASSAGES)
        if MULTI_CONTEXT in state.evolution.split("+") and len(needed) < 2:
            return state.tried("find_passages", accepted=False, feedback=answer.reason).reject(NOT_ALL_NEEDED)
        return state.but(passages=needed)


def find_passages(critic: JudgeLike) -> CandidateStep:
    """The step that keeps the passages that are needed to answer.

    Args:
        critic: asked once.
    """
    return FindPassages(name="find_passages", asks=asking("find_passages", critic))
