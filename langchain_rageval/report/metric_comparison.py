"""Compare one metric in two runs, and measure how far its judge has changed between the runs.

A comparison has a difference, an interval and a verdict. The shift of the judge is the mean change of the judge's
scores on equal texts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from operator import attrgetter
from random import Random
from statistics import fmean
from typing import Literal

from langchain_rageval._internal.code_identity import content_digest
from langchain_rageval._internal.page import pluralize
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.report.gates import range_of, value_of
from langchain_rageval.report.pairing import Pair, pair_rows
from langchain_rageval.report.people import Corrected
from langchain_rageval.report.summary import ROUNDING, value_range
from langchain_rageval.report.tables import interval_text, p_text
from langchain_rageval.report.units import AUTO, By, Units
from langchain_rageval.statistics import holm, paired_difference, sign_flip_p
from langchain_rageval.statistics.paired import largest_loss

Verdict = Literal[
    "better", "worse", "no worse", "inconclusive", "undecided", "too few pairs", "too few samples", "lost coverage"
]

ALPHA = 0.05
"""Level of the two-sided tests, so that a healthy metric is "worse" in at most 2.5% of runs."""
COVERAGE_ALPHA = 0.01
"""Level of the one-sided tests of coverage."""
LEAST_PAIRS = 6
"""Minimum number of pairs, or clusters, of a test at 5%.

