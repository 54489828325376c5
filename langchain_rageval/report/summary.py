"""Summary of a run: mean with interval, counts and cost of each metric and slice, and why scores are missing."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from statistics import fmean

from langchain_rageval._internal.page import pluralize, printable_lines, shortened
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Aspect, Direction, Row, Score, Usage
from langchain_rageval.metrics.supported import NEITHER_FACTS, NO_FACTS
from langchain_rageval.report.tables import Analysis, interval_text, number_text
from langchain_rageval.report.units import AUTO, NONE, By, Slicer, Units, in_reading_order
from langchain_rageval.run.usage import format_money
from langchain_rageval.statistics import bounded_mean_interval

_MOST_CAUSES = 3
_LONGEST = 300  # characters of a message


def missing_scores(rows: Iterable[Row]) -> list[str]:
    """Return lines of text that explain missing scores, one line for each cause.

    Failures come first, then unscored samples; at most three causes each, the most frequent first. Failures with the
    same error in the same step of a metric have the same cause; the line quotes the first message.
    """
    counts: dict[str, dict[str, Counter[str]]] = {"Failed": {}, "Unscored": {}}  # by outcome and cause, of metrics
    first: dict[str, str] = {}
    messages: dict[str, str] = {}
    for row in rows:
        for name, score in row.scores.items():
            if score.value is not None:
                continue
            outcome, cause = "Unscored", score.unscored or ""
            if score.failure is not None:
                outcome = "Failed"
                cause = score.failure.error + (f" in {score.failure.step}" if score.failure.step else "")
                messages[cause] = messages.get(cause) or score.failure.message
            counts[outcome].setdefault(cause, Counter())[name] += 1
            first.setdefault(f"{outcome} {cause}", row.sample.id)
    lines = []
    for outcome, causes in counts.items():
        ordered = sorted(causes.items(), key=lambda item: -item[1].total())
        for cause, metrics in ordered[:_MOST_CAUSES]:
            line = f"{outcome}: {metrics.total()} of {', '.join(metrics)}: {shortened(cause, _LONGEST)}"
            line += f", first in sample {first[f'{outcome} {cause}']!r}"
            message = messages.get(cause, "") if outcome == "Failed" else ""
            lines.append(line + (f": {shortened(message, _LONGEST)}" if message else ""))
        if others := ordered[_MOST_CAUSES:]:
            lines.append(f"{outcome}: {sum(metrics.total() for _, metrics in others)} for other causes")
    return [" ".join(line.split()) for line in lines]


def worst_rows(rows: Iterable[Row], metric: str, n: int) -> list[Row]:
    """Return the `n` rows with the worst values of a metric, the worst first."""
    scored = ((row, row.scores[metric]) for row in rows if metric in row.scores)
    found = ((row, score, score.value) for row, score in scored if score.value is not None)
    return [row for row, *_ in nsmallest(n, found, key=lambda one: one[2] if one[1].direction == "higher" else -one[2])]


_ALL = "all"


@dataclass(frozen=True)
class MetricSummary:
    """Summary of one metric over the samples of a run.

    Attributes:
        metric: name of the metric.
        aspect: the aspect that the metric measures, such as "grounding".
        direction: "higher" or "lower", whichever is better.
        mean: mean over the scored samples; None without scored samples.
        low: lower end of the 95% interval of the mean; None without a mean, or if the metric has no finite range.
        high: upper end of the interval.
        scored: number of samples with a value.
        unscored: number of samples to which the metric does not apply.
        failed: number of samples whose score failed.
        abstained: number of samples whose answer states no facts; None for metrics that cannot detect this.
        usage: calls, tokens and seconds of the metric over all samples.
        range: lowest and highest possible value; None without a finite range, see `Score.range`.
        units: number of independent units (such as conversations) among the scored samples, see `Units`; None if each
            sample is a unit.
        unit: name of the kind of unit: "conversation", "tree" (questions about one fact), "question" (its repeats),
            "cluster", or "unit" for several kinds; "" if each sample is a unit.
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
    range: tuple[float, float] | None = None
    units: int | None = None
    unit: str = ""

    @property
    def counted(self) -> str:
        """Number of scored samples as text; if groups of samples count as one observation, also the number of groups.

        Examples are "100" and "100 in 25 trees". A tree is a group: the questions of a test set about one fact.
        """
        return str(self.scored) + ("" if self.units is None else f" in {pluralize(self.units, self.unit)}")

    @property
    def interval(self) -> str:
        """The confidence interval as text, or "" if there is none."""
        return interval_text(self.low, self.high)

    def __str__(self) -> str:
        """Return the summary of the metric as one line."""
        mean = f"{self.mean:.3f} {self.interval}".rstrip() if self.mean is not None else "no score"
        counts = f"{self.counted} scored, {self.unscored} unscored, {self.failed} failed"
        cost = pluralize(self.calls, "call") + ("" if self.money is None else f", {format_money(self.money)} money")
        return f"{self.metric} {mean} ({counts}; {cost})"

    @property
    def calls(self) -> int:
        """Number of model calls of the metric over all samples."""
        return self.usage.calls

    @property
    def input_tokens(self) -> int | None:
        """Number of tokens that the model read for this metric; None if the model reports no tokens."""
        return self.usage.input_tokens

    @property
    def output_tokens(self) -> int | None:
        """Number of tokens that the model wrote for this metric; None if the model reports no tokens."""
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
    """Average of the means of all metrics of one aspect (what they evaluate, such as "context" or "grounding").

    For a metric where lower is better, 1 - mean is used. A metric with another range than 0 to 1, such as a grade, is
    excluded. `mean` is None if no metric has a mean.
    """

    mean: float | None
    metrics: Sequence[str]


