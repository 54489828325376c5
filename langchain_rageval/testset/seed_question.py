"""Seed question: write the first question about a passage."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, drawn_text, prompt_step, question_objection


class SeedQuestionWriter(CandidateStep):
    """Writes a question about the key phrase that the drawn passage answers."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the writer for a question about the key phrase: one call."""
        keyphrase = state.keyphrase or next(iter(state.keyphrases), "")
        inputs = {"passage": drawn_text(state), "keyphrase": keyphrase}
        answer = yield from self._ask(inputs, drawn_text(state), question_objection)
        return state.with_question(answer.question, "seed")


def seed_question(writer: JudgeLike) -> CandidateStep:
    """Return the step that writes a question about the key phrase of the drawn passage.

    The prompt demands the rules of the WikiEval questions: fully answered by the passage, from a part that is not
    trivial, of moderate difficulty, no links in the answer, understood without the passage. Source: Es et al. 2023,
    "RAGAS: Automated Evaluation of Retrieval Augmented Generation", arXiv:2309.15217, section 4.

    Args:
        writer: model that writes; one call.
    """
    return SeedQuestionWriter(name="write_question", model_step=prompt_step("write_question", writer))
