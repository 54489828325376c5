"""Gates: let an input pass, or send it one way or the other, by what a metric says of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.base import coerce_to_runnable

from langchain_rageval.data.schema import Direction, Score
from langchain_rageval.errors import BelowThreshold, ConfigError

if TYPE_CHECKING:
    from langchain_rageval.metrics.metric import Metric

Missing = Literal["raise", "pass"]


def reaches(value: float, threshold: float, direction: Direction) -> bool:
    """Whether a value is at least the threshold, or at most when lower is better."""
    return value >= threshold if direction == "higher" else value <= threshold


def shortfall(score: Score, threshold: float) -> BelowThreshold:
    """What is raised when a score does not reach its threshold, or has no value to compare."""
    limit = f"at least {threshold:g}" if score.direction == "higher" else f"at most {threshold:g}"
    if score.value is None:
        return BelowThreshold(f"{score.metric} has no value ({score.comment}), {limit} is asked", score, threshold)
    return BelowThreshold(f"{score.metric} is {score.value:.3f}, {limit} is asked: {score.reason}", score, threshold)


def gate(metric: Metric, threshold: float, missing: Missing) -> Runnable[Any, Any]:
    """Pass the input on, or raise BelowThreshold."""

    def judged(given: Any, passed: bool, score: Score) -> Any:
        if not passed:
            raise shortfall(score, threshold)
        return given

    return _scored(metric, threshold, missing, judged, f"require_{metric.name}")


def fork(metric: Metric, threshold: float, then: Any, otherwise: Any, missing: Missing) -> Runnable[Any, Any]:
    """Give the input to one Runnable when it reaches the threshold, to another when it does not."""
    branches = {True: coerce_to_runnable(then), False: coerce_to_runnable(otherwise)}

    def judged(_given: Any, passed: bool, score: Score) -> Any:
        if score.value is None and not passed:
            raise shortfall(score, threshold)
        return branches[passed]  # RunnableLambda runs what it returns, on the same input

    return _scored(metric, threshold, missing, judged, f"route_{metric.name}")


def _scored(
    metric: Metric, threshold: float, missing: Missing, judged: Callable[[Any, bool, Score], Any], name: str
) -> Runnable[Any, Any]:
    if missing not in ("raise", "pass"):
        raise ConfigError(f"missing is 'raise' or 'pass', got {missing!r}")
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise ConfigError(f"threshold takes a number, got {threshold!r}")

    def passes(score: Score) -> bool:
        if score.value is None:
            return missing == "pass"
        return reaches(score.value, threshold, metric.direction)

    def run(given: Any, config: RunnableConfig) -> Any:
        score = metric.outcomes(given, config)[metric.name]
        return judged(given, passes(score), score)

    async def arun(given: Any, config: RunnableConfig) -> Any:
        score = (await metric.aoutcomes(given, config))[metric.name]
        return judged(given, passes(score), score)

    return RunnableLambda(run, arun, name=name)
