"""Comparison of two reports over the same samples, metric by metric, and the difference that it can detect."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, get_args

from langchain_rageval.data.instrument import Provenance
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.errors import ConfigError, did_you_mean
from langchain_rageval.report.files import ReportData, check_metric
from langchain_rageval.report.gates import Gate, GateVerdict, check_gates, range_of, value_of, worst_of
from langchain_rageval.report.pairing import Pair, Pairing, metrics_in_common, pair_rows, paired_rows
from langchain_rageval.report.summary import ROUNDING
from langchain_rageval.report.tables import Analysis, interval_text, number_text
from langchain_rageval.report.units import By, Units
from langchain_rageval.statistics import detectable_difference, holm, paired_difference, sign_flip_p
from langchain_rageval.statistics.paired import largest_loss

Verdict = Literal["better", "worse", "no worse", "inconclusive", "too few pairs", "too few samples", "lost coverage"]
Require = Literal["no regression found", "no worse"]

ALPHA = 0.05
"""Level of the two-sided tests, so that a healthy metric is "worse" in at most 2.5% of runs."""
COVERAGE_ALPHA = 0.01
"""Level of the one-sided tests of coverage."""
MOST_MISSING = 0.05
"""Share of the baseline's samples that may be missing."""

LEAST_PAIRS = 6
"""Minimum number of pairs, or clusters, of a test at 5%.

Five pairs that all differ in one direction, which happens by chance in 2 / 2⁵ = 6% of runs, would already give
p = 0.047; with four or fewer, no difference gives p < 0.05.
"""


