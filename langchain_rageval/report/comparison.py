"""Comparison of two reports over the same samples, metric by metric, and the smallest detectable difference."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple, get_args

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError, did_you_mean, list_choices
from langchain_rageval.report.files import ReportData, check_metric
from langchain_rageval.report.gates import Gate, GateVerdict, check_gates, worst_of
from langchain_rageval.report.metric_comparison import (
    LEAST_PAIRS,
    JudgeShift,
    MetricComparison,
    Verdict,
    compare_metric,
    judge_shifts,
    largest_difference,
    moved_verdicts,
    value_in,
    with_verdict,
    with_verdicts,
)
from langchain_rageval.report.pairing import Pair, Pairing, metrics_in_common, pair_rows
from langchain_rageval.report.people import LEAST_LABELS, Corrected, Labels, corrected, labelled_pairs
from langchain_rageval.report.tables import Analysis, number_text
from langchain_rageval.report.units import AUTO, By, Units
from langchain_rageval.statistics import detectable_difference

Require = Literal["no regression found", "no worse", "confirmed"]

MOST_MISSING = 0.05
"""Share of the baseline's samples that may be missing."""


class Comparison(Analysis[MetricComparison]):
    """Comparison of a candidate with a baseline: `MetricComparison` by metric name, in the candidate's order.

    Attributes:
        notes: what a reader of the verdicts should know, such as that some samples are in one report only.
        margin: largest loss that still counts as "no worse".
        require: what `check` and `gates` require by default.
        missing_metrics: metrics that only the baseline has.
        left_out: metrics for which the run left out scores, because the scores did not fit the budget.
        nothing_compared: True if no metric could be compared. A metric whose scores the candidate lost counts as
            compared.
        judge_shift: mapping of a metric to the shift of its judge: the mean change of the judge's scores on rows whose
            texts are equal in both runs, and on rows of the baseline that the judge scored again.
        moved: mapping of a metric to one or two verdicts that the metric gets after a correction for `judge_shift`.
            The correction subtracts an end of the shift's interval from the difference, once the lower and once the
            upper end. A metric whose verdict does not change is not in the mapping. A metric in the mapping has the
            verdict "undecided" in this comparison, or "lost coverage" if it lost coverage.
        labelled: name of the metric that people labelled; "" without labels.
    """

    def __init__(
        self,
        metrics: Sequence[MetricComparison],
        notes: Sequence[str] = (),
        margin: float = 0.0,
        *,
        require: Require = "no regression found",
        missing_metrics: Sequence[str] = (),
        judge_shift: Mapping[str, JudgeShift] | None = None,
        moved: Mapping[str, Collection[Verdict]] | None = None,
        labelled: str = "",
    ) -> None:
        self.judge_shift, self.moved, self.labelled = judge_shift or {}, moved or {}, labelled
        shown = (
            replace(one, verdict="undecided") if one.metric in self.moved and not one.lost_coverage else one
            for one in metrics
        )
        found = [Note("judge-shift-found", metric=name, shift=shift) for name, shift in self.judge_shift.items()]
        super().__init__({metric.metric: metric for metric in shown}, [*notes, *found])
        self.nothing_compared = not any(
            metric.pairs or metric.coverage_fell or metric.difference is not None for metric in self.values()
        )
        self.require, self.missing_metrics, self.margin = require, list(missing_metrics), margin
        self.left_out: Collection[str] = ()

    @property
    def corrected(self) -> Corrected | None:
        """Estimated difference of people's mean labels for the metric `labelled`, candidate minus baseline.

        None without labels, or if fewer than 20 independent pairs of answers have both labels.
        """
        return self[self.labelled].corrected if self.labelled else None

    @property
    def confirmed(self) -> bool | None:
        """True if people's labels confirm the verdict on the metric that `labelled` names, False if they contradict it.

        None with fewer than 20 labelled pairs, with a verdict such as "inconclusive", or if the labels do not decide.
        """
        return self[self.labelled].confirmed if self.labelled else None

    def gates(self, require: Require | None = None, *, allow: Collection[str] = ()) -> list[Gate]:
        """Return a gate (passed, failed or undecided) for each metric of either report.

        A metric fails if its verdict is "worse" or "lost coverage" (too many samples have lost their values). It is
        undecided if the verdict is "too few pairs" (fewer than six). A metric with the verdict "inconclusive" passes,
        unless `require` is "no worse"; the reason then states the largest loss that is still possible. A metric is also
        undecided if the result would change after a correction for the shift of the judge, see `judge_shift`.

        Args:
            require: "no regression found"; "no worse", which needs a margin above 0; or "confirmed": people's labels
                confirm that the labelled metric is better or no worse. By default the `require` of `compare`.
            allow: codes of reasons to ignore, because they are intended, such as "missing-samples".

        Raises:
            ConfigError: if `require` is unknown, or is "no worse" without a margin.
        """
        require = check_require(require or self.require, self.margin)
        gates = [self._gate(metric, require, allow) for metric in self.values()]
        for name in self.missing_metrics:
            missing = Note("metric-left-out" if name in self.left_out else "missing-metric", metric=name)
            if missing.code not in allow:
                verdict: GateVerdict = "undecided" if name in self.left_out else "failed"
                gates.append(Gate.of(name, requirement_of(require, self.margin), verdict, [missing]))
        return gates

    def _gate(self, metric: MetricComparison, require: Require, allow: Collection[str]) -> Gate:
        rule: Require = "no regression found" if require == "confirmed" and metric.metric != self.labelled else require
        gate = _gate_of(metric, rule, self.margin, allow)
        moved = [replace(metric, pairs_verdict=verdict) for verdict in self.moved.get(metric.metric, ())]
        if all(_gate_of(one, rule, self.margin, allow).verdict == gate.verdict for one in moved):
            return gate
        note = Note("judge-shift", metric=metric.metric, shift=self.judge_shift[metric.metric], finding=metric)
        return gate if note.code in allow else Gate.of(gate.metric, gate.requirement, "undecided", [note])

    def check(self, require: Require | None = None, *, allow: Collection[str] = ()) -> None:
        """Raise an error unless all gates passed; `gates` gives one for each metric.

        Args:
            require: the requirement, as for `gates`; by default the `require` of `compare`.
            allow: codes of reasons to ignore, because they are intended, such as "missing-samples".

        Raises:
            BelowThreshold: if a gate failed or is undecided. The message names every reason; the attribute `gates` has
                all gates.
            ConfigError: if nothing was compared, or an argument is invalid.
        """
        if self.nothing_compared:
            raise ConfigError(f"nothing was compared: {'; '.join(self.notes) or 'there are no metrics in common'}")
        check_gates(self.gates(require, allow=allow))

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns of the table."""
        return PAIRED_HEADINGS if all(one.samples is None for one in self.values()) else (*_HEADINGS, "samples")

    def cells(self) -> list[tuple[str, ...]]:
        """Return the table's rows: for each metric, a tuple with one text for each column of `headings`."""
        return list(map(comparison_cells, self.values()))

    @property
    def title(self) -> str:
        """Heading of the table: the difference that is shown, the kind of interval, the margin (accepted loss)."""
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
    return (name, metric.shown, *means, metric.interval or "–", metric.p or "–", *counts)


