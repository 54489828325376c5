"""Find passages: keep the passages that are needed to answer the question."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NOT_ALL_NEEDED, NOT_IN_PASSAGES, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, numbered_passages, prompt_step
from langchain_rageval.testset.evolve import MULTI_CONTEXT


class PassageFinder(CandidateStep):
    """Keeps the passages that the question needs; a `multi_context` question must need all that were added for it."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic which passages are needed: one call; no call for an unanswerable question."""
        if not state.answerable:
            return state
        inputs = {"question": state.standalone_question, "passages": numbered_passages(state.passages)}
        answer = yield from self._ask(inputs, drawn_text(state))
        needed = [p for number, p in enumerate(state.passages, 1) if number in answer.passages]
        if not needed:
            return state.with_trial("find_passages", accepted=False, feedback=answer.reason).reject(NOT_IN_PASSAGES)
        is_joint = MULTI_CONTEXT in state.evolution.split("+")
        if (is_joint and len(needed) < 2) or not {*state.needed} <= {passage.id for passage in needed}:
            return state.with_trial("find_passages", accepted=False, feedback=answer.reason).reject(NOT_ALL_NEEDED)
        return state.replace(passages=needed)


def find_passages(critic: JudgeLike) -> CandidateStep:
    """Return the step that keeps the passages that are needed to answer the question.

    A question is rejected if no passage answers it, or if a `multi_context` question does not need all passages that
    were added for it.

    Args:
        critic: model that selects the passages; one call.
    """
    return PassageFinder(name="find_passages", model_step=prompt_step("find_passages", critic))