Five pairs that all differ in one direction, which happens by chance in 2 / 2⁵ = 6% of runs, would already give
p = 0.047; with four or fewer, no difference gives p < 0.05.
"""


@dataclass(frozen=True)
class MetricComparison:
    """Comparison of one metric in two runs, over the samples that both runs scored.

    Attributes:
        metric: name of the metric.
        direction: whether "higher" or "lower" is better.
        mean: mean of the candidate over the pairs; None without pairs.
        baseline: mean of the baseline over the pairs.
        difference: mean of candidate minus baseline, also if lower is better; None without pairs.
        low: lower end of the 95% interval of the difference, for this metric alone; None without pairs.
        high: upper end of the interval.
        p_value: two-sided p-value of "the mean difference is 0", Holm-adjusted over the metrics; None without pairs.
            Interval and p-value come from one procedure: Student's t on the differences of the pairs, with +r and -r
            added as two more differences, so that few equal differences do not seem certain; r is about the largest
            difference of a pair, see `Report.compare`. The procedure assumes independent pairs or clusters.
        p_unadjusted: p-value of this metric alone; below 0.05 exactly if the interval does not contain 0.
        verdict: "better" if `p_value` is below 0.05 and the candidate's mean is the better one; "no worse" if
            `largest_loss` is at most the margin; "worse" if `p_value` is below 0.05 and the interval contains losses
            greater than the margin; otherwise "inconclusive". "undecided" if a shift of the judge (change of its scores
            on equal texts) may be the cause, see `Comparison.judge_shift`. "too few pairs" below six pairs or clusters.
            "lost coverage" if too many samples of the baseline have no value in the candidate.
        pairs: number of samples that both runs have scored.
        clusters: number of groups of samples that count as one; None if each sample counts by itself.
        better: number of pairs in which the candidate's value is better.
        worse: number of pairs in which the candidate's value is worse.
        lost: number of common samples that only the baseline has scored.
        gained: number of common samples that only the candidate has scored.
        coverage_fell: True if significantly more samples lack a score than in the baseline (McNemar's exact test, or
            the sign-flip test of clusters; one-sided p < 0.01, Holm-adjusted over the metrics).
        samples: numbers of scored samples of candidate and baseline in an unpaired comparison, where `pairs`, `better`,
            `worse`, `lost` and `gained` are 0; None in a paired comparison.
        largest_loss: upper confidence bound (97.5%) of the loss, at least 0, in the metric's units. It is the worst end
            of a second interval, which is wider than `low` to `high`: it allows for rare losses of the whole range that
            no pair shows. In an unpaired comparison, it is the worst end of `low` to `high`. None without pairs.
        lost_coverage: reasons for the verdict "lost coverage", each with its code.
        pairs_verdict: verdict without regard to `lost_coverage`. A gate uses it if the caller of `Comparison.gates`
            allows all reasons in `lost_coverage` by the argument `allow`.
        coverage_p: one-sided p-value of "as many samples are scored as in the baseline", not adjusted.
        judge: names of the judges that scored the metric; "" if no name is recorded.
        corrected: difference estimated from people's labels (prediction-powered); None without labels of this metric.
        confirmed: True if people's labels confirm `verdict`, False if they show the contrary, None if there are too few
            labels or none.
    """

    metric: str
    direction: Direction
    mean: float | None = None
    baseline: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_unadjusted: float | None = None
    verdict: Verdict = "too few pairs"
    pairs: int = 0
    clusters: int | None = None
    better: int = 0
    worse: int = 0
    lost: int = 0
    gained: int = 0
    coverage_fell: bool = False
    samples: tuple[int, int] | None = None
    largest_loss: float | None = None
    lost_coverage: Sequence[Note] = ()
    pairs_verdict: Verdict = "too few pairs"
    coverage_p: float = 1.0
    judge: str = ""
    corrected: Corrected | None = None
    confirmed: bool | None = None

    @property
    def shown(self) -> str:
        """The verdict with the judge that gave the scores: "better, by GigaChat-2-Max" means a better mean.

        If people's labels were used, "confirmed by people: " or "contradicted by people: " comes first.
        """
        found = f"{self.verdict}, by {self.judge}" if self.judge else self.verdict
        said = {True: "confirmed by people: ", False: "contradicted by people: "}
        return found if self.confirmed is None else said[self.confirmed] + found

    @property
    def possible_loss(self) -> str:
        """The largest loss that an inconclusive comparison leaves possible, as text; "" for the other verdicts."""
        if self.verdict != "inconclusive" or not self.largest_loss:
            return ""
        rare = ", rare losses that no pair shows included" if self.samples is None else ""
        return f"a loss up to {self.largest_loss:.3f} is possible{rare}"

    @property
    def interval(self) -> str:
        """The 95% interval of the difference as text; "" if there is none."""
        return interval_text(self.low, self.high, "+.3f")

    def __str__(self) -> str:
        """Return the comparison of the metric as one line: verdict, difference and counts."""
        units = f"{self.pairs} pairs" + ("" if self.clusters is None else f" in {pluralize(self.clusters, 'cluster')}")
        counts = f"{units}, {self.better} better, {self.worse} worse"
        if self.samples is not None:
            counts = f"{self.samples[0]} and {self.samples[1]} samples"
        if self.difference is None:
            return f"{self.metric} {self.shown} ({counts})"
        alone = self.p_unadjusted is not None and self.p_value is not None and self.p_unadjusted < ALPHA <= self.p_value
        p = f"p {'' if self.p.startswith('<') else '= '}{self.p}"
        p += f" for all metrics, {self.p_unadjusted:.3f} for this one alone" if alone else ""
        possible = f"; {self.possible_loss}" if self.possible_loss else ""
        line = f"{self.metric} {self.shown}: {self.difference:+.3f} {self.interval}, {p} ({counts}){possible}"
        return line if self.corrected is None else f"{line}; people: {self.corrected}"

    @property
    def p(self) -> str:
        """The adjusted p-value as text; "" if there is none."""
        return "" if self.p_value is None else p_text(self.p_value)


def compare_metric(
    name: str,
    direction: Direction,
    pairs: Sequence[Pair],
    groups: Sequence[Hashable] | None,
    unknown: Sequence[float] = (),
    by: float = 0.0,
) -> MetricComparison:
    """Return the comparison of one metric, without adjusted p-value and verdict.

    Args:
        name: name of the metric.
        direction: "higher" or "lower", whichever is better.
        pairs: rows of candidate and baseline.
        groups: cluster of each pair; None if all pairs are independent.
        unknown: differences that the caller assumes for samples of the baseline without a score in the candidate; each
            of these samples is a separate cluster.
        by: shift of the judge (change of its scores on equal texts), which is subtracted from each difference.
    """
    values = [(value_in(ours, name), value_in(theirs, name)) for ours, theirs in pairs]
    both = [(place, own, other) for place, (own, other) in enumerate(values) if own is not None and other is not None]
    moves = (own - other - by for _, own, other in both)
    differences = [*(0.0 if abs(move) < ROUNDING else move for move in moves), *unknown]
    among: list[Hashable] | None = None
    if groups is not None:
        among = [*(groups[place] for place, _, _ in both), *(("unknown", number) for number in range(len(unknown)))]
    coverage = [float(own is not None) - float(other is not None) for own, other in values]
    numbers = [value for _, own, other in both for value in (own, other)] or [0.0]
    span = largest_difference(name, (row for pair in pairs for row in pair), numbers)
    result = paired_difference(differences, among, span=span) if differences else None
    sign = 1 if direction == "higher" else -1
    return MetricComparison(
        metric=name,
        direction=direction,
        mean=fmean(own for _, own, _ in both) if both else None,
        baseline=fmean(other for _, _, other in both) if both else None,
        difference=result.mean if result else None,
        low=result.low if result else None,
        high=result.high if result else None,
        p_unadjusted=result.p_value if result else None,
        pairs=len(both),
        clusters=None if among is None else len(set(among)),
        better=sum(sign * difference > 0 for difference in differences),
        worse=sum(sign * difference < 0 for difference in differences),
        lost=coverage.count(-1.0),
        gained=coverage.count(1.0),
        largest_loss=largest_loss(differences, among, span=span, sign=sign) if differences else None,
        coverage_p=sign_flip_p(coverage, groups) / 2 if sum(coverage) < 0 else 1.0,
    )


def largest_difference(name: str, rows: Iterable[Row], values: Collection[float]) -> float:
    """Return the largest possible difference of two values of a metric; infinite if the metric has no finite range.

    `values` are values of the metric in the rows, at least one; they may lie outside the declared range. A metric that
    declares no range and has values outside of 0 to 1 has no known range.
    """
    scores = [row.scores[name] for row in rows if name in row.scores]
    if value_range(None, values) is None and all(score.range is None for score in scores):
        return inf
    return max([max(values) - min(values), *(high - low for low, high in map(range_of, scores))])


def value_in(row: Row, name: str) -> float | None:
    """Return the value of a metric in a row; None if the row has no value.

    A blank answer without a value gets the worst value, except for metrics of contexts and rankings; see `value_of`.
    """
    return value_of(row.sample, row.scores.get(name))


def with_verdicts(compared: Sequence[MetricComparison], margin: float) -> list[MetricComparison]:
    """Return comparisons with verdicts, and with p-values that are Holm-adjusted over the metrics.

    A metric with fewer than six pairs or clusters keeps its verdict and is not part of the adjustment. `margin` is the
    largest loss that still counts as "no worse".
    """
    coverage = holm([metric.coverage_p for metric in compared])
    compared = [replace(one, coverage_fell=p < COVERAGE_ALPHA) for one, p in zip(compared, coverage, strict=True)]
    tested = [metric.p_unadjusted for metric in compared if metric.p_unadjusted is not None and _has_enough(metric)]
    adjusted = iter(holm(tested))
    return [with_verdict(metric, next(adjusted) if _has_enough(metric) else None, margin) for metric in compared]


def _has_enough(metric: MetricComparison) -> bool:
    """Return True if a metric has enough pairs, clusters or, in a comparison without pairs, samples for a verdict."""
    if metric.samples is not None:
        return metric.p_unadjusted is not None
    return (metric.pairs if metric.clusters is None else metric.clusters) >= LEAST_PAIRS


def with_verdict(metric: MetricComparison, p_value: float | None, margin: float) -> MetricComparison:
    """Return the comparison of a metric with an adjusted p-value and the resulting verdict.

    `p_value` is the adjusted p-value. If it is None, the verdict stays, and the result's `p_value` is the unadjusted
    one. `margin` is the largest loss that still counts as "no worse".
    """
    if p_value is None:
        return replace(metric, p_value=metric.p_unadjusted)
    sign = 1 if metric.direction == "higher" else -1
    gain = sign * (metric.difference or 0.0)
    worst = min(sign * (metric.low or 0.0), sign * (metric.high or 0.0))
    verdict: Verdict = "inconclusive"
    if p_value < ALPHA and gain > 0:
        verdict = "better"
    elif metric.largest_loss is not None and metric.largest_loss <= margin:
        verdict = "no worse"
    elif p_value < ALPHA and worst < -margin:
        verdict = "worse"
    return replace(metric, p_value=p_value, verdict=verdict, pairs_verdict=verdict)


LEAST_ANCHORS = 20
"""Least number of anchors whose shift can make a verdict undecided."""

SHIFT_ALPHA = 0.01
"""Level of the tests of the shifts of judges, Holm-adjusted over the metrics."""

_judged = attrgetter("question", "answer", "contexts", "history", "references")


@dataclass(frozen=True)
class JudgeShift:
    """Change of a judge's scores between two runs although the scored texts are the same.

    Attributes:
        difference: mean over the anchors of the score in the candidate minus the score in the baseline.
        low: lower end of the 95% interval of `difference`.
        high: upper end of the interval.
        anchors: number of anchors: pairs of rows with equal texts and newly computed scores, see `judge_shifts`.
        p_value: two-sided p-value of "the judge has not changed".
    """

    difference: float
    low: float
    high: float
    anchors: int
    p_value: float

    def __str__(self) -> str:
        """Return the shift with its interval and the number of anchors."""
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}] on {self.anchors} unchanged rows"


def judge_shifts(
    pairs: Sequence[Pair], again: Sequence[Pair], directions: Mapping[str, Direction], cluster: By | None = AUTO
) -> dict[str, JudgeShift]:
    """Return the shift of each metric's judge: the mean change of the judge's scores from baseline to candidate.

    The shift is measured on anchors (pairs of rows with equal texts). Metrics with fewer than 20 anchors are omitted.

    Args:
        pairs: pairs of rows of candidate and baseline. A pair is an anchor if question, answer, contexts, history and
            references are equal, and both scores come from new model calls, not from a cache or a journal (file that
            stores the results of a run, so that the run can continue after a crash).
        again: pairs of a row that was scored again and its row in the baseline. Such a pair is an anchor if its texts
            are equal, and the later score comes from new model calls.
        directions: metrics of both runs, with "higher" or "lower", whichever is better.
        cluster: property that groups dependent samples, see `Report.summary`.
    """
    every = [*pairs, *again]
    equal = [place for place, (own, its) in enumerate(every) if _judged(own.sample) == _judged(its.sample)]
    units, shifts = Units((row.sample for row, _ in every), cluster) if equal else Units(), {}
    for name, direction in directions.items():
        own = [at for at in equal if name in every[at][0].asked and (at >= len(pairs) or name in every[at][1].asked)]
        if len(own) < LEAST_ANCHORS:  # so few may also lack the property of `cluster`
            continue
        found = compare_metric(name, direction, [every[place] for place in own], units.groups(own))
        if found.pairs >= LEAST_ANCHORS and found.difference is not None:
            ends = (found.low or 0.0, found.high or 0.0)
            p_value = 1.0 if found.p_unadjusted is None else found.p_unadjusted
            shifts[name] = JudgeShift(found.difference, *ends, found.pairs, p_value)
    return shifts


def equal_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> list[Pair]:
    """Return pairs of rows with equal texts (question, answer, contexts, history, references) from two runs.

    Rows are paired by id first, see `pair_rows`. The remaining rows are paired by their texts; several rows with the
    same texts give one pair.
    """
    ours, theirs = list(candidate), list(baseline)
    pairs = [(own, its) for own, its in pair_rows(ours, theirs).pairs if _judged(own.sample) == _judged(its.sample)]
    paired = {id(row) for pair in pairs for row in pair}
    own, its = (
        {content_digest(repr(_judged(row.sample))): row for row in rows if row.asked and id(row) not in paired}
        for rows in (ours, theirs)
    )
    return [*pairs, *((row, its[content]) for content, row in own.items() if content in its)]


def moved_verdicts(
    metrics: Sequence[MetricComparison],
    shifts: Mapping[str, JudgeShift],
    margin: float,
    shifted: Callable[[MetricComparison, float], MetricComparison],
) -> dict[str, Collection[Verdict]]:
    """Return, for each metric, the verdicts that replace its verdict after a correction for the judge's shift.

    The correction subtracts each end of the interval of the shift in turn, so a metric has one or two new verdicts.
    Metrics whose verdict stays the same are omitted. An inconclusive verdict counts as changed only if the shift of the
    judge is significant.

    Args:
        metrics: comparisons with verdicts.
        shifts: shift of the judge (change of its scores on equal texts) by metric.
        margin: margin of the comparison.
        shifted: function that takes a comparison and a shift, and returns the comparison without verdict, with the
            shift subtracted.
    """
    if not shifts:
        return {}
    adjusted = dict(zip(shifts, holm([shift.p_value for shift in shifts.values()]), strict=True))
    ends = {name: shift.low for name, shift in shifts.items()}, {name: shift.high for name, shift in shifts.items()}
    moved = [with_verdicts([shifted(one, by.get(one.metric, 0.0)) for one in metrics], margin) for by in ends]
    found: dict[str, Collection[Verdict]] = {}
    for metric, *others in zip(metrics, *moved, strict=True):
        is_claim = metric.verdict in ("better", "worse", "no worse")
        verdicts = {one.verdict for one in others} - {metric.verdict}
        if verdicts and (is_claim or adjusted.get(metric.metric, 1.0) < SHIFT_ALPHA):
            found[metric.metric] = verdicts
    return found


def rows_to_ask_again(rows: Sequence[Row], n: int, seed: int = 0) -> list[Row]:
    """Draw `n` rows at random, whose samples a judge then scores again, to measure how far the judge has changed.

    The result keeps the order of the rows. If there are fewer than `n` rows, all are returned.
    """
    places = sorted(Random(seed).sample(range(len(rows)), min(n, len(rows))))
    return [rows[place] for place in places]
