"""Outcome: what a metric makes of one sample, with a failure recorded where its `invoke` would raise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from langchain_rageval.data.schema import Failure, Sample, Score, Usage
from langchain_rageval.errors import ConfigError, JudgeOutputError, SampleError, step_of
from langchain_rageval.judge.identity import redact_secrets
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced

_DEEPEST_CAUSE = 10  # an exception may be its own cause


def outcome(
    metric: Runnable[Any, Any], sample: Sample, run: Run, config: RunnableConfig | None, *, untraced: bool = False
) -> dict[str, Score]:
    """The scores of a sample by name, through the metric's `invoke`.

    Args:
        metric: any Runnable that returns a Score or a mapping of names to Scores.
        sample: complete for the metric.
        run: what the metrics of this sample share.
        config: callbacks, tags and the like.
        untraced: whether it is known that nobody listens, so that a metric need not ask; the config is then complete.
    """
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return named(metric.invoke_child(sample, own.into_complete(config or {})))
        return named(metric.invoke(sample, own.into(config)))
    except Exception as error:
        return failures(metric, error, own.meter.usage)


async def aoutcome(
    metric: Runnable[Any, Any], sample: Sample, run: Run, config: RunnableConfig | None, *, untraced: bool = False
) -> dict[str, Score]:
    """As `outcome`, through the metric's `ainvoke`."""
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return named(await metric.ainvoke_child(sample, own.into_complete(config or {})))
        return named(await metric.ainvoke(sample, own.into(config)))
    except Exception as error:
        return failures(metric, error, own.meter.usage)


def named(result: Any) -> dict[str, Score]:
    """The scores in what a metric returned.

    Raises:
        ConfigError: if it returned anything else.
    """
    if isinstance(result, Score):
        return {result.metric: result}
    if isinstance(result, Mapping) and all(isinstance(score, Score) for score in result.values()):
        return dict(result)
    raise ConfigError(f"a metric returns a Score or a mapping of names to Scores, this one a {type(result).__name__}")


def parts_of(metric: Runnable[Any, Any]) -> list[Any]:
    """The metrics within a Runnable: in a suite, behind wrappers, at the end of a chain, as a fallback."""
    if isinstance(metric, RunnableSequence):
        return parts_of(metric.last)
    inner = list(inner_models(metric))
    if inner == [metric]:
        return list(getattr(metric, "parts", []))
    return [part for model in inner for part in parts_of(model)]


def names_of(metric: Runnable[Any, Any]) -> list[str]:
    """Keys of the scores that a metric gives, as far as they can be known beforehand."""
    return list(dict.fromkeys(part.name for part in parts_of(metric))) or [metric.get_name()]


def judges_of(metric: Runnable[Any, Any]) -> list[Any]:
    """The judges that a metric asks."""
    return [judge for part in parts_of(metric) for judge in part.judges]


def models_of(metric: Runnable[Any, Any]) -> list[Any]:
    """The models behind a metric, those within wrappers one by one."""
    return [inner for part in parts_of(metric) for model in part.models for inner in inner_models(model)]


def failures(metric: Runnable[Any, Any], error: Exception, usage: Usage) -> dict[str, Score]:
    """A failure under each name of the metric; the first one carries what was paid."""
    failure = Failure(
        error=type(error).__name__,
        message=_redacted(_told(error), metric),
        step="sample" if isinstance(error, SampleError) else step_of(error),
        raw_output=_redacted(error.raw_output, metric) if isinstance(error, JudgeOutputError) else None,
    )
    parts = {part.name: part for part in reversed(parts_of(metric))}
    return {
        name: Score(
            metric=name,
            aspect=getattr(parts.get(name), "aspect", "answer"),
            direction=getattr(parts.get(name), "direction", "higher"),
            failure=failure,
            usage=usage if number == 0 else Usage(),
            instrument=getattr(parts.get(name), "instrument", ""),
        )
        for number, name in enumerate(names_of(metric))
    }


def _told(error: BaseException) -> str:
    """The error's own words, and those of its first cause where they say more: "Connection error." says little."""
    told, first = str(error) or type(error).__name__, error
    for _ in range(_DEEPEST_CAUSE):
        first = first.__cause__ or first
    return told if str(first) in told else f"{told} ({first})"


def _redacted(text: str, metric: Runnable[Any, Any]) -> str:
    for model in models_of(metric):
        text = redact_secrets(text, model)
    return text