@dataclass(frozen=True)
class MetricComparison:
    """Comparison of one metric in two runs, over the samples that both runs scored.

    Attributes:
        metric: its name.
        direction: whether "higher" or "lower" is better.
        mean: of the candidate over the pairs; None without pairs.
        baseline: mean of the baseline over the pairs.
        difference: mean of candidate minus baseline, whatever the direction; None without pairs.
        low: lower end of the 95% interval of the difference, for this metric alone; None without pairs.
        high: upper end of the interval.
        p_value: two-sided p-value of "the mean difference is 0", Holm-adjusted over the metrics; None without pairs.
            Interval and p-value come from one procedure, Student's t on the pairs and two invented ones at plus and
            minus the largest difference. It assumes independent pairs, or clusters.
        p_unadjusted: p-value of this metric alone; below 0.05 exactly if the interval does not contain 0.
        verdict: "better" if `p_value` is below 0.05 and the candidate's mean is the better one; "no worse" if
            `largest_loss` is at most the margin; "worse" if `p_value` is below 0.05 and the interval contains losses
            greater than the margin; otherwise "inconclusive". "too few pairs" below six pairs or clusters. "lost
            coverage" if too many samples of the baseline have no value in the candidate.
        pairs: samples that both have scored.
        clusters: groups of samples that count as one; None when each counts by itself.
        better: pairs in which the candidate's value is the better one.
        worse: pairs in which it is the worse one.
        lost: samples that only the baseline has scored, of those that both hold.
        gained: samples that only the candidate has scored.
        coverage_fell: True if significantly more samples lack a score than in the baseline (McNemar's exact test, or
            the sign-flip test of clusters; one-sided p < 0.01, Holm-adjusted over the metrics).
        samples: scored samples of candidate and baseline in a comparison without pairs, whose `pairs`, `better`,
            `worse`, `lost` and `gained` are 0; None in a paired one.
        largest_loss: greatest loss that the pairs leave possible, at least 0, in the metric's units, with a confidence
            of 97.5%: the worst end of an interval that allows for losses of the whole range that no pair shows. None
            without pairs.
        lost_coverage: reasons for the verdict "lost coverage", each with its code.
        pairs_verdict: verdict of the pairs alone, for when the reasons of "lost coverage" are allowed.
        coverage_p: one-sided p-value of "as many samples are scored as in the baseline", not adjusted.
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

    @property
    def interval(self) -> str:
        """The 95% interval of the difference as text; "" if there is none."""
        return interval_text(self.low, self.high, "+.3f")

    def __str__(self) -> str:
        """Return the comparison of the metric as one line: verdict, difference and counts."""
        units = f"{self.pairs} pairs" + (
            "" if self.clusters is None else f" in {self.clusters} cluster{'' if self.clusters == 1 else 's'}"
        )
        counts = f"{units}, {self.better} better, {self.worse} worse"
        if self.samples is not None:
            counts = f"{self.samples[0]} and {self.samples[1]} samples"
        if self.difference is None:
            return f"{self.metric} {self.verdict} ({counts})"
        alone = self.p_unadjusted is not None and self.p_value is not None and self.p_unadjusted < ALPHA <= self.p_value
        p = f"p = {self.p}" + (f" for all metrics, {self.p_unadjusted:.3f} for this one alone" if alone else "")
        loss = f"a loss up to {self.largest_loss:.3f} is possible" if self.largest_loss else ""
        possible = f"; {loss}" if loss and self.verdict == "inconclusive" else ""
        return f"{self.metric} {self.verdict}: {self.difference:+.3f} {self.interval}, {p} ({counts}){possible}"

    @property
    def p(self) -> str:
        """The adjusted p-value as text; "" if there is none."""
        if self.p_value is None:
            return ""
        return "< 0.001" if self.p_value < 0.001 else f"{self.p_value:.3f}"


class Comparison(Analysis[MetricComparison]):
    """Mapping of metric names to comparisons, in the order of the candidate.

    Attributes:
        notes: what a reader of the verdicts should know, such as that some samples are in one report only.
        margin: largest loss that still counts as "no worse".
        require: what `check` and `gates` require by default.
        missing_metrics: metrics that only the baseline has.
        left_out: metrics of which the run has left scores out, because they did not fit its budget.
        nothing_compared: True if no metric has a pair of values, and not because the candidate lost its scores.
    """

    def __init__(
        self,
        metrics: Sequence[MetricComparison],
        notes: Sequence[str] = (),
        margin: float = 0.0,
        *,
        require: Require = "no regression found",
        missing_metrics: Sequence[str] = (),
    ) -> None:
        super().__init__({metric.metric: metric for metric in metrics}, notes)
        self.nothing_compared = not any(
            metric.pairs or metric.coverage_fell or metric.difference is not None for metric in metrics
        )
        self.require, self.missing_metrics, self.margin = require, list(missing_metrics), margin
        self.left_out: Collection[str] = ()

    def gates(self, require: Require | None = None, *, allow: Collection[str] = ()) -> list[Gate]:
        """Return a gate for each metric, and for each that only the baseline has.

        A metric fails if its verdict is "worse" or "lost coverage", and is undecided with "too few pairs". An
        "inconclusive" one passes, unless `require` is "no worse"; its reason then says which loss is still possible.

        Args:
            require: "no regression found", or "no worse", which needs a margin above 0; by default what `compare` was
                given.
            allow: codes of reasons that are meant to be so, such as "missing-samples".

        Raises:
            ConfigError: if `require` is unknown, or is "no worse" without a margin.
        """
        require = check_require(require or self.require, self.margin)
        gates = [_gate_of(metric, require, self.margin, allow) for metric in self.values()]
        for name in self.missing_metrics:
            missing = Note("metric-left-out" if name in self.left_out else "missing-metric", metric=name)
            if missing.code not in allow:
                verdict: GateVerdict = "undecided" if name in self.left_out else "failed"
                gates.append(Gate.of(name, requirement_of(require, self.margin), verdict, [missing]))
        return gates

    @property
    def problems(self) -> list[str]:
        """Reasons of the gates that did not pass; `[]` if `check` passes."""
        return [gate.reason for gate in self.gates() if gate.verdict != "passed"]

    def check(self, require: Require | None = None, *, allow: Collection[str] = ()) -> None:
        """Raise an error unless all `gates` passed.

        Raises:
            BelowThreshold: if one failed or is undecided; the message names every reason, `gates` has all gates.
            ConfigError: if nothing was compared, or an argument is invalid.
        """
        if self.nothing_compared:
            raise ConfigError(f"nothing was compared: {'; '.join(self.notes) or 'there are no metrics in common'}")
        check_gates(self.gates(require, allow=allow))

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns of the table."""
        if all(metric.samples is None for metric in self.values()):
            return PAIRED_HEADINGS
        return (*_HEADINGS, "samples")

    def cells(self) -> list[tuple[str, ...]]:
        """Return a row for each metric."""
        return list(map(comparison_cells, self.values()))

    @property
    def title(self) -> str:
        """Heading of the comparison: what is subtracted, the kind of interval, and the margin of "no worse"."""
        within = f", margin {self.margin:g}" if self.margin else ""
        return f"Candidate minus baseline, 95% intervals, p Holm-adjusted{within}"


