"""Rubric: the weighted mean of a judge's grades of the answer, one grade for each of several criteria.

From 0 to 1, higher is better. Source: Databricks' study of judges for RAG (Leng et al. 2023, "Best Practices for LLM
Evaluation of RAG Applications"). The weights (correctness 0.6, completeness 0.2, readability 0.2) and the scale from 0
to 3 are from the study.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import fsum
from typing import Any, Literal, get_args

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Finding, Sample, Score
from langchain_rageval.errors import ConfigError, check_choice
from langchain_rageval.judge.judge import Judge, JudgeLike, voters_of
from langchain_rageval.judge.ladder import bound_options, inner_models
from langchain_rageval.judge.panels import request_probabilities
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.prompts.criteria import (
    DEFAULT_LANGUAGE,
    DEFAULT_SCALE,
    Criterion,
    Scale,
    check_scale,
    criterion_key,
    default_criteria,
)
from langchain_rageval.steps.grade_rubric import grade_rubric
from langchain_rageval.steps.stage import State

Examples = Literal["per_grade", "none"]

_MAX_STEPS = 10
_MAX_TEMPERATURE = 0.3

_NAMED = ("correctness", "completeness", "readability")


def rubric(
    judge: JudgeLike,
    criteria: Sequence[Criterion | Mapping[str, Any]] | None = None,
    scale: tuple[int, int] = DEFAULT_SCALE,
    *,
    examples: Examples = "per_grade",
    expected: bool = False,
    name: str = "rubric",
) -> Metric:
    """Grade the answer by several criteria; the judge writes a justification of one line before each grade.

    Value = Σ weight · (grade − lowest) / (highest − lowest) / Σ weight.

    Args:
        judge: called once per sample and vote, for all criteria. If there are several votes (`Judge(model, draws=3)`,
            or a `jury` of several judges), the median grade counts. Contexts longer than the judge's
            `max_context_tokens` are sent in parts, and the highest grade over the parts counts. For grades that are
            comparable between samples, use a low temperature or several draws.
        criteria: criteria in the order of grading. The default is correctness 0.6, completeness 0.2 and readability
            0.2, in Russian for a Russian question, else in English. A prompt set of the judge may contain its own
            wording of them (`translate_prompts` translates them).
        scale: lowest and highest grade, whole numbers. The default criteria describe each grade from 0 to 3. On another
            scale only the grades at the same relative positions are described: 0, 2, 4 and 6 on 0 to 6, but only the
            two ends on 1 to 5.
        examples: "per_grade" shows the judge the graded example answers of the criteria, which make a weaker judge more
            consistent. "none" omits the examples and saves about 650 tokens per call for the default criteria.
        expected: True to use the expected grades, computed from the log-probabilities of the judge's tokens. They are
            then requested; a grade without probabilities counts as certain.
        name: key of the score.

    Returns:
        A metric that reads `question` and `answer`, and `contexts` and `references` if the sample has them. Its
        findings hold the raw grades. A blank answer gets the lowest grade of every criterion, without a call.

    Raises:
        ConfigError: if the scale or a criterion is invalid.

    Warns:
        UserWarning: if the scale is wider than 10 steps, or the judge's temperature above 0.3 with a single draw.
    """
    judge = request_probabilities(judge, expected)
    lowest, highest = scale = check_scale(scale)
    check_choice("examples", examples, get_args(Examples))
    by_language = (
        default_criteria(scale) if criteria is None else {DEFAULT_LANGUAGE: _validate_criteria(criteria, scale)}
    )
    if highest - lowest > _MAX_STEPS:
        warnings.warn(
            f"a scale from {lowest} to {highest} has {highest - lowest} steps: neither people nor judges can "
            "distinguish that many grades consistently; use 0 to 3 or 1 to 5, which loses little information",
            stacklevel=2,
        )
    hot = [t for t in _temperatures(judge) if t > _MAX_TEMPERATURE] if len(voters_of(judge)) == 1 else []
    if hot:
        warnings.warn(
            f"the judge's temperature is {hot[0]:g}: the same answer may get another grade next time; use "
            f"{_MAX_TEMPERATURE} or less, or Judge(model, draws=3)",
            stacklevel=2,
        )
    own = by_language[DEFAULT_LANGUAGE]
    if criteria is None:
        _check_names_of_prompts(judge, [criterion.name for criterion in own])
    weights = {criterion.name: criterion.weight for criterion in own}
    return Metric(
        name,
        aspect="answer",
        reads={"question", "answer"},
        steps=grade_rubric(
            judge, by_language, scale, with_examples=examples == "per_grade", replaceable=criteria is None
        ),
        reduce=partial(expected_grade if expected else weighted_grade, weights=weights, scale=scale),
        options={"weights": weights, "scale": list(scale)},
        state_from_findings=partial(_state_from_findings, names=list(weights), scale=scale),
    )


def weighted_grade(state: State, *, weights: Mapping[str, float], scale: Scale) -> Value:
    """Return the weighted mean of the answer's grades by all criteria: 0 if all are the lowest, 1 if all the highest.

    `weights` maps the name of each criterion to its weight; `scale` is the lowest and the highest grade.
    """
    sample: Sample = state["sample"]
    findings: list[Finding] = state["rubric_grades"]
    grades = {finding.text: int(finding.verdict) for finding in findings if finding.kind == "criterion"}
    blank = not (sample.answer or "").strip()
    note = Note("grades-on-scale", lowest=scale[0], highest=scale[1], grades=_named_grades(grades))
    text = sample.language_text
    reason = f"{explain(text, Note('blank-answer'))} {explain(text, note)}" if blank else explain(text, note)
    return Value(_weighted(grades, weights, scale), reason, findings)


def expected_grade(state: State, *, weights: Mapping[str, float], scale: Scale) -> Value:
    """Return the weighted mean of the expected grades of the answer: 0 if all are the lowest, 1 if all the highest.

    The expected grade by a criterion is Σ probability · grade, by the judge's probabilities of the grades. A grade
    without probabilities counts as certain. `weights` maps the name of each criterion to its weight.
    """
    findings: list[Finding] = state["rubric_grades"]
    expected = {
        finding.text: fsum(grade * finding.probability_of(str(grade)) for grade in range(scale[0], scale[1] + 1))
        for finding in findings
        if finding.kind == "criterion"
    }
    plain = weighted_grade(state, weights=weights, scale=scale)
    if not any(finding.probabilities for finding in findings):
        return plain
    shown = _named_grades({name: f"{one:.2f}" for name, one in expected.items()})
    added = explain(state["sample"].language_text, Note("grades-by-probabilities", grades=shown))
    return replace(plain, number=_weighted(expected, weights, scale), reason=f"{plain.reason} {added}")


def _weighted(grades: Mapping[str, float], weights: Mapping[str, float], scale: Scale) -> float:
    """Return the weighted mean of grades, from 0 if all are the lowest to 1 if all are the highest."""
    lowest, highest = scale
    parts = [weights[name] * (grade - lowest) / (highest - lowest) for name, grade in grades.items()]
    return min(max(fsum(parts) / fsum(weights.values()), 0.0), 1.0)


def _state_from_findings(sample: Sample, score: Score, *, names: Sequence[str], scale: Scale) -> State | None:
    """Return the state from the findings of a score, or None if it used other criteria or grades off the scale."""
    graded = [finding for finding in score.findings if finding.kind != "agreement"]
    on_scale = {str(grade) for grade in range(scale[0], scale[1] + 1)}
    same = sorted(finding.text for finding in graded) == sorted(names)
    if not same or any(finding.kind != "criterion" or finding.verdict not in on_scale for finding in graded):
        return None
    return {"sample": sample, "rubric_grades": score.findings}


def _named_grades(grades: Mapping[str, int | str]) -> list[Note]:
    names = {name: Note(f"criterion-{name}") if name in _NAMED else name for name in grades}
    return [Note("named-grade", name=names[name], grade=grade) for name, grade in grades.items()]


def _validate_criteria(criteria: Any, scale: Scale) -> tuple[Criterion, ...]:
    if not isinstance(criteria, Iterable) or isinstance(criteria, str | Mapping | Criterion):
        raise ConfigError(
            f"criteria must be a list of Criterion(name, description, ...), got {type(criteria).__name__}"
        )
    own = tuple(_criterion(item) for item in criteria)
    keys = [criterion_key(criterion.name) for criterion in own]
    if not own or len(set(keys)) < len(keys):
        raise ConfigError(
            f"criteria must contain at least one criterion, and each name once, got {[c.name for c in own]}"
        )
    for criterion in own:
        off = sorted(
            grade
            for grade in {*criterion.grades, *(example.grade for example in criterion.examples)}
            if not scale[0] <= grade <= scale[1]
        )
        if off:
            raise ConfigError(
                f"criterion {criterion.name!r} describes the grades {off}, which are off the scale from {scale[0]} to "
                f"{scale[1]}: change them, or pass scale=(lowest, highest)"
            )
    if not fsum(criterion.weight for criterion in own):
        raise ConfigError("all criteria have weight 0; give at least one of them a positive weight")
    return own


def _check_names_of_prompts(judge: Judge, names: Sequence[str]) -> None:
    """Raise ConfigError if a prompt set of the judge words other criteria than the packaged ones."""
    for member in judge.members:
        worded = [criterion.name for criterion in member.prompts.criteria] if member.prompts else []
        if worded and worded != list(names):
            raise ConfigError(
                f"the criteria of the judge's prompts must be named {', '.join(names)}, got {', '.join(worded)}; pass "
                "other criteria as rubric(judge, criteria=[...])"
            )


def _criterion(item: Any) -> Criterion:
    if isinstance(item, Mapping):
        try:
            return Criterion(**item)
        except TypeError as error:
            raise ConfigError(f"criterion {item.get('name')!r}: {error}") from None
    if not isinstance(item, Criterion):
        raise ConfigError(f"criteria must be Criterion(name, description, ...), got {type(item).__name__}")
    return item


def _temperatures(judge: Judge) -> Iterator[float]:
    """Yield the known temperatures of the judge's models; a bound temperature overrides the model's own."""
    for member in judge.members:
        bound = bound_options(member.model).get("temperature")
        for model in inner_models(member.model):
            temperature = getattr(model, "temperature", None) if bound is None else bound
            if isinstance(temperature, int | float):
                yield temperature
