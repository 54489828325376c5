"""Grade the answer by the criteria of a rubric, all criteria in one call.

The judge reads the question, the answer, the references, the criteria, and numbered contexts if there are any. The step
adds `rubric_grades`, a list of Finding: one for each criterion in order with the grade as its verdict, then the
agreement rates if there are several votes. A blank answer gets the lowest grade of every criterion, without a call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_rageval._internal.description import digest_of
from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, RubricGrades
from langchain_rageval.prompts.criteria import DEFAULT_LANGUAGE, Criterion, criterion_inputs, criterion_key, on_scale
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.item_step import GradeStep, Item, Items, Part, background_windows, with_windows
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.steps.stage import State

_Criteria = tuple[Criterion, ...]


class GradeRubric(GradeStep):
    """Step that adds the list `rubric_grades`: a Finding per criterion in order, then the agreement rates of the votes.

    If there are several votes, the lower median decides. A blank answer gets the lowest grades. Contexts are
    background, sent in windows (parts) of at most the judge's `max_context_tokens`. The highest grade over the windows
    counts, and a finding gives the number of windows. `criteria` maps languages, such as "en", to the criteria. With
    `with_examples`, the judge sees the graded examples of the criteria. With `replaceable`, the criteria of the judge's
    own prompt set, if there are any, are used instead of `criteria`.
    """

    criteria: Mapping[str, _Criteria]
    with_examples: bool
    replaceable: bool = False

    def work(self, state: State) -> Operation[State]:
        """Add the judge's grades; one request per window of contexts and vote (one repetition by one judge).

        Makes no request for a blank answer.
        """
        sample: Sample = state["sample"]
        names = {criterion_key(criterion.name): criterion.name for criterion in self._criteria(DEFAULT_LANGUAGE)}
        items = {key: Item("criterion", n, name, self.labels) for n, (key, name) in enumerate(names.items(), 1)}
        contexts = NumberedContexts.of(sample.contexts or [])
        findings = yield from self.rule_on(sample, items, contexts)
        return with_windows(state, contexts, self.judge) | {"rubric_grades": findings}

    @property
    def instrument(self) -> dict[str, Any]:
        """Configuration of this step that affects its grades: judge, prompts, schema, criteria and scale."""
        inputs = {language: self._criteria_inputs(criteria) for language, criteria in self.criteria.items()}
        return {**super().instrument, "criteria": digest_of(inputs), "contexts": "windows"}

    def _criteria(self, language: str) -> _Criteria:
        return self.criteria.get(language) or self.criteria[DEFAULT_LANGUAGE]

    def _criteria_inputs(self, criteria: Iterable[Criterion]) -> list[dict[str, Any]]:
        return [criterion_inputs(criterion, self.scale, with_examples=self.with_examples) for criterion in criteria]

    def _parts(self, sample: Sample, items: Items, shown: Any, judge: Judge) -> Sequence[Part]:
        if not (sample.answer or "").strip():
            return []
        return [(items, window) for window in background_windows(shown, judge)]

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        prompts = judge.prompt_set(sample.language_text)
        is_replaced = self.replaceable and prompts.criteria
        criteria = on_scale(prompts.criteria, self.scale) if is_replaced else self._criteria(prompts.common.language)
        return {
            "question": sample.question,
            "answer": sample.answer,
            "reference": "\n".join(sample.references),
            "criteria": self._criteria_inputs(one for one in criteria if criterion_key(one.name) in items),
        }

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        names = tuple(item.text for item in items.values())
        return AnswerLimits(("grades", "criterion", names), values=(("grade", self.grades),))

    def _key(self, verdict: Any, items: Items, shown: Any) -> Any:
        return criterion_key(verdict.criterion)

    def _objection(self, answer: Any, items: Items, shown: Any) -> str | None:
        """Return an error message for the judge if none of its grades is valid, else None.

        If some grades are valid, the question is repeated for the missing criteria only.
        """
        return None if self._read(answer, items, shown) else self._problem(items)

    def _problem(self, missing: Items) -> str:
        names = ", ".join(item.text for item in missing.values())
        return f"no single grade from {self.scale[0]} to {self.scale[1]} for {names}"


def grade_rubric(
    judge: JudgeLike,
    criteria: Mapping[str, Sequence[Criterion]],
    scale: tuple[int, int],
    *,
    with_examples: bool,
    replaceable: bool = False,
) -> JudgeStep:
    """Return the step that grades an answer by a rubric.

    Args:
        judge: judge to ask.
        criteria: criteria by the language of the prompts, with the same names in the same order in each language. The
            criteria under "en" are used for languages without criteria.
        scale: the lowest and the highest grade.
        with_examples: show the graded examples of the criteria to the judge.
        replaceable: use the criteria of the judge's own prompt set instead, if the set has any.
    """
    return GradeRubric(
        prompt="grade_rubric",
        judge=judge,
        answer=RubricGrades,
        criteria={language: tuple(own) for language, own in criteria.items()},
        scale=scale,
        with_examples=with_examples,
        replaceable=replaceable,
    )
