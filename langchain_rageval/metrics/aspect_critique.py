"""Aspect critique: whether an aspect, such as harmfulness or coherence, applies to the answer.

0 or 1; lower is better for harmfulness and maliciousness, higher for the other built-in aspects. Source: the aspect
critic of ragas, with a majority vote over independent draws.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import get_args

from langchain_rageval.data.schema import Direction, Finding, Sample, Score, without_surrogates
from langchain_rageval.errors import ConfigError, did_you_mean
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.judge.panels import request_probabilities
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.steps.detect import critique_aspect
from langchain_rageval.steps.stage import State


def aspect_critique(
    judge: JudgeLike,
    aspect: str,
    *,
    definition: str | None = None,
    direction: Direction | None = None,
    expected: bool = False,
    name: str | None = None,
) -> Metric:
    """Score 1 if an aspect applies to the answer, else 0.

    Args:
        judge: called once per sample; with `draws`, or as a jury, the majority counts. Contexts over its
            `max_context_tokens` are read in windows: the aspect applies if it does for one of them.
        aspect: "harmfulness", "maliciousness", "coherence", "correctness", "conciseness", or your own word.
        definition: meaning of the aspect, in the language of your prompts; required for your own aspect.
        direction: "higher" if an aspect that applies is good, "lower" if it is bad; by default the direction of the
            built-in aspect, "higher" for your own.
        expected: score the probability that the aspect applies, from the log-probabilities of the judge's tokens, which
            are then requested; a verdict without probabilities counts as certain.
        name: key of the score; the aspect by default.

    Returns:
        A metric that reads `question` and `answer`, and `contexts` if the sample has them: 1 if the aspect applies,
        else 0. The reason is the judge's.

    Raises:
        ConfigError: if your own aspect has no definition, or `direction` is invalid.
    """
    aspect, definition = without_surrogates(aspect), without_surrogates(definition)
    if not aspect or (definition is None and aspect not in ASPECTS):
        raise ConfigError(
            f"{aspect!r} is none of {', '.join(ASPECTS)}; pass definition=... for your own aspect"
            f"{did_you_mean(aspect, ASPECTS)}"
        )
    if not isinstance(definition, str | None):
        raise ConfigError(f"the definition of {aspect!r} must be a str, got {type(definition).__name__}")
    if definition is not None and not definition.strip():
        raise ConfigError(f"the definition of {aspect!r} is blank; describe when the aspect applies")
    if direction not in (None, *get_args(Direction)):
        raise ConfigError(f'direction is "higher" or "lower", got {direction!r}')
    judge = request_probabilities(judge, expected)
    direction = direction or ASPECTS.get(aspect, "higher")
    return Metric(
        name or aspect,
        aspect="answer",
        direction=direction,
        reads={"question", "answer"},
        steps=critique_aspect(judge, aspect, definition=definition),
        reduce=probability_of_aspect if expected else applies,
        options={"aspect": aspect, "definition": definition},
        state_from_findings=partial(_state_from_findings, aspect=aspect),
    )


def applies(state: State) -> Value:
    """Return 1 if the aspect applies, else 0."""
    findings: list[Finding] = state["aspect_verdict"]
    return Value(float(findings[0].verdict == "yes"), findings[0].reason or findings[0].verdict, findings)


def probability_of_aspect(state: State) -> Value:
    """Return the probability that the aspect applies; 1 or 0 for a verdict without probabilities."""
    findings: list[Finding] = state["aspect_verdict"]
    return replace(applies(state), number=min(findings[0].probability_of("yes"), 1.0))


def _state_from_findings(sample: Sample, score: Score, *, aspect: str) -> State | None:
    """Return the state from the findings of a score, or None if it is of another aspect."""
    aspects = [finding.text for finding in score.findings if finding.kind == "aspect"]
    return {"sample": sample, "aspect_verdict": score.findings} if aspects == [aspect] else None
