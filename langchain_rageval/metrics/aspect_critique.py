"""Aspect critique: whether an aspect, such as harmfulness or coherence, applies to the answer.

0 or 1; lower is better for harmfulness and maliciousness. Source: the aspect critic of ragas, with a real vote.
"""

from __future__ import annotations

from functools import partial
from typing import get_args

from langchain_rageval.data.schema import Direction, Finding, Sample, Score, without_surrogates
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics import ASPECTS
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import Value
from langchain_rageval.steps.critique_aspect import critique_aspect
from langchain_rageval.steps.stage import State


def aspect_critique(
    judge: JudgeLike,
    aspect: str,
    *,
    definition: str | None = None,
    direction: Direction | None = None,
    name: str | None = None,
) -> Metric:
    """Ask whether an aspect applies to the answer.

    Args:
        judge: asked once per sample; with `draws`, or as a jury, the majority holds. Of more contexts than its
            `max_context_tokens` it sees the first window.
        aspect: "harmfulness", "maliciousness", "coherence", "correctness", "conciseness", or one of your own.
        definition: what it means, in the language of your prompts; needed for an aspect of your own.
        direction: whether 1, the aspect applies, is the "higher" good or the worse for "lower"; built-in aspects have
            theirs, others are "higher".
        name: key of the score; the aspect by default.

    Returns:
        A metric reading `question` and `answer`, and `contexts` when the sample has them: 1 when the aspect applies,
        else 0. The reason is the judge's.

    Raises:
        ConfigError: if an aspect of your own has no definition in words, or `direction` is neither.
    """
    aspect, definition = without_surrogates(aspect), without_surrogates(definition)
    if not aspect or (definition is None and aspect not in ASPECTS):
        raise ConfigError(f"{aspect!r} is none of {', '.join(ASPECTS)}; for your own aspect say definition=...")
    if not isinstance(definition, str | None):
        raise ConfigError(f"the definition of {aspect!r} is a text, got {type(definition).__name__}")
    if definition is not None and not definition.strip():
        raise ConfigError(f"the definition of {aspect!r} is blank; say when the aspect applies")
    if direction not in (None, *get_args(Direction)):
        raise ConfigError(f'direction is "higher" or "lower", got {direction!r}')
    direction = direction or ASPECTS.get(aspect, "higher")
    return Metric(
        name or aspect,
        aspect="answer",
        direction=direction,
        reads={"question", "answer"},
        steps=critique_aspect(judge, aspect, definition=definition, tie=direction == "lower"),
        reduce=applies,
        options={"aspect": aspect, "definition": definition},
        state_from_findings=partial(restored, aspect=aspect),
    )


def applies(state: State) -> Value:
    """1 when the aspect applies, else 0."""
    findings: list[Finding] = state["aspect_verdict"]
    return Value(float(findings[0].verdict == "yes"), findings[0].reason or findings[0].verdict, findings)


def restored(sample: Sample, score: Score, *, aspect: str) -> State | None:
    """The state from the findings of a score, if it is of the same aspect."""
    judged = [finding.text for finding in score.findings if finding.kind == "aspect"]
    return {"sample": sample, "aspect_verdict": score.findings} if judged == [aspect] else None