_HEADINGS = ("metric", "verdict", "baseline", "candidate", "difference", "95% interval", "p")
PAIRED_HEADINGS = (*_HEADINGS, "pairs", "+", "−")


def comparison_cells(metric: MetricComparison) -> tuple[str, ...]:
    """Return the comparison of a metric as texts, one for each column of `Comparison.headings`."""
    name = f"{metric.metric} ↓" if metric.direction == "lower" else metric.metric
    means = (number_text(metric.baseline), number_text(metric.mean), number_text(metric.difference, "+.3f"))
    counts: tuple[str, ...] = (str(metric.pairs), str(metric.better), str(metric.worse))
    if metric.samples is not None:
        counts = (f"{metric.samples[0]} / {metric.samples[1]}",)
    return (name, metric.verdict, *means, metric.interval or "–", metric.p or "–", *counts)


def compare_rows(
    candidate: Sequence[Row],
    baseline: Sequence[Row],
    margin: float,
    cluster: By | None,
    allow_different_instruments: bool,
    provenance: tuple[Provenance, Provenance] = (Provenance(), Provenance()),
    require: Require = "no regression found",
    *,
    is_drawn: bool = False,
) -> Comparison:
    """Return the comparison of two runs; see `Report.compare`.

    `is_drawn` says that the candidate asked about a random part of the samples, so that none of the others is missing.
    """
    check_require(require, margin)
    shared, notes, alone = metrics_in_common(candidate, baseline, allow_different_instruments, provenance)
    pairing = pair_rows(candidate, baseline)
    if is_drawn:
        pairing = replace(pairing, missing=[])
    units = Units((row.sample for row, _ in pairing.pairs), cluster)
    groups = units.groups()
    compared = [compare_metric(name, direction, pairing.pairs, groups) for name, direction in shared.items()]
    metrics = [_with_coverage(metric, pairing, groups, margin) for metric in with_verdicts(compared, margin)]
    notes += [*_unpaired_notes(candidate, baseline, pairing), *units.notes(paired=True)]
    notes += [
        Note("coverage-fell", metric=metric.metric, lost=metric.lost, gained=metric.gained)
        for metric in metrics
        if metric.coverage_fell
    ]
    return Comparison(metrics, notes, margin, require=require, missing_metrics=alone)


def check_require(require: Any, margin: float) -> Require:
    """Return a requirement.

    Raises:
        ConfigError: if it is unknown, it is "no worse" without a margin, or the margin is not a number of at least 0.
    """
    check_margin(margin)
    if require not in get_args(Require):
        near = did_you_mean(require, get_args(Require))
        raise ConfigError(f"require must be one of {', '.join(map(repr, get_args(Require)))}, got {require!r}{near}")
    if require == "no worse" and not margin:
        raise ConfigError('require="no worse" needs a margin above 0: no sample can show that nothing at all was lost')
    checked: Require = require
    return checked


def requirement_of(require: Require, margin: float) -> str:
    """Return what a gate on a comparison requires, as text."""
    within = f" by more than {margin:g}" if margin else ""
    return f"{'no worse than the baseline' if require == 'no worse' else 'no regression found'}{within}"


def _gate_of(metric: MetricComparison, require: Require, margin: float, allow: Collection[str]) -> Gate:
    reasons = [reason for reason in metric.lost_coverage if reason.code not in allow]
    verdict = "lost coverage" if reasons else metric.pairs_verdict
    required = requirement_of(require, margin)
    if verdict == "lost coverage":
        return Gate.of(metric.metric, required, "failed", reasons)
    finding = replace(metric, verdict=verdict)
    if verdict in ("better", "no worse"):
        return Gate(metric.metric, required, "passed")
    if verdict == "inconclusive":
        note = Note("inconclusive", metric=metric.metric, finding=finding)
        passed = require == "no regression found" or note.code in allow
        return Gate.of(metric.metric, required, "passed" if passed else "undecided", [note])
    code = "worse" if verdict == "worse" else "too-few-pairs"
    if code in allow:
        return Gate(metric.metric, required, "passed")
    note = Note(code, metric=metric.metric, finding=finding, least=LEAST_PAIRS)
    return Gate.of(metric.metric, required, "failed" if verdict == "worse" else "undecided", [note])


def check_margin(margin: object) -> None:
    """Raise ConfigError if a margin is not a number of at least 0."""
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
        raise ConfigError(f"margin must be a number of at least 0, in the metrics' units, got {margin!r}")


