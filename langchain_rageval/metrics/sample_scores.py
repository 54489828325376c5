"""Scores of one sample by name, with a recorded failure in place of an exception."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from json import JSONDecodeError
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rageval._internal.redaction import LONGEST_MESSAGE, cut_middle, redact_secrets
from langchain_rageval.data.schema import Failure, Sample, Score, Usage
from langchain_rageval.errors import ConfigError, JudgeOutputError, SampleError, message_of, step_of
from langchain_rageval.metrics.structure import AnyScorer, Scorer, metrics_in, names_of
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced, ainvoke_child, invoke_child

_MAX_CAUSES = 10  # an exception may be its own cause
_LONGEST_REPLY = 10_000  # characters


def score_sample(
    metric: Runnable[Any, Any] | Scorer,
    sample: Sample,
    run: Run,
    config: RunnableConfig | None,
    *,
    untraced: bool = False,
) -> dict[str, Score]:
    """Score a sample through the metric's `invoke`; an exception becomes a failure under each of its names.

    Args:
        metric: any Runnable that returns a Score or a mapping of names to Scores.
        sample: has all fields that the metric reads.
        run: shared by the metrics of this sample.
        config: callbacks, tags and other settings of LangChain.
        untraced: True if the caller knows that no callback handler is attached and `config` is complete; the metric
            then does not check.
    """
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return scores_by_name(invoke_child(metric, sample, own.into_complete(config or {})))
        return scores_by_name(metric.invoke(sample, own.into(config)))
    except Exception as error:
        return failure_scores(metric, error, own.meter.usage)


async def ascore_sample(
    metric: Runnable[Any, Any] | Scorer,
    sample: Sample,
    run: Run,
    config: RunnableConfig | None,
    *,
    untraced: bool = False,
) -> dict[str, Score]:
    """Score a sample through the metric's `ainvoke`; otherwise like `score_sample`."""
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return scores_by_name(await ainvoke_child(metric, sample, own.into_complete(config or {})))
        return scores_by_name(await metric.ainvoke(sample, own.into(config)))
    except Exception as error:
        return failure_scores(metric, error, own.meter.usage)


def collect_scores(metric: AnyScorer, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
    """Score an input by each metric of a suite, in parallel threads that share equal steps.

    Args:
        metric: a suite, or a single metric.
        input: anything that `Sample.parse` reads.
        config: callbacks, tags and other settings of LangChain.

    Returns:
        The scores by name, with a failure for each metric that raised.

    Raises:
        SampleError: if the input lacks a field that a metric reads.
    """
    parts, run = metrics_in(metric), Run.of(config or {}).for_sample()
    sample = parse_complete_sample(parts, input)
    return merge_scores(run.threads.gather([partial(score_sample, part, sample, run, config) for part in parts]))


async def acollect_scores(metric: AnyScorer, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
    """Score an input by each metric of a suite on the caller's event loop; otherwise like `collect_scores`."""
    parts, run = metrics_in(metric), Run.of(config or {}).for_sample()
    sample = parse_complete_sample(parts, input)
    return merge_scores(await agather(ascore_sample(part, sample, run, config) for part in parts))


def parse_complete_sample(metrics: Sequence[Scorer], input: Any) -> Sample:
    """Return the sample in an input.

    Raises:
        SampleError: if it lacks a field that one of the metrics reads.
    """
    sample = Sample.parse(input)
    for metric in metrics:
        metric.read(sample)
    return sample


def merge_scores(parts: Sequence[Mapping[str, Score]]) -> dict[str, Score]:
    """Return the scores of several mappings as one."""
    return {name: score for part in parts for name, score in part.items()}


def scores_by_name(result: Any) -> dict[str, Score]:
    """Return the scores in the result of a metric, keyed by name.

    Raises:
        ConfigError: if the result is neither a Score nor a mapping of names to Scores.
    """
    if isinstance(result, Score):
        return {result.metric: result}
    if isinstance(result, Mapping) and all(isinstance(score, Score) for score in result.values()):
        return dict(result)
    raise ConfigError(
        f"a metric returns a Score or a mapping of names to Scores, got {type(result).__name__}: make a metric of a "
        "function with @metric(reads=...)"
    )


def failure_scores(metric: Runnable[Any, Any] | Scorer, error: Exception, usage: Usage) -> dict[str, Score]:
    """Return a failed score for each name of a metric; the first one carries the usage."""
    failure = Failure(
        error=type(error).__name__,
        message=cut_middle(redact_secrets(_error_message(error), metric), LONGEST_MESSAGE),
        step="sample" if isinstance(error, SampleError) else step_of(error),
        raw_output=_raw_output(error, metric) if isinstance(error, JudgeOutputError) else None,
    )
    parts = {part.name: part for part in reversed(metrics_in(metric))}
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


def _error_message(error: BaseException) -> str:
    """Return the message of an error, followed by the message of its first cause if that adds something.

    A client's own message may be as short as "Connection error.".
    """
    message, first = message_of(error), error
    if _is_unreadable_reply(error):
        return f"the reply of the model or its server is not JSON: check the address of the server ({message})"
    for _ in range(_MAX_CAUSES):
        first = first.__cause__ or first
    cause = message_of(first)
    return message if first is error or cause in message else f"{message} ({cause})"


def _is_unreadable_reply(error: BaseException) -> bool:
    """Return True if a client failed to decode the reply of its server, such as the page of a proxy."""
    return step_of(error) is not None and isinstance(error, JSONDecodeError | UnicodeDecodeError)


def _raw_output(error: JudgeOutputError, metric: Runnable[Any, Any] | Scorer) -> str:
    """Return the judge's reply for a report: without secrets, and without its middle part if it is huge."""
    return cut_middle(redact_secrets(error.raw_output, metric), _LONGEST_REPLY)
