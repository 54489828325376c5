"""Inputs of an evaluation: samples and metrics in every form that users may pass."""

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


def prepare_samples(samples: Any, metrics: Sequence[AnyMetric]) -> Any:
    """Return an iterable of samples; the items of a list or DataFrame are parsed and checked against every metric.

    Raises:
        SampleError: if an item of a list or DataFrame is invalid or lacks a field that a metric reads.
        ConfigError: if the argument cannot be iterated.
    """
    if isinstance(samples, str | Path):
        return read_samples(samples)
    if hasattr(samples, "to_dict") and hasattr(samples, "columns"):
        samples = samples.to_dict("records")
    if hasattr(samples, "to_samples"):  # a Testset: its rows are not samples yet
        samples = samples.to_samples()
    if isinstance(samples, Mapping | Sample):
        raise ConfigError("samples must be a collection; put a single sample in a list, or call the metric's invoke")
    if not any(hasattr(samples, name) for name in ("__iter__", "__aiter__", "__getitem__")):
        expected = "samples must be a list, an iterator, a path, a DataFrame or a data set"
        raise ConfigError(f"{expected}, got {type(samples).__name__}")
    if not isinstance(samples, Sequence):
        return samples
    parsed = [_parse_complete(item, metrics) for item in samples]
    _check_ids(parsed)
    return parsed


def flatten_metrics(metrics: AnyMetric | Sequence[AnyMetric]) -> list[AnyMetric]:
    """Return the metrics as a list, with each suite replaced by its metrics.

    Raises:
        ConfigError: if there are no metrics, one is not a Runnable, or two have the same name.
    """
    single = isinstance(metrics, Runnable) or not isinstance(metrics, Iterable)
    items: list[Any] = [metrics] if single else list(metrics)  # type: ignore[arg-type]
    if not items:
        raise ConfigError("evaluate takes at least one metric, such as faithfulness(judge)")
    for metric in items:
        if not isinstance(metric, Runnable):
            hint = "; call it with a judge" if callable(metric) else ""
            raise ConfigError(f"a metric is a Runnable, got {type(metric).__name__}{hint}")
    flat = [part for metric in items for part in (metric.metrics if isinstance(metric, Suite) else [metric])]
    check_unique([name for metric in flat for name in names_of(metric)])
    return flat


def check_unique(names: Sequence[str]) -> None:
    """Raise ConfigError if two metrics have the same name."""
    if len(set(names)) < len(names):
        repeated = sorted(name for name, count in Counter(names).items() if count > 1)
        raise ConfigError(f"two metrics are named {repeated}; give one of them another with name=...")


async def iterate_samples(samples: Any) -> AsyncIterator[Any]:
    """Yield the samples of an iterable or async iterable."""
    if hasattr(samples, "__aiter__"):
        async for item in samples:
            yield item
    else:
        for item in samples:
            yield item


def size_of(samples: Any) -> int | None:
    """Return the number of samples, or None if it is unknown."""
    return len(samples) if hasattr(samples, "__len__") else None


def _parse_complete(item: Any, metrics: Sequence[AnyMetric]) -> Sample:
    sample = Sample.parse(item)
    for metric in metrics:
        if not isinstance(metric, RunnableSequence):  # in a chain, the metric reads the output of the step before it
            for part in metrics_in(metric):
                part.read(sample)
    return sample


def _check_ids(samples: Sequence[Sample]) -> None:
    """Raise SampleError if two samples with different content have the same id."""
    by_id: dict[str, Sample] = {}
    for sample in samples:
        first = by_id.setdefault(sample.id, sample)
        if first is not sample and _content(first) != _content(sample):
            raise SampleError(
                f"two different samples have the id {sample.id!r}; give each its own, or leave the ids out", "id"
            )


def _content(sample: Sample) -> dict[str, Any]:
    """Return the fields of a sample that determine its default id; samples that agree in them count as equal."""
    return sample.model_dump(exclude={"metadata", "relevance"})