def with_verdicts(compared: Sequence[MetricComparison], margin: float) -> list[MetricComparison]:
    """Return comparisons with verdicts and with p-values that are Holm-adjusted over those with enough pairs."""
    coverage = holm([metric.coverage_p for metric in compared])
    compared = [replace(one, coverage_fell=p < COVERAGE_ALPHA) for one, p in zip(compared, coverage, strict=True)]
    tested = [metric.p_unadjusted for metric in compared if metric.p_unadjusted is not None and _has_enough(metric)]
    adjusted = iter(holm(tested))
    return [with_verdict(metric, next(adjusted) if _has_enough(metric) else None, margin) for metric in compared]


def compare_metric(
    name: str,
    direction: Direction,
    pairs: Sequence[Pair],
    groups: Sequence[Hashable] | None,
    unknown: Sequence[float] = (),
) -> MetricComparison:
    """Return the comparison of one metric, without adjusted p-value and verdict.

    Args:
        name: name of the metric.
        direction: "higher" or "lower", whichever is better.
        pairs: rows of candidate and baseline.
        groups: cluster of each pair; None if all are independent.
        unknown: differences that are assumed for further samples of the baseline, each a cluster of its own.
    """
    values = [(_value(ours, name), _value(theirs, name)) for ours, theirs in pairs]
    both = [(place, own, other) for place, (own, other) in enumerate(values) if own is not None and other is not None]
    differences = [*(0.0 if abs(own - other) < ROUNDING else own - other for _, own, other in both), *unknown]
    among: list[Hashable] | None = None
    if groups is not None:
        among = [*(groups[place] for place, _, _ in both), *(("unknown", number) for number in range(len(unknown)))]
    coverage = [float(own is not None) - float(other is not None) for own, other in values]
    span = _span(name, pairs, [value for _, own, other in both for value in (own, other)])
    result = paired_difference(differences, among, span=span) if differences else None
    sign = 1 if direction == "higher" else -1
    loss = largest_loss(differences, among, span=span, sign=sign) if differences else None
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
        largest_loss=loss,
        coverage_p=sign_flip_p(coverage, groups) / 2 if sum(coverage) < 0 else 1.0,
    )


def _with_coverage(
    metric: MetricComparison, pairing: Pairing, groups: Sequence[Hashable] | None, margin: float
) -> MetricComparison:
    """Return the comparison of a metric with the reasons why it lost coverage, if it did.

    Up to 5% of the samples that the baseline scored may be missing, reworded, failed or left out. Of more failed or
    left out ones, the worst is assumed: the metric lost coverage if it would then be worse.
    """
    name = metric.metric
    gone = {"missing-samples": pairing.missing, "reworded-samples": pairing.reworded}
    lacking = {code: [row for row in rows if _value(row, name) is not None] for code, rows in gone.items()}
    scored_pairs = [(ours, theirs) for ours, theirs in pairing.pairs if _value(theirs, name) is not None]
    scored = len(scored_pairs) + sum(map(len, lacking.values()))
    most = MOST_MISSING * scored + 1e-9
    reasons = [
        Note(code, metric=name, count=len(rows), scored=scored, ids=[row.sample.id for row in rows[:_MOST_NAMED]])
        for code, rows in lacking.items()
        if len(rows) > most
    ]
    unknown = [theirs for ours, theirs in scored_pairs if _is_unknown(ours, name)]
    verdict = metric.verdict
    if len(unknown) > most:
        assumed = [worst_of(theirs.scores[name]) - (_value(theirs, name) or 0.0) for theirs in unknown]
        worst = compare_metric(name, metric.direction, pairing.pairs, groups, assumed)
        found = with_verdict(worst, worst.p_unadjusted, margin).verdict
        if found == "worse" and verdict != "worse":
            reasons.append(Note("lost-scores", metric=name, lost=len(unknown), scored=scored))
        elif verdict in ("better", "no worse") and found != verdict:
            verdict = "inconclusive"
    if metric.coverage_fell:
        reasons.append(Note("lost-coverage", metric=name, lost=metric.lost, total=metric.pairs + metric.lost))
    shown: Verdict = "lost coverage" if reasons and verdict != "worse" else verdict
    return replace(metric, verdict=shown, pairs_verdict=verdict, lost_coverage=reasons)


_MOST_NAMED = 5


