"""Audit of a report: the mean that the strong judge would have given all samples, and where the two judges part."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from langchain_rageval.data.schema import Direction, Row, Score, Usage
from langchain_rageval.report.page_blocks import html_table
from langchain_rageval.report.summary import conversation_of
from langchain_rageval.statistics import prediction_powered_mean

SAME = 0.1
"""Largest difference of two scores that count as equal."""

_MOST_PARTED = 10
_Clusters = tuple[Sequence[Hashable], Sequence[Hashable]]


@dataclass(frozen=True)
class PartedScore:
    """Sample on which the two judges of an audit differ.

    Attributes:
        index: index of the sample in the input, from 0.
        id: id of the sample.
        question: its question.
        value: value of the metric's own judge.
        strong: value of the strong judge.
        reason: reason of the strong judge's value.
    """

    index: int
    id: str
    question: str
    value: float
    strong: float
    reason: str

    @property
    def difference(self) -> float:
        """Value of the strong judge minus that of the metric's own judge."""
        return self.strong - self.value


@dataclass(frozen=True)
class MetricAudit:
    """Estimate of the mean that the strong judge of an audit gives a metric.

    Attributes:
        metric: name of the metric.
        direction: "higher" or "lower", whichever is better.
        mean: estimated mean of the strong judge over all samples; None if it scored none of them.
        low: lower end of its 95% interval; None without a mean, or if values lie outside 0 to 1.
        high: upper end of the interval.
        own_mean: mean of the metric's own judge over all samples.
        agreement: share of the audited samples on which the two judges differ by at most 0.1.
        audited: number of samples with values of both judges.
        samples: number of samples with a value of the metric's own judge.
        failed: number of audited samples on which the strong judge failed; they are left out of the estimate.
        usage: what the strong judge cost.
        spared: calls and tokens that it would have cost for the other samples.
        parted: the samples on which the judges differ most, the largest difference first, at most ten.
    """

    metric: str
    direction: Direction
    mean: float | None
    low: float | None
    high: float | None
    own_mean: float | None
    agreement: float | None
    audited: int
    samples: int
    failed: int
    usage: Usage
    spared: Usage
    parted: Sequence[PartedScore] = ()

    @property
    def interval(self) -> str:
        """The confidence interval as text, or "" if there is none."""
        return "" if self.low is None else f"[{self.low:.3f}, {self.high:.3f}]"

    def __str__(self) -> str:
        """Return both means, the agreement and the cost on one line."""
        if self.mean is None:
            return f"{self.metric}: no sample has scores of both judges ({self.failed} failed)"
        cells = f"{self.metric} {self.mean:.3f} {self.interval}".rstrip()
        failed = f", {self.failed} failed" if self.failed else ""
        return (
            f"{cells} by the strong judge, {self.own_mean:.3f} by its own ({self.audited} of {self.samples} samples "
            f"audited{failed}; {self.agreement:.0%} agree; {self.spared.calls} calls spared)"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as data for JSON."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        cost = {"calls": self.usage.calls, "tokens": _tokens(self.usage)}
        spared = {"calls_spared": self.spared.calls, "tokens_spared": _tokens(self.spared)}
        parted = [{"index": one.index, "id": one.id, "value": one.value, "strong": one.strong} for one in self.parted]
        return {**numbers, **cost, **spared, "parted": parted}


class AuditSummary(Mapping[str, MetricAudit]):
    """Mapping from the name of an audited metric to its audit; empty if the report has none.

    Attributes:
        judge: name of the strong judge; "" if it was not recorded.
    """

    def __init__(self, metrics: Iterable[MetricAudit], judge: str = "") -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        self.judge = judge

    def __getitem__(self, name: str) -> MetricAudit:
        """Return the audit of a metric by its name."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the audited metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return the number of audited metrics."""
        return len(self._metrics)

    def __repr__(self) -> str:
        """Return the audit as text: the title and a line for each metric."""
        return "\n".join([self.title, *map(str, self.values())]) if self else "No audit"

    def _repr_html_(self) -> str:
        """Return an HTML table of the audited metrics, for notebooks."""
        return html_table(self.title if self else "No audit", AUDIT_HEADINGS, map(audit_cells, self.values()), [])

    @property
    def title(self) -> str:
        """Heading: the strong judge."""
        return f"Audit by {self.judge or 'a strong judge'}, 95% intervals"


AUDIT_HEADINGS = ("metric", "strong judge", "95% interval", "own judge", "agree", "audited", "calls", "calls spared")

_NUMBERS = ("mean", "low", "high", "own_mean", "agreement", "audited", "samples", "failed")


def audit_cells(audit: MetricAudit) -> tuple[str, ...]:
    """Return the audit of a metric as texts, one for each column of `AUDIT_HEADINGS`."""
    agreement = "–" if audit.agreement is None else f"{audit.agreement:.0%}"
    means = ["–" if mean is None else f"{mean:.3f}" for mean in (audit.mean, audit.own_mean)]
    audited = f"{audit.audited} of {audit.samples}"
    calls = (str(audit.usage.calls), str(audit.spared.calls))
    return (audit.metric, means[0], audit.interval or "–", means[1], agreement, audited, *calls)


def summarise_audit(rows: Iterable[Row], judge: str = "") -> AuditSummary:
    """Return the audit of the metrics that a strong judge scored in some rows.

    Args:
        rows: rows of a report; the audited ones are a random part of them.
        judge: name of the strong judge.
    """
    tallies: dict[str, _Tally] = {}
    others: dict[str, list[tuple[Row, Score]]] = {}
    for row in rows:
        for name, score in row.scores.items():
            if name in row.audit:
                tallies.setdefault(name, _Tally(name)).add(row, score, row.audit[name])
            elif score.value is not None:
                others.setdefault(name, []).append((row, score))
    return AuditSummary((tally.audit(others.get(name, [])) for name, tally in tallies.items()), judge)


class _Tally:
    """Scores of both judges for the audited samples of one metric."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._direction: Direction = "higher"
        self._pairs: list[PartedScore] = []
        self._conversations: list[Hashable] = []
        self._own_only: list[float] = []
        self._rows = self._failed = 0
        self._usage = Usage()

    def add(self, row: Row, own: Score, strong: Score) -> None:
        """Add the scores of an audited sample."""
        self._direction = own.direction
        self._rows += 1
        self._usage += strong.usage
        self._failed += strong.failure is not None
        if own.value is not None and strong.value is not None:
            sample = row.sample
            pair = PartedScore(row.index, sample.id, sample.question, own.value, strong.value, strong.reason)
            self._pairs.append(pair)
            self._conversations.append(_cluster_of(row))
        elif own.value is not None:
            self._own_only.append(own.value)

    def audit(self, rest: Sequence[tuple[Row, Score]]) -> MetricAudit:
        """Return the audit.

        Args:
            rest: scores of the metric's own judge for the samples that were not audited.
        """
        others = [float(score) for _, score in rest]
        clusters = (self._conversations, [_cluster_of(row) for row, _ in rest])
        own, strong = [pair.value for pair in self._pairs], [pair.strong for pair in self._pairs]
        everything = [*own, *self._own_only, *others]
        mean = low = high = None
        if strong:
            values = [*strong, *everything]
            bounded = min(values) >= 0 and max(values) <= 1
            scale = (0.0, 1.0) if bounded else (min(values), max(values))
            powered = prediction_powered_mean(strong, own, others, scale=scale, clusters=_shared(clusters))
            mean = powered.mean
            low, high = (powered.low, powered.high) if bounded else (None, None)
        largest = sorted(self._pairs, key=lambda pair: (-abs(pair.difference), pair.index))
        return MetricAudit(
            metric=self._name,
            direction=self._direction,
            mean=mean,
            low=low,
            high=high,
            own_mean=fmean(everything) if everything else None,
            agreement=fmean([abs(pair.difference) <= SAME + 1e-9 for pair in self._pairs]) if strong else None,
            audited=len(strong),
            samples=len(everything),
            failed=self._failed,
            usage=self._usage,
            spared=_scaled(self._usage, len(others) / self._rows),
            parted=[pair for pair in largest[:_MOST_PARTED] if pair.difference],
        )


def _cluster_of(row: Row) -> Hashable:
    """Return the conversation of a row; a row of none is a cluster of its own."""
    name = conversation_of(row.sample)
    return ("", row.index) if name is None else name


def _shared(clusters: _Clusters) -> _Clusters | None:
    """Return the clusters, or None if each has one item."""
    names = [*clusters[0], *clusters[1]]
    return None if len({*names}) == len(names) else clusters


def _scaled(usage: Usage, factor: float) -> Usage:
    """Return the usage of `factor` times as many samples."""
    tokens = [None if count is None else round(count * factor) for count in (usage.input_tokens, usage.output_tokens)]
    return Usage(
        calls=round(usage.calls * factor),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        seconds=usage.seconds * factor,
        embedded=round(usage.embedded * factor),
        money=None if usage.money is None else usage.money * factor,
    )


def _tokens(usage: Usage) -> int | None:
    """Return the sum of the tokens; None if the model reports none."""
    counts = [count for count in (usage.input_tokens, usage.output_tokens) if count is not None]
    return sum(counts) if counts else None