_HEADINGS = ("metric", "mean", "95% interval", "scored", "unscored", "failed", "abstained", "calls", "tokens")


class Summary(Analysis[MetricSummary]):
    """Summary of a run: mapping of metric names to `MetricSummary`, in the order of the metrics in the run.

    Attributes:
        aspects: mapping of each aspect (what metrics evaluate, such as "context" or "grounding") to the average of the
            means of its metrics.
        has_money: True if the cost in money is known for at least one metric.
        notes: remarks about dependent samples, such as that some samples lack the id of a conversation.
    """

    title = "Means with 95% intervals"

    def __init__(self, metrics: Iterable[MetricSummary] = (), notes: Sequence[Note] = ()) -> None:
        super().__init__({metric.metric: metric for metric in metrics}, notes)
        names = dict.fromkeys(metric.aspect for metric in self.values())
        self.aspects: Mapping[str, AspectSummary] = {aspect: self._aspect(aspect) for aspect in names}
        self.has_money = any(metric.money is not None for metric in self.values())

    def __repr__(self) -> str:
        """Return the summary as text: one line for each metric."""
        return printable_lines("\n".join(map(str, self.values())))

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds and money of all metrics together."""
        return sum((metric.usage for metric in self.values()), Usage())

    @property
    def headings(self) -> Sequence[str]:
        """Headings of the columns of the table; a column for money only if `has_money`."""
        return (*_HEADINGS, "money") if self.has_money else _HEADINGS

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows: for each metric, a tuple with one text for each column of `headings`."""
        return [
            (
                one.metric,
                number_text(one.mean),
                one.interval or "–",
                one.counted,
                str(one.unscored),
                str(one.failed),
                number_text(one.abstained, "d"),
                str(one.calls),
                number_text(one.usage.tokens, ","),
                *([format_money(one.money)] if self.has_money else []),
            )
            for one in self.values()
        ]

    def _aspect(self, aspect: str) -> AspectSummary:
        of_aspect = [metric for metric in self.values() if metric.aspect == aspect]
        metrics = [metric for metric in of_aspect if metric.mean is None or metric.range == (0, 1)]
        means = [m.mean if m.direction == "higher" else 1 - m.mean for m in metrics if m.mean is not None]
        return AspectSummary(fmean(means) if means else None, [metric.metric for metric in metrics])