def _is_unknown(row: Row, name: str) -> bool:
    """Return True if a score is unknown: it failed, or was left out."""
    return name not in row.scores or row.scores[name].failure is not None


def _value(row: Row, name: str) -> float | None:
    return value_of(row.sample, row.scores.get(name))


def _span(name: str, pairs: Sequence[Pair], values: Sequence[float]) -> float:
    """Return the largest possible difference of two values: the range of the metric, or of the values if greater."""
    ranges = [range_of(row.scores[name]) for pair in pairs[:1] for row in pair if name in row.scores]
    span = max((high - low for low, high in ranges), default=1.0)
    return max(span, max(values, default=0.0) - min(values, default=0.0))


def _has_enough(metric: MetricComparison) -> bool:
    """Return True if a metric has enough pairs, clusters or, in a comparison without pairs, samples for a verdict."""
    if metric.samples is not None:
        return metric.p_unadjusted is not None
    return (metric.pairs if metric.clusters is None else metric.clusters) >= LEAST_PAIRS


def with_verdict(metric: MetricComparison, p_value: float | None, margin: float) -> MetricComparison:
    """Return the comparison of a metric with its adjusted p-value and verdict; without one, it keeps its verdict."""
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


def _unpaired_notes(candidate: Sequence[Row], baseline: Sequence[Row], pairing: Pairing) -> list[Note]:
    """Return notes on samples that only one of the reports has."""
    notes, pairs = [], pairing.pairs
    by_question = sum(ours.sample.id != theirs.sample.id for ours, theirs in pairs)
    if by_question:
        notes.append(Note("paired-by-question", count=by_question))
    empty = [name for name, rows in (("candidate", candidate), ("baseline", baseline)) if not rows]
    if empty:
        notes.append(Note(f"{empty[0] if len(empty) == 1 else 'both'}-empty"))
    elif not pairs:
        notes.append(Note("no-common-sample"))
    elif len(pairs) < max(len(candidate), len(baseline)):
        here, there = len(candidate) - len(pairs), len(baseline) - len(pairs)
        ids = [row.sample.id for row in pairing.missing[:_MOST_NAMED]]
        code = "unpaired-samples-named" if ids else "unpaired-samples"
        notes.append(Note(code, here=here, there=there, ids=ids))
    if pairing.reworded:
        ids = [row.sample.id for row in pairing.reworded[:_MOST_NAMED]]
        notes.append(Note("reworded", count=len(pairing.reworded), ids=ids))
    return notes


_LOSSES = [number / 1000 for number in range(1, 1001)]


def minimum_difference(
    data: ReportData, metric: str, power: float, alpha: float, correlation: float, baseline: ReportData | None
) -> float:
    """Return the smallest detectable difference; see `Report.minimum_detectable_difference`."""
    check_metric(data, metric)
    if not (0 < power < 1 and 0 < alpha < 1 and -1 <= correlation < 1):
        raise ConfigError(
            "power and alpha lie between 0 and 1, correlation from -1 to below 1; "
            f"got {power!r}, {alpha!r}, {correlation!r}"
        )
    if baseline is None:
        scores = (row.scores[metric].value for row in data.rows if metric in row.scores)
        values, factor = [value for value in scores if value is not None], sqrt(2 - 2 * correlation)
    else:
        check_metric(baseline, metric)
        pairs = (
            (_value(ours, metric), _value(theirs, metric)) for ours, theirs in paired_rows(data.rows, baseline.rows)
        )
        values, factor = [own - other for own, other in pairs if own is not None and other is not None], 1.0
    if len(values) < 2:
        raise ConfigError(f"{metric}: a spread needs at least two scored samples, got {len(values)}")
    spread, centre = factor * stdev(values), fmean(values)
    deviation = factor * max(abs(value - centre) for value in values)

    def detectable(spread: float, deviation: float) -> float:
        return detectable_difference(spread, len(values), power, alpha, largest_deviation=deviation)

    found = detectable(spread, deviation)
    if found == inf or 2 * max(Counter(values).values()) <= len(values):
        return found

    def is_detected(loss: float) -> bool:
        """Return True for a loss that is detected if a share of the differences is -1 and the others are 0."""
        return detectable(max(spread, sqrt(loss * (1 - loss))), 1 - loss) <= loss

    lowest = bisect_left(_LOSSES, True, key=is_detected)
    return max(found, _LOSSES[lowest]) if lowest < len(_LOSSES) else inf
