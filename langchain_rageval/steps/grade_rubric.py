"""Grade the answer by the criteria of a rubric, all of them in one call.

The judge reads the question, the answer, the references, the criteria, and numbered contexts if there are any. Adds
`rubric_grades`, a list of Finding: one for each criterion in order with the grade as its verdict, then the agreement
rates if there are several votes. Makes no call for a blank answer, which gets the lowest grade of every criterion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from statistics import median_low
from typing import Any

from langchain_rageval._internal.description import digest_of
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, RubricGrade, RubricGrades
from langchain_rageval.prompts.criteria import (
    DEFAULT_LANGUAGE,
    Criterion,
    Scale,
    criterion_inputs,
    criterion_key,
    on_scale,
)
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.prompts.promptset import PromptSet
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, agreement_rates, grade_probabilities

_GradeByCriterion = dict[str, RubricGrade]
_Criteria = tuple[Criterion, ...]


class GradeRubric(JudgeStep):
    """Step that adds `rubric_grades`, a list of Finding: one for each criterion in order, then the agreement rates.

    Of several votes the lower median decides. A blank answer gets the lowest grades. Contexts are background: if they
    exceed the judge's `max_context_tokens`, only their first window is sent.
    """

    criteria: Mapping[str, _Criteria]
    scale: Scale
    with_examples: bool
    replaceable: bool = False

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for the grades of the answer: one request per vote (one repetition by one judge).

        Makes no call for a blank answer.
        """
        sample: Sample = state["sample"]
        names = {number: criterion.name for number, criterion in enumerate(self._criteria(DEFAULT_LANGUAGE), 1)}
        voters = voters_of(self.judge) if (sample.answer or "").strip() else []
        votes: list[_GradeByCriterion] = yield Gather([self._vote(voter, sample) for voter in voters])
        lowest = {
            criterion_key(name): RubricGrade(criterion=name, reason="", grade=self.scale[0]) for name in names.values()
        }
        findings = [
            _median_finding(number, name, [vote[criterion_key(name)] for vote in votes or [lowest]], self.scale)
            for number, name in names.items()
        ]
        labels = [{number: str(vote[criterion_key(name)].grade) for number, name in names.items()} for vote in votes]
        return state | {"rubric_grades": [*findings, *agreement_rates(names, voters, labels)]}

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its grades: judge, prompts, schema, criteria and scale."""
        inputs = {
            language: [
                criterion_inputs(criterion, self.scale, with_examples=self.with_examples) for criterion in criteria
            ]
            for language, criteria in self.criteria.items()
        }
        return {**super().instrument, "criteria": digest_of(inputs)}

    def _criteria(self, language: str) -> _Criteria:
        return self.criteria.get(language) or self.criteria[DEFAULT_LANGUAGE]

    def _criteria_of(self, prompts: PromptSet) -> _Criteria:
        """Return the criteria for a request: those of the prompt set if it has its own and they may be replaced."""
        if self.replaceable and prompts.criteria:
            return on_scale(prompts.criteria, self.scale)
        return self._criteria(prompts.common.language)

    def _vote(self, voter: Voter, sample: Sample) -> Operation[_GradeByCriterion]:
        windows = NumberedContexts.of(sample.contexts or []).windows(voter.judge.max_context_tokens)
        background = windows[0] if windows and windows[0].sentences else None
        criteria = self._criteria_of(voter.judge.prompt_set(sample.question))
        judge_question = self._judge_question(voter, sample, background, criteria)
        grading = self._grade(voter, judge_question, sample, background, criteria)
        grades: _GradeByCriterion = yield shared_question(voter.judge, judge_question, voter.draw, grading)
        return grades

    def _grade(
        self,
        voter: Voter,
        judge_question: JudgeQuestion[RubricGrades],
        sample: Sample,
        background: NumberedContexts | None,
        criteria: _Criteria,
    ) -> Operation[_GradeByCriterion]:
        """Ask one judge for a grade by every criterion, and repeat the question for criteria without a valid grade."""
        attempts, graded, missing = Attempts(voter.judge.attempts), _GradeByCriterion(), criteria
        while True:
            reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
            graded |= _valid_grades(reply.grades, missing, self.scale)
            missing = tuple(criterion for criterion in missing if criterion_key(criterion.name) not in graded)
            if not missing:
                return graded
            if not attempts.left:
                raise JudgeOutputError(_problem(missing, self.scale), self.get_name(), reply.model_dump_json())
            judge_question = repeat_question(self._judge_question(voter, sample, background, missing))

    def _judge_question(
        self, voter: Voter, sample: Sample, background: NumberedContexts | None, criteria: _Criteria
    ) -> JudgeQuestion[RubricGrades]:
        inputs = {
            "question": sample.question,
            "answer": sample.answer,
            "reference": "\n".join(sample.references),
            "criteria": [
                criterion_inputs(criterion, self.scale, with_examples=self.with_examples) for criterion in criteria
            ],
        }
        objection = partial(_objection, criteria=criteria, scale=self.scale)
        limits = AnswerLimits(
            items=("grades", "criterion", tuple(criterion.name for criterion in criteria)),
            values=(("grade", tuple(range(self.scale[0], self.scale[1] + 1))),),
        )
        return self.build_question(
            inputs,
            background,
            language_from=sample.question,
            judge=voter.judge,
            objection=objection,
            limits=limits,
        )


def grade_rubric(
    judge: JudgeLike,
    criteria: Mapping[str, Sequence[Criterion]],
    scale: Scale,
    *,
    with_examples: bool,
    replaceable: bool = False,
) -> JudgeStep:
    """Return the step that grades an answer by a rubric.

    Args:
        judge: judge to ask.
        criteria: criteria by the language of the prompts, with the same names in the same order in each language; those
            under "en" are used for languages without criteria.
        scale: the lowest and the highest grade.
        with_examples: show the graded examples of the criteria to the judge.
        replaceable: use the criteria of the judge's own prompt set instead, if it has any.
    """
    return GradeRubric(
        prompt="grade_rubric",
        judge=Judge.of(judge),
        answer=RubricGrades,
        criteria={language: tuple(own) for language, own in criteria.items()},
        scale=scale,
        with_examples=with_examples,
        replaceable=replaceable,
    )


def _valid_grades(replies: Iterable[RubricGrade], criteria: _Criteria, scale: Scale) -> _GradeByCriterion:
    """Return the grades by criterion; unknown criteria, conflicting duplicates and grades off the scale are omitted."""
    by_key: dict[str, list[RubricGrade]] = {criterion_key(criterion.name): [] for criterion in criteria}
    for grade in replies:
        by_key.get(criterion_key(grade.criterion), []).append(grade)
    return {
        key: grades[0]
        for key, grades in by_key.items()
        if len({grade.grade for grade in grades}) == 1 and scale[0] <= grades[0].grade <= scale[1]
    }


def _objection(answer: RubricGrades, *, criteria: _Criteria, scale: Scale) -> str | None:
    """Return an error message for the judge if none of its grades is valid, else None.

    If some grades are valid, the question is repeated for the missing criteria only.
    """
    return None if _valid_grades(answer.grades, criteria, scale) else _problem(criteria, scale)


def _problem(criteria: _Criteria, scale: Scale) -> str:
    names = ", ".join(criterion.name for criterion in criteria)
    return f"no single grade from {scale[0]} to {scale[1]} for {names}"


def _median_finding(number: int, name: str, votes: Sequence[RubricGrade], scale: Scale) -> Finding:
    grade = median_low([vote.grade for vote in votes])
    reasons = dict.fromkeys(vote.reason for vote in votes if vote.grade == grade)
    return Finding(
        kind="criterion",
        number=number,
        text=name,
        verdict=str(grade),
        reason=" ".join(reasons),
        probabilities=grade_probabilities(votes, scale),
    )
