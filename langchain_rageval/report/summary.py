"""Summary: per metric the mean with its interval, and how many samples it does and does not speak of."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from langchain_rageval.data.schema import Aspect, Direction, Row, Score, Usage
from langchain_rageval.metrics.value import NO_FACTS
from langchain_rageval.report.slices import NONE, By, Labelled
from langchain_rageval.statistics import bounded_mean_interval

_ALL = "all"


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
    """One aspect: the mean over its metrics' means, those counted as 1 - mean where lower is better.

    A metric with values outside 0 to 1 is on another scale, such as a mean grade, and not among them.
    """

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
        of_aspect = [metric for metric in self._metrics.values() if metric.aspect == aspect]
        metrics = [metric for metric in of_aspect if metric.mean is None or metric.low is not None]
        means = [m.mean if m.direction == "higher" else 1 - m.mean for m in metrics if m.mean is not None]
        return AspectSummary(fmean(means) if means else None, [metric.metric for metric in metrics])


def summarise(rows: Iterable[Row], cluster: By | None = None) -> Summary:
    """The summary of some rows; see `Report.summary` for `cluster`."""
    return summarise_slices(rows, lambda _sample: _ALL, cluster).get(_ALL, Summary([]))


def summarise_slices(rows: Iterable[Row], by: By, cluster: By | None = None) -> dict[str, Summary]:
    """The summary of each slice of some rows, which are looked at once; see `Report.summary`.

    Raises:
        ConfigError: if there are rows, and no sample has what `by` or `cluster` names.
    """
    slices = Labelled(by)
    clusters = None if cluster is None else Labelled(cluster)
    tallies: dict[str, dict[str, Tally]] = {}
    for place, row in enumerate(rows):
        tally = tallies.setdefault(slices.of(row.sample) or NONE, {})
        group: Hashable = None
        if clusters is not None:
            group = clusters.of(row.sample) or place  # one without such a value is alone in its own
        for name, score in row.scores.items():
            tally.setdefault(name, Tally(name, score)).add(score, group)
    for labelled in (slices, clusters):
        if labelled is not None:
            labelled.refuse_unknown()
    if NONE in tallies:
        tallies[NONE] = tallies.pop(NONE)  # comes last
    return {
        label: Summary(counted.summary(clusters is not None) for counted in tally.values())
        for label, tally in tallies.items()
    }


def summary_line(metric: MetricSummary) -> str:
    """A metric's summary in one line of text."""
    mean = "no score" if metric.mean is None else f"{metric.mean:.3f} {metric.interval}".rstrip()
    counts = f"{metric.scored} scored, {metric.unscored} unscored, {metric.failed} failed"
    return f"{metric.metric} {mean} ({counts}; {metric.calls} calls)"


class Tally:
    """One metric of a run, counted score by score; of each it keeps a number and a cluster.

    Args:
        name: under which the rows have its scores; a user's own metric may name them otherwise than the scores do.
        first: of them, whose aspect and direction are those of all.
    """

    def __init__(self, name: str, first: Score) -> None:
        self._name = name
        self._first = first
        self._values = array("d")
        self._groups: list[Hashable] = []
        self._unscored = self._failed = self._abstained = 0
        self._looks = False
        self._usage = Usage()

    def add(self, score: Score, group: Hashable) -> None:
        """Count a score."""
        if score.value is not None:
            self._values.append(score.value)
            self._groups.append(group)
        self._unscored += score.unscored is not None
        self._failed += score.failure is not None
        kinds = {finding.kind for finding in score.findings}
        abstained = _states_no_facts(score, kinds)
        self._abstained += abstained
        self._looks = self._looks or abstained or "statement" in kinds
        self._usage += score.usage

    def summary(self, clustered: bool) -> MetricSummary:
        """What was counted."""
        values = self._values
        bounded = bool(values) and min(values) >= 0 and max(values) <= 1
        interval = bounded_mean_interval(values, clusters=self._groups if clustered else None) if bounded else None
        low, high = interval or (None, None)
        return MetricSummary(
            metric=self._name,
            aspect=self._first.aspect,
            direction=self._first.direction,
            mean=fmean(values) if values else None,
            low=low,
            high=high,
            scored=len(values),
            unscored=self._unscored,
            failed=self._failed,
            abstained=self._abstained if self._looks else None,
            usage=self._usage,
        )


def _states_no_facts(score: Score, kinds: Collection[str]) -> bool:
    """Whether the answer states no facts: unscored, or compared with a reference and found to miss all of it."""
    missed = any(finding.verdict == "FN" for finding in score.findings)
    return (score.unscored or "").startswith(NO_FACTS) or (missed and "statement" not in kinds)
