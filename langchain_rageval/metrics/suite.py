"""Suite: several metrics as one Runnable that runs their common steps once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableParallel
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.adapters import Adapters
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import parse_complete_sample, remedy_for
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.run import Run, Traced


class Suite(Traced[Any, dict[str, Score]], Adapters):
    """Runnable from a sample to a mapping of names to scores, one for each metric. Build one with `suite(...)`."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    metrics: tuple[Metric, ...]

    def __repr__(self) -> str:
        """Return the suite as text: its metrics and their judges, without secrets."""
        return f"suite({', '.join(map(repr, self.metrics))})"

    __str__ = __repr__

    @property
    def _scorers(self) -> Sequence[Metric]:
        return self.metrics

    @property
    def reads(self) -> frozenset[str]:
        """All fields that at least one of the metrics reads."""
        return frozenset[str]().union(*(metric.reads for metric in self.metrics))

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return a graph of the metrics side by side, each with its steps."""
        return RunnableParallel({metric.name: metric for metric in self.metrics}).get_graph(config)

    def _do(self, input: Any, config: RunnableConfig) -> dict[str, Score]:
        sample, run = parse_complete_sample(self.metrics, input), Run.of(config).for_sample()
        shared = run.into(config)
        scores = run.threads.gather([partial(metric.invoke, sample, shared) for metric in self.metrics])
        return dict(zip(self.feedback_keys, scores, strict=True))

    async def _ado(self, input: Any, config: RunnableConfig) -> dict[str, Score]:
        sample: Sample = parse_complete_sample(self.metrics, input)
        shared = Run.of(config).for_sample().into(config)
        scores = await agather(metric.ainvoke(sample, shared) for metric in self.metrics)
        return dict(zip(self.feedback_keys, scores, strict=True))


def suite(*metrics: Metric | Suite) -> Suite:
    """Return a Runnable from a sample to a mapping of names to scores; steps that metrics share are run once.

    Raises:
        ConfigError: if two `metrics` have the same name, or one is not a metric.
    """
    flat = [part for metric in metrics for part in _parts(metric)]
    names = [metric.name for metric in flat]
    if len({*names}) < len(names) or not flat:
        raise ConfigError(f"a suite takes metrics of different names, got {names}; rename one of them with name=...")
    return Suite(metrics=tuple(flat))


def _parts(metric: Metric | Suite) -> Sequence[Metric]:
    if not isinstance(metric, Metric | Suite):
        remedy = "wrap the whole suite instead" if isinstance(metric, Runnable) else "pass them as suite(one, two)"
        raise ConfigError(f"a suite takes metrics, got {type(metric).__name__}{remedy_for(metric) or f'; {remedy}'}")
    return metric.metrics if isinstance(metric, Suite) else [metric]
