"""Answer check: whether the passages still support a reference answer that was written from earlier ones."""

from __future__ import annotations

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.verify_statements import verify_statements
from langchain_rageval.testset.candidate import ANSWER_CHANGED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep

CHECK_ANSWER = "check_answer"


class AnswerCheck(CandidateStep):
    """Step that rejects a candidate whose reference answer its passages do not support."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic whether the passages support the reference answer: one call."""
        if self.model_step is None:
            raise TypeError("an answer check needs a critic")
        sample = Sample(question=state.standalone_question, contexts=[passage.text for passage in state.passages])
        result = yield from self.model_step.work({"sample": sample, "answer_statements": [state.reference or ""]})
        verdict = result["answer_verdicts"][0]
        supported = verdict.verdict == "supported"
        checked = state.with_trial(CHECK_ANSWER, accepted=supported, feedback=verdict.reason)
        return checked if supported else checked.reject(ANSWER_CHANGED)


def answer_check(critic: JudgeLike) -> CandidateStep:
    """Return the step that rejects a candidate whose passages do not support its reference answer.

    Args:
        critic: model that compares; one call.
    """
    return AnswerCheck(name=CHECK_ANSWER, model_step=verify_statements(critic, of="answer"))
