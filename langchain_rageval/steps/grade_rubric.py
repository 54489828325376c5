"""Grade the answer by the criteria of a rubric, all of them in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import median_low
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import RubricGrade, RubricGrades
from langchain_rageval.prompts.criteria import DEFAULT_LANGUAGE, Criterion, Scale, key_of
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement

ByKey = dict[str, RubricGrade]
Criteria = tuple[Criterion, ...]


class GradeRubric(Step):
    """Adds `rubric_grades`, a list of Finding: the grade of each criterion in their order, then the agreement of votes.

    Of several votes the median holds. A blank answer has the lowest grade of every criterion, without a call. Contexts,
    when there are any, are background: of more than the judge's `max_context_tokens` it sees the first window.
    """

    criteria: Mapping[str, Criteria]
    scale: Scale
    with_examples: bool

    def work(self, state: State) -> Operation[State]:
        """One call for each vote; none for a blank answer."""
        sample: Sample = state["sample"]
        names = {number: criterion.name for number, criterion in enumerate(self._criteria(DEFAULT_LANGUAGE), 1)}
        voters = voters_of(self.judge) if (sample.answer or "").strip() else []
        votes: list[ByKey] = yield Gather([self._vote(voter, sample) for voter in voters])
        lowest = {key_of(name): RubricGrade(criterion=name, reason="", grade=self.scale[0]) for name in names.values()}
        given = [[vote[key_of(name)] for vote in votes or [lowest]] for name in names.values()]
        findings = [_decided(number, names[number], grades) for number, grades in enumerate(given, 1)]
        labels = [{number: str(vote[key_of(name)].grade) for number, name in names.items()} for vote in votes]
        return state | {"rubric_grades": [*findings, *agreement(names, voters, labels)]}

    @property
    def instrument(self) -> dict[str, Any]:
        """Those of a step, and all that it grades by."""
        told = {
            language: [criterion.shown(self.scale, with_examples=self.with_examples) for criterion in criteria]
            for language, criteria in self.criteria.items()
        }
        return {**super().instrument, "criteria": told}

    def _criteria(self, language: str) -> Criteria:
        return self.criteria.get(language) or self.criteria[DEFAULT_LANGUAGE]

    def _vote(self, voter: Voter, sample: Sample) -> Operation[ByKey]:
        windows = NumberedContexts.of(sample.contexts or []).windows(voter.judge.max_context_tokens)
        background = windows[0] if windows and windows[0].sentences else None
        criteria = self._criteria(voter.judge.prompt_set(sample.question).common.language)
        asked = self._asked(voter, sample, background, criteria)
        grading = self._grade(voter, asked, sample, background, criteria)
        grades: ByKey = yield shared_question(voter.judge, asked, voter.draw, grading)
        return grades

    def _grade(
        self,
        voter: Voter,
        asked: JudgeQuestion[RubricGrades],
        sample: Sample,
        background: NumberedContexts | None,
        criteria: Criteria,
    ) -> Operation[ByKey]:
        """Ask until every criterion has one grade on the scale."""
        attempts, graded, missing = Attempts(voter.judge.attempts), ByKey(), criteria
        while True:
            reply = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
            graded |= _usable(reply.grades, missing, self.scale)
            missing = tuple(criterion for criterion in missing if criterion.key not in graded)
            if not missing:
                return graded
            if not attempts.left:
                raise JudgeOutputError(_problem(missing, self.scale), self.get_name(), reply.model_dump_json())
            asked = self._asked(voter, sample, background, missing)

    def _asked(
        self, voter: Voter, sample: Sample, background: NumberedContexts | None, criteria: Criteria
    ) -> JudgeQuestion[RubricGrades]:
        inputs = {
            "question": sample.question,
            "answer": sample.answer,
            "reference": "\n".join(sample.references),
            "criteria": [criterion.shown(self.scale, with_examples=self.with_examples) for criterion in criteria],
        }
        refuse = partial(_objection, criteria=criteria, scale=self.scale)
        return self.question(inputs, background, language_from=sample.question, judge=voter.judge, objection=refuse)


def grade_rubric(
    judge: JudgeLike, criteria: Mapping[str, Sequence[Criterion]], scale: Scale, *, with_examples: bool
) -> Step:
    """The step that grades an answer.

    Args:
        judge: who is asked.
        criteria: language of the prompts to the criteria in it, the same names in the same order in each; those under
            "en" serve every language that has none.
        scale: lowest and highest grade.
        with_examples: whether the judge is shown the criteria's graded answers.
    """
    return GradeRubric(
        prompt="grade_rubric",
        judge=Judge.of(judge),
        answer=RubricGrades,
        criteria={language: tuple(own) for language, own in criteria.items()},
        scale=scale,
        with_examples=with_examples,
    )


def _usable(given: Iterable[RubricGrade], criteria: Criteria, scale: Scale) -> ByKey:
    """The grades by criterion: unknown criteria and grades off the scale dropped, conflicting doubles left out."""
    by_key: dict[str, list[RubricGrade]] = {criterion.key: [] for criterion in criteria}
    for grade in given:
        by_key.get(key_of(grade.criterion), []).append(grade)
    return {
        key: grades[0]
        for key, grades in by_key.items()
        if len({grade.grade for grade in grades}) == 1 and scale[0] <= grades[0].grade <= scale[1]
    }


def _objection(answer: RubricGrades, *, criteria: Criteria, scale: Scale) -> str | None:
    """What is wrong when no grade at all can be used; else those that are missing are asked for alone."""
    return None if _usable(answer.grades, criteria, scale) else _problem(criteria, scale)


def _problem(criteria: Criteria, scale: Scale) -> str:
    names = ", ".join(criterion.name for criterion in criteria)
    return f"no single grade from {scale[0]} to {scale[1]} for {names}"


def _decided(number: int, name: str, votes: Sequence[RubricGrade]) -> Finding:
    grade = median_low([vote.grade for vote in votes])
    reasons = dict.fromkeys(vote.reason for vote in votes if vote.grade == grade)
    return Finding(kind="criterion", number=number, text=name, verdict=str(grade), reason=" ".join(reasons))
