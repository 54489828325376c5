"""Regenerate the questions that the answer answers.

The judge reads the answer and the number of questions, in a conversation also its history, not the question. Adds
`evasive`, a bool, and `regenerated_questions`, a list of str. Makes no call for a blank answer, which is evasive.
"""

from __future__ import annotations

from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import RegeneratedQuestions
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State
from langchain_rageval.steps.rewrite_question import history_data, recent_turns
from langchain_rageval.steps.votes import majority


class RegenerateQuestions(JudgeStep):
    """Step that adds `evasive`, the majority verdict on the answer, and `regenerated_questions` of the other votes.

    A reply without questions that does not call the answer evasive is asked for again; questions beyond `count` are
    dropped. On a tie the answer is evasive.
    """

    count: int

    def work(self, state: State) -> Operation[State]:
        """Ask the judge (the first judge of a jury) for questions that the answer answers.

        One request per draw (repetition of the request); no call for a blank answer.
        """
        sample: Sample = state["sample"]
        voters = voters_of(self.judge.members[0]) if (sample.answer or "").strip() else []
        answers: list[RegeneratedQuestions] = yield Gather([self._vote(voter, sample) for voter in voters])
        evasive = majority([answer.evasive for answer in answers] or [True], tie=True)
        questions = [q for answer in answers if not answer.evasive for q in _questions(answer)[: self.count]]
        return state | {"evasive": evasive, "regenerated_questions": questions}

    def _vote(self, voter: Voter, sample: Sample) -> Operation[RegeneratedQuestions]:
        inputs: dict[str, Any] = {"answer": sample.answer, "count": self.count}
        step: JudgeStep = self
        if sample.history:
            history = recent_turns(sample.history, voter.judge.max_context_tokens)
            inputs = {"history": history_data(history), **inputs}
            step = self.model_copy(update={"prompt": "regenerate_turn_questions"})
        question = step.build_question(
            inputs,
            None,
            language_from=sample.question,
            judge=voter.judge,
            objection=_objection,
            limits=AnswerLimits(lengths=(("questions", self.count),)),
        )
        answer: RegeneratedQuestions = yield self.ask(question, voter)
        return answer


def regenerate_questions(judge: JudgeLike, *, count: int) -> JudgeStep:
    """Return the step that writes up to `count` questions from the answer."""
    return RegenerateQuestions(
        prompt="regenerate_questions", judge=Judge.of(judge), answer=RegeneratedQuestions, count=count
    )


def _questions(answer: RegeneratedQuestions) -> list[str]:
    return [question.strip() for question in answer.questions if question.strip()]


def _objection(answer: RegeneratedQuestions) -> str | None:
    return None if answer.evasive or _questions(answer) else "no questions, though the answer is not called evasive"
