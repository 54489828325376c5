"""Audit of a report: the estimated mean score of a strong judge, compared with that of the metric's own judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, ClassVar

from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.schema import Direction, Row, Usage
from langchain_rageval.report.summary import ROUNDING, Range, value_range
from langchain_rageval.report.tables import Analysis, Renamed, interval_text, number_text
from langchain_rageval.report.units import Units
from langchain_rageval.statistics import PredictionPoweredMean, prediction_powered_mean

SAME = 0.1
"""Largest difference of two scores that count as equal."""

LEAST_AUDITED = 20
"""Smallest audit that decides anything, unless it is of all samples."""

_MOST_PARTED = 10


@dataclass(frozen=True)
class PartedScore:
    """Sample on which the two judges of an audit differ.

    Attributes:
        index: index of the sample in the input, from 0.
        id: id of the sample.
        question: question of the sample.
        value: value that the metric's own judge gave.
        strong: value that the strong judge gave.
        reason: the strong judge's reason for the value.
    """

    index: int
    id: str
    question: str
    value: float
    strong: float
    reason: str

    @property
    def difference(self) -> float:
        """Value of the strong judge minus the value of the metric's own judge."""
        return self.strong - self.value


@dataclass(frozen=True)
class MetricAudit(Renamed):
    """Estimated mean of a metric by the strong judge of an audit.

    Attributes:
        metric: name of the metric.
        direction: "higher" or "lower", whichever is better.
        mean: estimated mean of the strong judge over all samples; None if it scored none of them.
        low: lower end of the 95% interval of `mean`; None without a mean, or if the metric has no finite range.
        high: upper end of the interval. If the strong judge failed on a sample, the interval allows for every possible
            value of this sample.
        own_mean: mean of the metric's own judge over all samples.
        agreement: share of the audited samples on which the two judges differ by at most 0.1.
        audited: number of samples with a value of the strong judge. If the metric's own judge gave such a sample no
            value, the estimate of `mean` uses `own_mean` in place of that value.
        samples: number of samples of the run that have the metric, with or without a value.
        failed: number of audited samples on which the strong judge failed.
        usage: calls, tokens and seconds of the strong judge.
        saved: calls and tokens that the strong judge would have cost for the other samples.
        parted: the samples on which the judges differ most, the largest difference first, at most ten.
        decides: True if the strong judge was given enough samples for a decision: at least 20, or all samples of a
            smaller run. If False, the text of the audit says so, and a gate on the metric is undecided.
        units: number of independent units (such as conversations) among the audited samples, see `Units`; None if each
            sample is a unit.
        unit: name of the kind of unit, as in `MetricSummary`.
    """

    old_names: ClassVar = {"spared": "saved"}

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
    saved: Usage
    parted: Sequence[PartedScore] = ()
    decides: bool = True
    units: int | None = None
    unit: str = ""

    @property
    def interval(self) -> str:
        """The confidence interval as text, or "" if there is none."""
        return interval_text(self.low, self.high)

    def __str__(self) -> str:
        """Return both means, the agreement and the cost on one line."""
        if self.mean is None:
            return f"{self.metric}: no sample has a score of the strong judge ({self.failed} failed)"
        cells = f"{self.metric} {self.mean:.3f} {self.interval}".rstrip()
        details = [f"{self.audited} of {self.samples} samples audited"]
        details[0] += "" if self.units is None else f" in {pluralize(self.units, self.unit)}"
        details[0] += f", {self.failed} failed" if self.failed else ""
        details += [] if self.agreement is None else [f"{self.agreement:.0%} agree"]
        details += [f"{pluralize(self.saved.calls, 'call')} saved"]
        details += [] if self.decides else [f"decides nothing: {LEAST_AUDITED} samples are needed, or all"]
        own = "no score" if self.own_mean is None else f"{self.own_mean:.3f}"
        return f"{cells} by the strong judge, {own} by its own ({'; '.join(details)})"

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as a dict for JSON, with the names of attributes as keys.

        `metric`, `direction` and `unit` are omitted. `usage` and `saved` become the keys `calls`, `tokens`,
        `calls_saved` and `tokens_saved`. The items of `parted` have the keys `index`, `id`, `value` and `strong`.
        """
        names = ("mean", "low", "high", "own_mean", "agreement", "audited", "samples", "failed", "decides", "units")
        cost = {"calls": self.usage.calls, "tokens": self.usage.tokens}
        saved = {"calls_saved": self.saved.calls, "tokens_saved": self.saved.tokens}
        parted = [{"index": one.index, "id": one.id, "value": one.value, "strong": one.strong} for one in self.parted]
        return {**{name: getattr(self, name) for name in names}, **cost, **saved, "parted": parted}


class AuditSummary(Analysis[MetricAudit]):
    """Mapping from the name of an audited metric to its audit; empty if the report has none.

    Attributes:
        judge: name of the strong judge; "" if it was not recorded.
    """

    headings = ("metric", "strong judge", "95% interval", "own judge", "agree", "audited", "calls", "calls saved")

    def __init__(self, metrics: Iterable[MetricAudit], judge: str = "") -> None:
        super().__init__({metric.metric: metric for metric in metrics})
        self.judge = judge

    @property
    def title(self) -> str:
        """Heading of the table, with the name of the strong judge."""
        return f"Audit by {self.judge or 'a strong judge'}, 95% intervals" if self else "No audit"

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows: for each audited metric, a tuple with one text for each column of `headings`."""
        return [
            (
                one.metric,
                number_text(one.mean),
                one.interval or "–",
                number_text(one.own_mean),
                number_text(one.agreement, ".0%"),
                f"{one.audited} of {one.samples}",
                str(one.usage.calls),
                str(one.saved.calls),
            )
            for one in self.values()
        ]


