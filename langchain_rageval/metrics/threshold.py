"""Thresholds: Runnables that pass on, reject or route an input by the score of a metric."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.base import coerce_to_runnable

from langchain_rageval.data.schema import Direction, Score
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.metrics.sample_scores import acollect_scores, collect_scores
from langchain_rageval.metrics.structure import Scorer

OnMissing = Literal["raise", "pass"]
"""Treatment of a score without a value, unscored or failed."""


def reaches(value: float, threshold: float, direction: Direction) -> bool:
    """Return True if a value is at least the threshold, or at most the threshold when lower is better."""
    return value >= threshold if direction == "higher" else value <= threshold


def below_threshold(score: Score, threshold: float) -> BelowThreshold:
    """Return the error for a score that is worse than its threshold or has no value."""
    limit = f"at least {threshold:g}" if score.direction == "higher" else f"at most {threshold:g}"
    if score.value is None:
        return BelowThreshold(f"{score.metric} has no value ({score.comment}), {limit} is required", score, threshold)
    return BelowThreshold(f"{score.metric} is {score.value:.3f}, {limit} is required: {score.reason}", score, threshold)


def require_threshold(metric: Scorer, threshold: float, missing: OnMissing) -> Runnable[Any, Any]:
    """Return a Runnable that passes its input on, or raises BelowThreshold; see `Metric.require`."""

    def decide(input: Any, passed: bool, score: Score) -> Any:
        if not passed:
            raise below_threshold(score, threshold)
        return input

    return _threshold_runnable(metric, threshold, missing, decide, f"require_{metric.name}")


def route_by_threshold(
    metric: Scorer, threshold: float, then: Any, otherwise: Any, missing: OnMissing
) -> Runnable[Any, Any]:
    """Return a Runnable that passes its input to one of two branches; see `Metric.route`."""
    branches = {True: coerce_to_runnable(then), False: coerce_to_runnable(otherwise)}

    def decide(_input: Any, passed: bool, score: Score) -> Any:
        if score.value is None and not passed:
            raise below_threshold(score, threshold)
        return branches[passed]  # RunnableLambda runs the Runnable that it returns, on the same input

    return _threshold_runnable(metric, threshold, missing, decide, f"route_{metric.name}")


def _threshold_runnable(
    metric: Scorer, threshold: float, missing: OnMissing, decide: Callable[[Any, bool, Score], Any], name: str
) -> Runnable[Any, Any]:
    """Return a Runnable that scores its input and returns the result of `decide(input, passed, score)`."""
    if missing not in ("raise", "pass"):
        raise ConfigError(f"missing must be 'raise' or 'pass', got {missing!r}")
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise ConfigError(f"threshold must be a finite number, got {threshold!r}")

    def passes(score: Score) -> bool:
        if score.value is None:
            return missing == "pass"
        return reaches(score.value, threshold, metric.direction)

    key = metric.name  # LangChain finds the metric for the graph only where a function loads it without an attribute

    def run(input: Any, config: RunnableConfig) -> Any:
        score = collect_scores(metric, input, config)[key]
        return decide(input, passes(score), score)

    async def arun(input: Any, config: RunnableConfig) -> Any:
        score = (await acollect_scores(metric, input, config))[key]
        return decide(input, passes(score), score)

    return RunnableLambda(run, arun, name=name)
