"""Summary of a run: mean with interval, counts and cost of each metric and slice, and why scores are missing."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from langchain_rageval._internal.page import printable_lines
from langchain_rageval.data.schema import Aspect, Direction, Row, Sample, Score, Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.supported import NEITHER_FACTS, NO_FACTS
from langchain_rageval.run.usage import format_money
from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.text.language import detect_language

_MOST_CAUSES = 3
_LONGEST = 300  # characters of a message


@dataclass
class _Cause:
    count: int = 0
    metrics: dict[str, None] = field(default_factory=dict)
    sample: str = ""
    message: str = ""

    def add(self, row: Row, metric: str, score: Score) -> None:
        self.sample = self.sample or row.sample.id
        self.message = self.message or (score.failure.message if score.failure else "")
        self.count += 1
        self.metrics[metric] = None


def missing_scores(rows: Iterable[Row]) -> list[str]:
    """Return a line for each cause of missing scores: failures first, most frequent cause first, at most three each.

    Failures have one cause if they have the same error in the same step; the line quotes the first message.
    """
    failed: dict[str, _Cause] = {}
    unscored: dict[str, _Cause] = {}
    for row in rows:
        for name, score in row.scores.items():
            if score.failure is not None:
                step = f" in {score.failure.step}" if score.failure.step else ""
                failed.setdefault(score.failure.error + step, _Cause()).add(row, name, score)
            elif score.unscored is not None:
                unscored.setdefault(score.unscored, _Cause()).add(row, name, score)
    lines = [*_lines("Failed", failed), *_lines("Unscored", unscored)]
    return [" ".join(line.split()) for line in lines]


def _lines(outcome: str, causes: Mapping[str, _Cause]) -> Iterator[str]:
    ordered = sorted(causes.items(), key=lambda item: -item[1].count)
    for name, cause in ordered[:_MOST_CAUSES]:
        line = f"{outcome}: {cause.count} of {', '.join(cause.metrics)}: {_cut(name)}, first in sample {cause.sample!r}"
        yield f"{line}: {_cut(cause.message)}" if cause.message else line
    if others := ordered[_MOST_CAUSES:]:
        yield f"{outcome}: {sum(cause.count for _, cause in others)} for other causes"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


By = str | Callable[[Sample], Any]

NONE = "(none)"
"""Slice of the rows without a value."""

AUTO = "auto"
"""Cluster that groups the samples of a conversation, if there are any; no path of a sample is called so."""

CONVERSATION = "metadata.conversation"
"""Path of the id of the conversation that a sample is a turn of."""


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Slicer:
    """Function from a sample to the name of its slice.

    Args:
        by: a function of the sample; or the name or dotted path of a field, such as "metadata.split", where
            "metadata." may be left out. A "language" that is not in the metadata is detected from the question.

    Raises:
        ConfigError: if `by` is neither a text nor a function.
    """

    def __init__(self, by: By) -> None:
        if not isinstance(by, str) and not callable(by):
            raise ConfigError(f"a slice or cluster is a path such as 'metadata.split', or a function, got {by!r}")
        self._by = by
        self._seen = self._known = False
        self._metadata: set[str] = set()

    def slice_of(self, sample: Sample) -> str | None:
        """Return the value as text, or None if it is missing or blank."""
        label = _text(_value_at(sample, self._by) if isinstance(self._by, str) else self._by(sample))
        self._seen, self._known = True, self._known or label is not None
        self._metadata.update(sample.metadata)
        return label

    def check_known(self) -> None:
        """Raise ConfigError if there were samples and none of them had a value."""
        if self._seen and not self._known:
            fields = ", ".join(f"metadata.{name}" for name in sorted(self._metadata))
            raise ConfigError(f"no sample has a value for {self._by!r}; the metadata are {fields or 'empty'}")


def clusters_of(samples: Iterable[Sample], by: By) -> list[str | int]:
    """Return the cluster of each sample, in order; a sample without a value is a cluster by itself.

    Raises:
        ConfigError: if there are samples and none of them has a value.
    """
    slicer = Slicer(by)
    clusters = [slicer.slice_of(sample) or place for place, sample in enumerate(samples)]
    slicer.check_known()
    return clusters


def conversation_of(sample: Sample) -> str | None:
    """Return the id of the conversation that a sample is a turn of, as text; None if it is no turn of a known one."""
    return _text(_value_at(sample, CONVERSATION))


def in_reading_order(labels: Iterable[str]) -> list[str]:
    """Return the names of slices in their order; in numeric order if all are numbers, such as those of turns."""
    names = list(labels)
    return sorted(names, key=float) if all(map(_NUMBER.fullmatch, names)) else names


def _value_at(sample: Sample, path: str) -> Any:
    head, _, rest = path.partition(".")
    if head in Sample.model_fields:
        return _inside(getattr(sample, head), rest)
    value = _inside(sample.metadata, path)
    return detect_language(sample.question) if value is None and path == "language" else value


def _inside(value: Any, path: str) -> Any:
    if not path or value is None:
        return value
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    head, _, rest = path.partition(".")
    return _inside(value.get(head), rest) if rest else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except TypeError:  # keys of types that JSON lacks, or that cannot be sorted
        return str(value)


_ALL = "all"


@dataclass(frozen=True)
class MetricSummary:
    """Summary of one metric over the samples of a run.

    Attributes:
        metric: name of the metric.
        aspect: the aspect that it measures.
        direction: "higher" or "lower", whichever is better.
        mean: mean over the scored samples; None if there are none.
        low: lower end of the 95% interval of the mean; None without a mean, or if values lie outside 0 to 1.
        high: upper end of the interval.
        scored: number of samples with a value.
        unscored: number of samples to which no value applies.
        failed: number of samples whose score failed.
        abstained: number of samples whose answer states no facts; None for metrics that cannot see it.
        usage: calls, tokens and seconds.
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
        """The confidence interval as text, or "" if there is none."""
        return "" if self.low is None else f"[{self.low:.3f}, {self.high:.3f}]"

    @property
    def calls(self) -> int:
        """Number of model calls of the metric over all samples."""
        return self.usage.calls

    @property
    def input_tokens(self) -> int | None:
        """Number of tokens that the model read for this metric; None if it reports none."""
        return self.usage.input_tokens

    @property
    def output_tokens(self) -> int | None:
        """Number of tokens that the model wrote for this metric; None if it reports none."""
        return self.usage.output_tokens

    @property
    def money(self) -> float | None:
        """Money that the calls of the metric cost; None if prices or tokens are unknown."""
        return self.usage.money

    @property
    def seconds(self) -> float:
        """Seconds spent in model calls for this metric; concurrent calls are added up."""
        return self.usage.seconds


