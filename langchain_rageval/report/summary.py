"""Summary: per metric the mean with its interval, and how many samples it does and does not speak of."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from langchain_rageval.metrics.value import NO_FACTS
from langchain_rageval.report.slices import By, clusters
from langchain_rageval.schema import Aspect, Direction, Row, Score, Usage
from langchain_rageval.statistics import bounded_mean_interval


@dataclass(frozen=True)
class MetricSummary:
    """One metric over the samples of a run.

    Attributes:
        metric: its name.
        aspect: what it looks at.
        direction: whether "higher" or "lower" is better.
        mean: of the scored samples; None when there are none.
        low: lower end of the 95% interval of the mean; None without a mean, or when values lie outside 0 to 1.
        high: its upper end.
        scored: samples with a value.
        unscored: samples to which no value applies.
        failed: samples whose score could not be had.
        abstained: samples whose answer states no facts; None for metrics that do not look.
        usage: what was paid.
    """

    metric: str
    aspect: Aspect
    direction: Direction
    mean: float | None
    low: float | None
    high: float | None
    scored: int
    unscored: int
    failed: int
    abstained: int | None
    usage: Usage

    @property
    def interval(self) -> str:
        """The interval as text, "" when there is none."""
        return "" if self.low is None else f"[{self.low:.3f}, {self.high:.3f}]"

    @property
    def calls(self) -> int:
        """Model calls paid for."""
        return self.usage.calls

    @property
    def input_tokens(self) -> int | None:
        """Tokens read by the model; None when it reports none."""
        return self.usage.input_tokens

    @property
    def output_tokens(self) -> int | None:
        """Tokens written by the model; None when it reports none."""
        return self.usage.output_tokens

    @property
    def seconds(self) -> float:
        """Time spent in model calls, added up over calls side by side."""
        return self.usage.seconds


@dataclass(frozen=True)
class AspectSummary:
    """One aspect: the mean over its metrics' means, those counted as 1 - mean where lower is better."""

    mean: float | None
    metrics: Sequence[str]


class Summary(Mapping[str, MetricSummary]):
    """Metric name to its summary, in the order of the run.

    Attributes:
        aspects: aspect to what its metrics say together.
    """

    def __init__(self, metrics: Iterable[MetricSummary]) -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        names = dict.fromkeys(metric.aspect for metric in self._metrics.values())
        self.aspects: Mapping[str, AspectSummary] = {aspect: self._aspect(aspect) for aspect in names}

    def __getitem__(self, name: str) -> MetricSummary:
        """The summary of one metric."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Number of metrics."""
        return len(self._metrics)

    def __repr__(self) -> str:
        """One line for each metric."""
        return "\n".join(map(summary_line, self.values()))

    def _aspect(self, aspect: str) -> AspectSummary:
        metrics = [metric for metric in self._metrics.values() if metric.aspect == aspect]
        means = [m.mean if m.direction == "higher" else 1 - m.mean for m in metrics if m.mean is not None]
        return AspectSummary(fmean(means) if means else None, [metric.metric for metric in metrics])


def summarise(rows: Sequence[Row], cluster: By | None = None) -> Summary:
    """The summary of some rows; see `Report.summary` for `cluster`."""
    groups = [None] * len(rows) if cluster is None else clusters([row.sample for row in rows], cluster)
    by_metric: dict[str, list[tuple[Score, Hashable]]] = {}
    for row, group in zip(rows, groups, strict=True):
        for name, score in row.scores.items():
            by_metric.setdefault(name, []).append((score, group))
    return Summary(_metric(name, scores, cluster is not None) for name, scores in by_metric.items())


def summary_line(metric: MetricSummary) -> str:
    """A metric's summary in one line of text."""
    mean = "no score" if metric.mean is None else f"{metric.mean:.3f} {metric.interval}".rstrip()
    counts = f"{metric.scored} scored, {metric.unscored} unscored, {metric.failed} failed"
    return f"{metric.metric} {mean} ({counts}; {metric.calls} calls)"


def _metric(name: str, grouped: Sequence[tuple[Score, Hashable]], clustered: bool) -> MetricSummary:
    scores = [score for score, _ in grouped]
    values = [score.value for score in scores if score.value is not None]
    low, high = _interval(values, [group for score, group in grouped if score.value is not None] if clustered else None)
    return MetricSummary(
        metric=name,
        aspect=scores[0].aspect,
        direction=scores[0].direction,
        mean=fmean(values) if values else None,
        low=low,
        high=high,
        scored=len(values),
        unscored=sum(score.unscored is not None for score in scores),
        failed=sum(score.failure is not None for score in scores),
        abstained=_abstained(scores),
        usage=sum((score.usage for score in scores), Usage()),
    )


def _interval(values: Sequence[float], groups: Sequence[Hashable] | None) -> tuple[float, float] | tuple[None, None]:
    bounded = values and min(values) >= 0 and max(values) <= 1
    return bounded_mean_interval(values, clusters=groups) if bounded else (None, None)


def _abstained(scores: Sequence[Score]) -> int | None:
    """How many answers state no facts: unscored, or compared with a reference and found to miss all of it."""
    told = [{finding.kind for finding in score.findings} for score in scores]
    missing = [any(finding.verdict == "FN" for finding in score.findings) for score in scores]
    abstained = [
        (score.unscored or "").startswith(NO_FACTS) or (missed and "statement" not in kinds)
        for score, kinds, missed in zip(scores, told, missing, strict=True)
    ]
    looks = any(abstained) or any("statement" in kinds for kinds in told)
    return sum(abstained) if looks else None