class PeopleLabels(NamedTuple):
    """Labels that people gave the answers of two reports.

    Attributes:
        labels: a sheet of both reports, or labels by its ids; or a tuple of the candidate's and the baseline's labels.
        metric: name of the labelled metric; None for the only metric that the reports have in common.
        scale: the lowest and the highest possible label.
    """

    labels: Labels | tuple[Labels, Labels]
    metric: str | None
    scale: tuple[float, float]


def compare_paired(
    candidate: ReportData,
    baseline: ReportData,
    margin: float = 0.0,
    cluster: By | None = AUTO,
    allow_different_instruments: bool = False,
    require: Require = "no regression found",
    again: Sequence[Row] = (),
    people: PeopleLabels | None = None,
) -> Comparison:
    """Return the comparison of two runs over the same samples; `Report.compare` describes the other arguments.

    `again` holds rows of the baseline that the candidate's metrics scored again, to measure how far the judge has
    changed. If a stopping rule (`until=`) let the candidate score only a random part of the samples, the other samples
    do not count as missing.
    """
    check_require(require, margin)
    shared, judges, notes, alone = metrics_in_common(candidate, baseline, allow_different_instruments)
    if people is not None and people.metric is None and len(shared) != 1:
        raise ConfigError(f"name the labelled metric, such as metric={next(iter(shared), '…')!r}")
    pairing = pair_rows(candidate.rows, baseline.rows)
    if candidate.decisions:
        pairing = replace(pairing, missing=[])
    units = Units((row.sample for row, _ in pairing.pairs), cluster)
    groups = units.groups()
    compared = [
        replace(compare_metric(name, direction, pairing.pairs, groups), judge=judges[name])
        for name, direction in shared.items()
    ]
    judged = with_verdicts(compared, margin)
    shifts = judge_shifts(pairing.pairs, pair_rows(again, baseline.rows).pairs, shared, cluster)
    moved = moved_verdicts(
        judged, shifts, margin, lambda one, by: compare_metric(one.metric, one.direction, pairing.pairs, groups, by=by)
    )
    metrics, labelled = [_with_coverage(metric, pairing, groups, margin) for metric in judged], ""
    if people is not None:
        labelled = people.metric or next(iter(shared))
        metrics, label_notes = _with_labels(metrics, labelled, people, pairing.pairs, groups, margin)
        notes = [*label_notes, *notes]
    notes += [*_unpaired_notes(candidate.rows, baseline.rows, pairing), *units.notes(paired=True)]
    notes += [
        Note("coverage-fell", metric=metric.metric, lost=metric.lost, gained=metric.gained)
        for metric in metrics
        if metric.coverage_fell
    ]
    findings: dict[str, Any] = {"missing_metrics": alone, "judge_shift": shifts, "moved": moved, "labelled": labelled}
    return Comparison(metrics, notes, margin, require=require, **findings)


