"""Evolution filter: whether a question asks for more than the one it came from."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NOT_EVOLVED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, text_of


class CompareQuestions(CandidateStep):
    """Rejects a question that is neither deeper nor broader than its parent."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call; none without a parent."""
        if not state.parent:
            return state
        answer = yield from self._ask({"parent": state.parent, "question": state.question}, text_of(state))
        if answer.deeper or answer.broader:
            return state
        return state.judged(False, answer.reason).reject(NOT_EVOLVED)


def evolution_filter(critic: JudgeLike) -> CandidateStep:
    """The step that lets questions pass that are deeper or broader than their parent.

    Args:
        critic: asked once.
    """
    return CompareQuestions(name="compare_questions", asks=asking("compare_questions", critic))
