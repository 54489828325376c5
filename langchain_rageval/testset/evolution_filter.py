"""Evolution filter: reject questions that are neither deeper nor broader than the question they came from."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NOT_EVOLVED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step
from langchain_rageval.testset.evolve import MULTI_CONTEXT


class EvolutionFilter(CandidateStep):
    """Rejects a question that is neither deeper nor broader than its parent.

    A question that was just joined with other passages over a shared entity is not compared: `find_passages` rejects it
    unless it needs all of them, which is the stricter test.
    """

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic to compare the question with its parent: one call; none without a parent or just joined."""
        just_bridged = "bridge" in state.metadata and state.evolution.split("+")[-1] == MULTI_CONTEXT
        if not state.parent or just_bridged:
            return state
        answer = yield from self._ask({"parent": state.parent, "question": state.question}, drawn_text(state))
        if answer.deeper or answer.broader:
            return state
        return state.with_verdict(False, answer.reason).reject(NOT_EVOLVED)


def evolution_filter(critic: JudgeLike) -> CandidateStep:
    """Return the step that accepts questions that are deeper or broader than their parent.

    Args:
        critic: model that compares; one call.
    """
    return EvolutionFilter(name="compare_questions", model_step=prompt_step("compare_questions", critic))