def _with_labels(
    metrics: Sequence[MetricComparison],
    name: str,
    people: PeopleLabels,
    pairs: Sequence[Pair],
    groups: Sequence[Hashable] | None,
    margin: float,
) -> tuple[list[MetricComparison], list[Note]]:
    """Return the comparisons with what people's labels show, and notes on it."""
    metric = next((one for one in metrics if one.metric == name), None)
    if metric is None:
        raise ConfigError(
            f"the labels are for {name!r}, but the reports have in common only "
            f"{list_choices(name, [one.metric for one in metrics])}"
        )
    values = [(value_in(ours, name), value_in(theirs, name)) for ours, theirs in pairs]
    judged = [None if own is None or other is None else own - other for own, other in values]
    labels, unknown = labelled_pairs(pairs, people.labels)
    width = people.scale[1] - people.scale[0]
    found = corrected(list(zip(labels, judged, strict=True)), (-width, width), groups)
    notes = [Note("labels-of-no-sample", metric=name, count=len(unknown), ids=unknown[:_MOST_NAMED])] if unknown else []
    if found is None:
        count = sum(label is not None for label in labels)
        return list(metrics), [*notes, Note("few-labels", metric=name, count=count, least=LEAST_LABELS)]
    labelled = replace(metric, corrected=found, confirmed=_confirmed(metric, found, margin))
    conflict = [Note("contradicted", metric=metric.metric, finding=labelled)] if labelled.confirmed is False else []
    return [labelled if one is metric else one for one in metrics], [*conflict, *notes]


def _confirmed(metric: MetricComparison, found: Corrected, margin: float) -> bool | None:
    """Return whether people's labels show the verdict of the pairs, or the contrary; None if neither."""
    low, high = (found.low, found.high) if metric.direction == "higher" else (-found.high, -found.low)
    least = -margin if metric.pairs_verdict == "no worse" else 0.0
    if metric.pairs_verdict not in ("better", "worse", "no worse") or low <= least <= high:
        return None
    return (low > least) == (metric.pairs_verdict != "worse")


def check_require(require: Require, margin: float) -> Require:
    """Return a requirement if it is valid.

    Raises:
        ConfigError: if the requirement is unknown, or is "no worse" without a margin; or if the margin is not a number
            of at least 0.
    """
    check_margin(margin)
    if require not in get_args(Require):
        near = did_you_mean(require, get_args(Require))
        raise ConfigError(f"require must be one of {', '.join(map(repr, get_args(Require)))}, got {require!r}{near}")
    if require == "no worse" and not margin:
        raise ConfigError('require="no worse" needs a margin above 0: no sample can show that nothing at all was lost')
    return require


def requirement_of(require: Require, margin: float) -> str:
    """Return the requirement of a gate as text, such as "no worse" with the margin."""
    within = f" by more than {margin:g}" if margin else ""
    if require == "confirmed":
        return f"confirmed by people's labels{within}"
    return f"{'no worse than the baseline' if require == 'no worse' else 'no regression found'}{within}"


_GATES: Mapping[Verdict, tuple[str, GateVerdict]] = {
    "better": ("", "passed"),
    "no worse": ("", "passed"),
    "inconclusive": ("inconclusive", "passed"),
    "worse": ("worse", "failed"),
}
"""Code of the reason, "" for none, and verdict of a gate, by the verdict of the pairs; the others are too few pairs."""
_CONFIRMED: Mapping[bool | None, tuple[str, GateVerdict]] = {
    True: ("", "passed"),
    False: ("contradicted", "failed"),
    None: ("not-confirmed", "undecided"),
}