@dataclass(frozen=True)
class AspectSummary:
    """Mean over the means of an aspect's metrics, taken as 1 - mean if lower is better.

    A metric with values outside 0 to 1 has another scale, such as a mean grade, and is excluded.
    """

    mean: float | None
    metrics: Sequence[str]


class Summary(Mapping[str, MetricSummary]):
    """Mapping of metric names to summaries, in the order of the run.

    Attributes:
        aspects: mapping of aspects to the means over their metrics.
    """

    def __init__(self, metrics: Iterable[MetricSummary]) -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        names = dict.fromkeys(metric.aspect for metric in self._metrics.values())
        self.aspects: Mapping[str, AspectSummary] = {aspect: self._aspect(aspect) for aspect in names}

    def __getitem__(self, name: str) -> MetricSummary:
        """Return the summary of a metric by its name."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return the number of metrics in the summary."""
        return len(self._metrics)

    def __repr__(self) -> str:
        """Return the summary as text: one line for each metric."""
        return printable_lines("\n".join(map(summary_line, self.values())))

    def _aspect(self, aspect: str) -> AspectSummary:
        of_aspect = [metric for metric in self._metrics.values() if metric.aspect == aspect]
        metrics = [metric for metric in of_aspect if metric.mean is None or metric.low is not None]
        means = [m.mean if m.direction == "higher" else 1 - m.mean for m in metrics if m.mean is not None]
        return AspectSummary(fmean(means) if means else None, [metric.metric for metric in metrics])


def summarise(rows: Iterable[Row], cluster: By | None = AUTO) -> Summary:
    """Return the summary of rows; see `Report.summary` for `cluster`."""
    return summarise_slices(rows, lambda _sample: _ALL, cluster).get(_ALL, Summary([]))


