"""Regenerate the questions that the answer would answer."""

from __future__ import annotations

from langchain_rageval.answers import RegeneratedQuestions
from langchain_rageval.judge.judge import Ballot, Judge, JudgeLike
from langchain_rageval.run.work import Together, Work
from langchain_rageval.schema import Sample
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import majority


class RegenerateQuestions(Step):
    """Adds `evasive`, whether most votes call the answer so, and `regenerated_questions`, those of the other votes.

    A reply with neither questions nor the word that the answer is evasive is asked again; questions beyond `count` are
    cut. The judge does not see the question that was asked.
    """

    count: int

    def work(self, state: State) -> Work[State]:
        """One call for each vote; none for a blank answer, which is evasive."""
        sample: Sample = state["sample"]
        ballots = self.judge.members[0].ballots if (sample.answer or "").strip() else []
        answers: list[RegeneratedQuestions] = yield Together([self._vote(ballot, sample) for ballot in ballots])
        evasive = majority([answer.evasive for answer in answers] or [True], tie=True)
        questions = [q for answer in answers if not answer.evasive for q in _meant(answer)[: self.count]]
        return state | {"evasive": evasive, "regenerated_questions": questions}

    def _vote(self, ballot: Ballot, sample: Sample) -> Work[RegeneratedQuestions]:
        question = self.question(
            {"answer": sample.answer, "count": self.count},
            None,
            language_from=sample.question,
            judge=ballot.judge,
            objection=_objection,
        )
        answer: RegeneratedQuestions = yield self.asked(question, ballot)
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
