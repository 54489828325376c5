"""What a run takes: samples and metrics, in every form in which users have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval.data.loading import read_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.metrics.suite import Suite

Samples = Iterable[Any] | str | Path
AnyMetric = Runnable[Any, Any]


def checked(samples: Any, metrics: Sequence[AnyMetric]) -> Any:
    """The samples to iterate; those of a list or DataFrame parsed, and complete for every metric.

    Raises:
        SampleError: if one is not.
        ConfigError: if there is nothing to iterate.
    """
    if isinstance(samples, str | Path):
        return read_samples(samples)
    if hasattr(samples, "to_dict") and hasattr(samples, "columns"):
        samples = samples.to_dict("records")
    if hasattr(samples, "to_samples"):  # a Testset, whose rows are no samples yet
        samples = samples.to_samples()
    if isinstance(samples, Mapping | Sample):
        raise ConfigError("samples takes several; put a single one in a list, or call the metric's invoke")
    if not any(hasattr(samples, name) for name in ("__iter__", "__aiter__", "__getitem__")):
        took = "samples takes a list, an iterator, a path, a DataFrame or a data set"
        raise ConfigError(f"{took}, got {type(samples).__name__}")
    if not isinstance(samples, Sequence):
        return samples
    parsed = [_complete(item, metrics) for item in samples]
    _refuse_one_id_for_two(parsed)
    return parsed


def flattened(metrics: AnyMetric | Sequence[AnyMetric]) -> list[AnyMetric]:
    """The metrics, those of a suite one by one.

    Raises:
        ConfigError: if there are none, one is no Runnable, or two have one name.
    """
    single = isinstance(metrics, Runnable) or not isinstance(metrics, Iterable)
    given: list[Any] = [metrics] if single else list(metrics)  # type: ignore[arg-type]
    if not given:
        raise ConfigError("evaluate takes at least one metric, such as faithfulness(judge)")
    for metric in given:
        if not isinstance(metric, Runnable):
            hint = "; call it with a judge" if callable(metric) else ""
            raise ConfigError(f"a metric is a Runnable, got {type(metric).__name__}{hint}")
    flat = [part for metric in given for part in (metric.metrics if isinstance(metric, Suite) else [metric])]
    refuse_doubled([name for metric in flat for name in names_of(metric)])
    return flat


def refuse_doubled(names: Sequence[str]) -> None:
    """Raise ConfigError if two are the same."""
    if len(set(names)) < len(names):
        doubled = sorted(name for name, times in Counter(names).items() if times > 1)
        raise ConfigError(f"two metrics are named {doubled}; give one of them another with name=...")


async def each_of(samples: Any) -> AsyncIterator[Any]:
    """The samples, whichever way they are iterated."""
    if hasattr(samples, "__aiter__"):
        async for item in samples:
            yield item
    else:
        for item in samples:
            yield item


def size_of(samples: Any) -> int | None:
    """Number of samples, where it is known beforehand."""
    return len(samples) if hasattr(samples, "__len__") else None


def _complete(item: Any, metrics: Sequence[AnyMetric]) -> Sample:
    sample = Sample.parse(item)
    for metric in metrics:
        if not isinstance(metric, RunnableSequence):  # in a chain, the metric reads what comes before it
            for part in metrics_in(metric):
                part.read(sample)
    return sample


def _refuse_one_id_for_two(samples: Sequence[Sample]) -> None:
    seen: dict[str, Sample] = {}
    for sample in samples:
        first = seen.setdefault(sample.id, sample)
        if first is not sample and _content(first) != _content(sample):
            raise SampleError(
                f"two different samples have the id {sample.id!r}; give each its own, or leave the ids out", "id"
            )


def _content(sample: Sample) -> dict[str, Any]:
    """What the id of a sample without one is made of: equal rows stay separate rows, whatever their metadata."""
    return sample.model_dump(exclude={"metadata", "relevance"})
