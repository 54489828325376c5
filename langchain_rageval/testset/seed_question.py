"""Seed question: the first question about a passage."""

from __future__ import annotations

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, asking, blank_question, text_of


class WriteQuestion(CandidateStep):
    """Writes a question about the key phrase that the drawn passage answers."""

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call."""
        keyphrase = state.keyphrase or next(iter(state.keyphrases), "")
        inputs = {"passage": text_of(state), "keyphrase": keyphrase}
        answer = yield from self._ask(inputs, text_of(state), blank_question)
        return state.asking(answer.question, "seed")


def seed_question(writer: JudgeLike) -> CandidateStep:
    """The step that writes the question.

    It is to keep the rules of the WikiEval questions: answered by the passage alone, from a part that is not trivial,
    of moderate difficulty, without links in the answer, and understood without the passage. Source: Es et al. 2023,
    "RAGAS: Automated Evaluation of Retrieval Augmented Generation", arXiv:2309.15217, section 4.

    Args:
        writer: asked once.
    """
    return WriteQuestion(name="write_question", asks=asking("write_question", writer))