def _gate_of(metric: MetricComparison, require: Require, margin: float, allow: Collection[str]) -> Gate:
    name, required = metric.metric, requirement_of(require, margin)
    if reasons := [reason for reason in metric.lost_coverage if reason.code not in allow]:
        return Gate.of(name, required, "failed", reasons)
    code, found = _GATES.get(metric.pairs_verdict, ("too-few-pairs", "undecided"))
    if require == "confirmed" and code not in ("worse", "too-few-pairs"):
        code, found = _CONFIRMED[metric.confirmed]
    if code == "inconclusive" and require == "no worse" and code not in allow:
        found = "undecided"
    if not code or (found != "passed" and code in allow):
        return Gate(name, required, "passed")
    note = Note(code, metric=name, finding=replace(metric, verdict=metric.pairs_verdict), least=LEAST_PAIRS)
    return Gate.of(name, required, found, [note])


def check_margin(margin: object) -> None:
    """Raise ConfigError if a margin is not a number of at least 0."""
    if isinstance(margin, bool) or not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
        raise ConfigError(f"margin must be a number of at least 0, in the metrics' units, got {margin!r}")


def _with_coverage(
    metric: MetricComparison, pairing: Pairing, groups: Sequence[Hashable] | None, margin: float
) -> MetricComparison:
    """Return the comparison of a metric with the reasons why it lost coverage, if it did.

    Up to 5% of the samples that the baseline scored may be missing, reworded, failed or left out. Of more failed or
    left out ones, the worst is assumed: the metric lost coverage if it would then be worse.
    """
    name = metric.metric
    gone = {"missing-samples": pairing.missing, "reworded-samples": pairing.reworded}
    lacking = {code: [row for row in rows if value_in(row, name) is not None] for code, rows in gone.items()}
    scored_pairs = [(ours, theirs) for ours, theirs in pairing.pairs if value_in(theirs, name) is not None]
    scored = len(scored_pairs) + sum(map(len, lacking.values()))
    most = MOST_MISSING * scored + 1e-9
    reasons = [
        Note(code, metric=name, count=len(rows), scored=scored, ids=[row.sample.id for row in rows[:_MOST_NAMED]])
        for code, rows in lacking.items()
        if len(rows) > most
    ]
    unknown = [theirs for ours, theirs in scored_pairs if (own := ours.scores.get(name)) is None or own.failure]
    verdict = metric.verdict
    if len(unknown) > most:
        assumed = [worst_of(theirs.scores[name]) - (value_in(theirs, name) or 0.0) for theirs in unknown]
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


def _unpaired_notes(candidate: Sequence[Row], baseline: Sequence[Row], pairing: Pairing) -> list[Note]:
    """Return notes on samples that only one of the reports has."""
    notes, pairs = [], pairing.pairs
    if by_question := sum(ours.sample.id != theirs.sample.id for ours, theirs in pairs):
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
    """Return the smallest true difference of a metric, in its units, that a comparison with a later run detects.

    `power` is the probability of detection, `alpha` the level of the test, and `correlation` the expected correlation
    of both runs' values, unless there is a `baseline`. See `Report.minimum_detectable_difference`.
    """
    check_metric(data, metric)
    if not (0 < power < 1 and 0 < alpha < 1 and -1 <= correlation < 1):
        raise ConfigError(
            "power and alpha lie between 0 and 1, correlation from -1 to below 1; "
            f"got {power!r}, {alpha!r}, {correlation!r}"
        )
    numbers = [value for row in data.rows if (value := value_in(row, metric)) is not None]
    if baseline is None:
        values, factor = numbers, sqrt(2 - 2 * correlation)
    else:
        check_metric(baseline, metric)
        pairs = pair_rows(data.rows, baseline.rows).pairs
        both = ((value_in(ours, metric), value_in(theirs, metric)) for ours, theirs in pairs)
        values, factor = [own - other for own, other in both if own is not None and other is not None], 1.0
    if len(values) < 2:
        raise ConfigError(f"{metric}: the estimate needs at least two scored samples, got {len(values)}")
    span = largest_difference(metric, data.rows, numbers) or 1.0
    if span == inf:  # a comparison detects nothing
        return inf
    spread, centre = factor * stdev(values), fmean(values)
    deviation = factor * max(abs(value - centre) for value in values)

    def detectable(spread: float, deviation: float) -> float:
        return detectable_difference(spread, len(values), power, alpha, span=span, largest_deviation=deviation)

    found = detectable(spread, deviation)
    if found == inf or 2 * max(Counter(values).values()) <= len(values):
        return found

    def is_detected(loss: float) -> bool:
        """Return True if a comparison detects that a share of the samples loses the span, and the others nothing."""
        return detectable(max(spread, span * sqrt(loss * (1 - loss))), span * (1 - loss)) <= span * loss

    lowest = bisect_left(_LOSSES, True, key=is_detected)
    return max(found, span * _LOSSES[lowest]) if lowest < len(_LOSSES) else inf