def summarise_slices(rows: Iterable[Row], by: By, cluster: By | None = AUTO) -> dict[str, Summary]:
    """Return the summary of each slice of rows, which are iterated once; see `Report.summary`.

    Raises:
        ConfigError: if there are rows, and no sample has a value for `by` or `cluster`.
    """
    slices = Slicer(by)
    is_auto = cluster == AUTO
    clusters = None if cluster is None else Slicer(CONVERSATION if is_auto else cluster)
    tallies: dict[str, dict[str, Tally]] = {}
    for place, row in enumerate(rows):
        tally = tallies.setdefault(slices.slice_of(row.sample) or NONE, {})
        group: Hashable = None
        if clusters is not None:
            group = clusters.slice_of(row.sample) or place  # a sample without a value is a cluster by itself
        for name, score in row.scores.items():
            tally.setdefault(name, Tally(name, score)).add(score, group)
    for slicer in (slices, None if is_auto else clusters):
        if slicer is not None:
            slicer.check_known()
    known = in_reading_order(label for label in tallies if label != NONE)
    return {
        label: Summary(
            counted.summary(counted.has_shared_clusters if is_auto else clusters is not None)
            for counted in tallies[label].values()
        )
        for label in [*known, *({NONE} & tallies.keys())]  # the rows without a value come last
    }


def summary_line(metric: MetricSummary) -> str:
    """Return the summary of a metric as one line of text."""
    mean = "no score" if metric.mean is None else f"{metric.mean:.3f} {metric.interval}".rstrip()
    counts = f"{metric.scored} scored, {metric.unscored} unscored, {metric.failed} failed"
    cost = f"{metric.calls} calls" + ("" if metric.money is None else f", {format_money(metric.money)} money")
    return f"{metric.metric} {mean} ({counts}; {cost})"


def summary_content(summary: Summary) -> tuple[Sequence[str], list[tuple[str, ...]]]:
    """Return headings and lines of the table of a summary; with a column for money if that of a metric is known."""
    lines = list(map(summary_cells, summary.values()))
    if all(metric.money is None for metric in summary.values()):
        return SUMMARY_HEADINGS, lines
    money = (format_money(metric.money) for metric in summary.values())
    return [*SUMMARY_HEADINGS, "money"], [(*line, amount) for line, amount in zip(lines, money, strict=True)]


SUMMARY_HEADINGS = ("metric", "mean", "95% interval", "scored", "unscored", "failed", "abstained", "calls", "tokens")


def summary_cells(metric: MetricSummary) -> tuple[str, ...]:
    """Return the summary of a metric as texts, one for each column of `SUMMARY_HEADINGS`."""
    tokens = (metric.input_tokens, metric.output_tokens)
    return (
        metric.metric,
        "–" if metric.mean is None else f"{metric.mean:.3f}",
        metric.interval or "–",
        str(metric.scored),
        str(metric.unscored),
        str(metric.failed),
        "–" if metric.abstained is None else str(metric.abstained),
        str(metric.calls),
        "–" if tokens == (None, None) else str(sum(count or 0 for count in tokens)),
    )


class Tally:
    """Running counts of one metric; of each score it stores only the value and the cluster.

    Args:
        name: name of the metric in the rows; a custom metric may use another one in its scores.
        first: the first score; its aspect and direction apply to all.
    """

    def __init__(self, name: str, first: Score) -> None:
        self._name = name
        self._first = first
        self._values = array("d")
        self._groups: list[Hashable] = []
        self._unscored = self._failed = self._abstained = 0
        self._sees_abstention = False
        self._usage = Usage()

    def add(self, score: Score, group: Hashable) -> None:
        """Add a score to the counts."""
        if score.value is not None:
            self._values.append(score.value)
            self._groups.append(group)
        self._unscored += score.unscored is not None
        self._failed += score.failure is not None
        kinds = {finding.kind for finding in score.findings}
        abstained = _states_no_facts(score, kinds)
        self._abstained += abstained
        self._sees_abstention = self._sees_abstention or abstained or "statement" in kinds
        self._usage += score.usage

    @property
    def has_shared_clusters(self) -> bool:
        """True if several of the values are of one cluster."""
        return len(set(self._groups)) < len(self._groups)

    def summary(self, clustered: bool) -> MetricSummary:
        """Return the summary of the scores that were added so far."""
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
            abstained=self._abstained if self._sees_abstention else None,
            usage=self._usage,
        )


def _states_no_facts(score: Score, kinds: Collection[str]) -> bool:
    """Return True if the answer states no facts: it is unscored, or misses all of the reference."""
    missed = any(finding.verdict == "FN" for finding in score.findings)
    return score.unscored in (NO_FACTS, NEITHER_FACTS) or (missed and "statement" not in kinds)