def summarise_audit(rows: Iterable[Row], judge: str = "") -> AuditSummary:
    """Return the audit of each metric for which a strong judge scored samples, besides the metric's own judge.

    An audit holds the estimated mean of the strong judge, its agreement with the own judge, and its cost. Metrics that
    the strong judge did not score are omitted.

    Args:
        rows: rows of a report, with the strong judge's scores in `Row.audit`. The audited rows must be a random part of
            the rows.
        judge: name of the strong judge.
    """
    units = Units()
    tallies: dict[str, _Tally] = {}
    for place, row in enumerate(rows):
        units.add(row.sample)
        for name in {**row.scores, **row.audit} if row.audit else row.scores:
            if name not in tallies:
                tallies[name] = _Tally(name)
            tallies[name].add(place, row)
    return AuditSummary((tally.audit(units) for tally in tallies.values() if tally.asked), judge)


class _Tally:
    """Scores of both judges for one metric."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._direction: Direction = "higher"
        self._range: Range | None = None
        self._audited: list[tuple[int, float | None, float | None]] = []  # place, own value, strong value or failed
        self._others: list[tuple[int, float | None]] = []  # place, own value
        self._own: list[float] = []
        self._parted: list[PartedScore] = []
        self._samples = self.asked = 0
        self._usage = Usage()

    def add(self, place: int, row: Row) -> None:
        """Add the scores of a sample."""
        score, strong = row.scores.get(self._name), row.audit.get(self._name)
        self._samples += 1
        own = score.value if score else None
        if own is not None:
            self._own.append(own)
        for known in (score, strong):
            if known is not None:
                self._direction, self._range = known.direction, self._range or known.range
        if strong is None:
            self._others.append((place, own))
            return
        self.asked += 1
        self._usage += strong.usage
        if strong.unscored is None:
            self._audited.append((place, own, strong.value))
        if own is not None and strong.value is not None:
            sample = row.sample
            self._parted.append(PartedScore(row.index, sample.id, sample.question, own, strong.value, strong.reason))

    def audit(self, units: Units) -> MetricAudit:
        """Return the audit; `units` are those of all rows."""
        strong = [(place, value) for place, _, value in self._audited if value is not None]
        groups = units.groups(place for place, _ in strong)
        mean, low, high = self._estimate(units) if strong else (None, None, None)
        largest = sorted(self._parted, key=lambda pair: (-abs(pair.difference), pair.index))
        return MetricAudit(
            metric=self._name,
            direction=self._direction,
            mean=mean,
            low=low,
            high=high,
            own_mean=fmean(self._own) if self._own else None,
            agreement=fmean([abs(pair.difference) <= SAME + ROUNDING for pair in largest]) if largest else None,
            audited=len(strong),
            samples=self._samples,
            failed=len(self._audited) - len(strong),
            usage=self._usage,
            saved=_scaled(self._usage, len(self._others) / self.asked),
            parted=[pair for pair in largest[:_MOST_PARTED] if pair.difference],
            decides=self.asked >= min(LEAST_AUDITED, self._samples),
            units=None if groups is None else len(set(groups)),
            unit="" if groups is None else units.kind(place for place, _ in strong),
        )

    def _estimate(self, units: Units) -> tuple[float, float | None, float | None]:
        """Return the estimated mean and its interval; failures count as the lowest and as the highest value."""
        values = [*self._own, *(value for _, _, value in self._audited if value is not None)]
        bounds = value_range(self._range, values)
        scale = bounds or (min(values), max(values))
        constant = fmean(self._own) if self._own else 0.0

        def powered(fill: float | None) -> PredictionPoweredMean:
            labelled = [(*one[:2], fill if one[2] is None else one[2]) for one in self._audited]
            known = [(place, own, label) for place, own, label in labelled if label is not None]
            groups = units.groups([*(place for place, *_ in known), *(place for place, _ in self._others)])
            return prediction_powered_mean(
                [label for _, _, label in known],
                [constant if own is None else own for _, own, _ in known],
                [constant if own is None else own for _, own in self._others],
                scale=scale,
                clusters=None if groups is None else (groups[: len(known)], groups[len(known) :]),
            )

        found = powered(None)
        if bounds is None:
            return found.mean, None, None
        if all(value is not None for *_, value in self._audited):
            return found.mean, found.low, found.high
        return found.mean, min(found.low, powered(scale[0]).low), max(found.high, powered(scale[1]).high)


def _scaled(usage: Usage, factor: float) -> Usage:
    """Return the usage of `factor` times as many samples."""
    scaled = {name: count * factor for name, count in usage if count is not None}
    return Usage(**{name: count if name in ("seconds", "money") else round(count) for name, count in scaled.items()})
