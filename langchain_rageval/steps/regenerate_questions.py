"""Regenerate the questions that the answer would answer."""

from __future__ import annotations

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import RegeneratedQuestions
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import majority


class RegenerateQuestions(Step):
    """Adds `evasive`, whether most votes call the answer so, and `regenerated_questions`, those of the other votes.

    A reply with neither questions nor the word that the answer is evasive is asked again; questions beyond `count` are
    cut. The judge does not see the question that was asked.
    """

    count: int

    def work(self, state: State) -> Operation[State]:
        """One call for each vote; none for a blank answer, which is evasive."""
        sample: Sample = state["sample"]
        voters = voters_of(self.judge.members[0]) if (sample.answer or "").strip() else []
        answers: list[RegeneratedQuestions] = yield Gather([self._vote(voter, sample) for voter in voters])
        evasive = majority([answer.evasive for answer in answers] or [True], tie=True)
        questions = [q for answer in answers if not answer.evasive for q in _meant(answer)[: self.count]]
        return state | {"evasive": evasive, "regenerated_questions": questions}

    def _vote(self, voter: Voter, sample: Sample) -> Operation[RegeneratedQuestions]:
        question = self.question(
            {"answer": sample.answer, "count": self.count},
            None,
            language_from=sample.question,
            judge=voter.judge,
            objection=_objection,
        )
        answer: RegeneratedQuestions = yield self.asked(question, voter)
        return answer


def regenerate_questions(judge: JudgeLike, *, count: int) -> Step:
    """The step that writes up to `count` questions from the answer."""
    return RegenerateQuestions(
        prompt="regenerate_questions", judge=Judge.of(judge), answer=RegeneratedQuestions, count=count
    )


def _meant(answer: RegeneratedQuestions) -> list[str]:
    return [question.strip() for question in answer.questions if question.strip()]


def _objection(answer: RegeneratedQuestions) -> str | None:
    return None if answer.evasive or _meant(answer) else "no questions, though the answer is not called evasive"