def summarise(rows: Iterable[Row], cluster: By | None = AUTO) -> Summary:
    """Return the mean, 95% interval, counts and cost of each metric over all rows; see `Report.summary`."""
    return summarise_slices(rows, lambda _sample: _ALL, cluster).get(_ALL, Summary())


def summarise_slices(rows: Iterable[Row], by: By, cluster: By | None = AUTO) -> dict[str, Summary]:
    """Return the summary of each slice of the rows, by the name of the slice; see `Report.summary`.

    The rows are iterated once.

    Raises:
        ConfigError: if there are rows, and no sample has a value for `by` or `cluster`.
    """
    slices, units = Slicer(by), Units(cluster=cluster)
    tallies: dict[str, dict[str, Tally]] = {}
    for place, row in enumerate(rows):
        tally = tallies.setdefault(slices.slice_of(row.sample) or NONE, {})
        units.add(row.sample)
        for name, score in row.scores.items():
            if name not in tally:
                tally[name] = Tally(name, score)
            tally[name].add(score, place)
    slices.check_known()
    notes = units.notes()
    known = in_reading_order(label for label in tallies if label != NONE)
    return {
        label: Summary((counted.summary(units) for counted in tallies[label].values()), notes)
        for label in [*known, *({NONE} & tallies.keys())]  # the rows without a value come last
    }


class Tally:
    """Running totals of one metric; of each score, stores only the value and the sample's position in the run.

    Args:
        name: name of the metric in the summary. It is the key of the metric in `Row.scores`; the name in
            `Score.metric`, which differs in the scores of some custom metrics, is not used.
        first: the first score; its `aspect` (such as "grounding") and `direction` apply to all scores.
    """

    def __init__(self, name: str, first: Score) -> None:
        self._name = name
        self._first = first
        self._values = array("d")
        self._places = array("q")
        self._range: Range | None = None
        self._unscored = self._failed = self._abstained = 0
        self._sees_abstention = False
        self._usage = Usage()

    def add(self, score: Score, place: int) -> None:
        """Count a score of the metric; `place` is the place of its sample in the run."""
        self._range = self._range or score.range
        if score.value is not None:
            self._values.append(score.value)
            self._places.append(place)
        self._unscored += score.unscored is not None
        self._failed += score.failure is not None
        kinds = {finding.kind for finding in score.findings}
        missed = any(finding.verdict == "FN" for finding in score.findings)
        abstained = score.unscored in (NO_FACTS, NEITHER_FACTS) or (missed and "statement" not in kinds)
        self._abstained += abstained
        self._sees_abstention = self._sees_abstention or abstained or "statement" in kinds
        self._usage += score.usage

    def summary(self, units: Units) -> MetricSummary:
        """Return the summary of the scores that were added so far.

        `units` are the independent units of all samples: the interval counts samples of one unit, such as a
        conversation, as one.
        """
        values, groups = self._values, units.groups(self._places)
        bounds = value_range(self._range, values)
        low = high = None
        if bounds is not None and values:
            lowest, width = bounds[0], bounds[1] - bounds[0]
            shares = values if bounds == (0, 1) else [(value - lowest) / width for value in values]
            low, high = (lowest + width * end for end in bounded_mean_interval(shares, clusters=groups))
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
            range=bounds,
            units=None if groups is None else len(set(groups)),
            unit="" if groups is None else units.kind(self._places),
        )


Range = tuple[float | None, float | None]


def value_range(declared: Range | None, values: Collection[float]) -> tuple[float, float] | None:
    """Return the lowest and the highest possible value of a metric; None if one of them is unknown.

    Args:
        declared: the range that the scores of the metric carry; None if they carry no range. The range is then 0 to 1,
            if all values lie between.
        values: values of the metric.
    """
    low, high = declared or (0.0, 1.0)
    if low is None or high is None or (values and (min(values) < low - ROUNDING or max(values) > high + ROUNDING)):
        return None
    return low, high


ROUNDING = 1e-9
"""By how much rounding may move a value out of its range, and two equal values apart."""
