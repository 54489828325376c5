"""Comparison of two reports over the same samples, metric by metric, and the difference that it can detect."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from statistics import fmean, stdev
from typing import Any, Literal, get_args

from langchain_rageval._internal.page import printable_lines
from langchain_rageval.data.instrument import UNKNOWN, Provenance, differences, split_digests, without_code
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import ReportData, check_metric
from langchain_rageval.report.gates import Gate, GateVerdict, check_gates, range_of, value_of, worst_of
from langchain_rageval.report.page_blocks import html_table
from langchain_rageval.report.summary import ROUNDING
from langchain_rageval.report.units import By, Units
from langchain_rageval.statistics import detectable_difference, holm, paired_difference, sign_flip_p
from langchain_rageval.statistics.paired import largest_loss

Verdict = Literal["better", "worse", "no worse", "inconclusive", "too few pairs", "too few samples", "lost coverage"]
Require = Literal["no regression found", "no worse"]
Pair = tuple[Row, Row]

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
    mean: float | None
    baseline: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None
    p_unadjusted: float | None
    verdict: Verdict
    pairs: int
    clusters: int | None
    better: int
    worse: int
    lost: int
    gained: int
    coverage_fell: bool
    samples: tuple[int, int] | None = None
    largest_loss: float | None = None
    lost_coverage: Sequence[Note] = ()
    pairs_verdict: Verdict = "inconclusive"
    coverage_p: float = 1.0

    @property
    def interval(self) -> str:
        """The 95% interval of the difference as text; "" if there is none."""
        return "" if self.low is None else f"[{self.low:+.3f}, {self.high:+.3f}]"

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


class Comparison(Mapping[str, MetricComparison]):
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
        self.nothing_compared = not any(
            metric.pairs or metric.coverage_fell or metric.difference is not None for metric in metrics
        )
        self.require, self.missing_metrics = require, list(missing_metrics)
        self.left_out: Collection[str] = ()
        self._metrics = {metric.metric: metric for metric in metrics}
        self.notes = list(notes)
        self.margin = margin

    def __getitem__(self, name: str) -> MetricComparison:
        """Return the comparison of a metric by its name."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of the metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Return the number of metrics that both reports have."""
        return len(self._metrics)

    def __repr__(self) -> str:
        """Return the comparison as text: one line for each metric, and the notes."""
        lines = [self.title, *map(str, self.values()), *(f"Note: {note}" for note in self.notes)]
        return printable_lines("\n".join(lines))

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

    def _repr_html_(self) -> str:
        """Return an HTML table of the metrics with their differences, for notebooks."""
        return html_table(self.title, self.headings, map(comparison_cells, self.values()), self.notes)

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings of the columns of `comparison_cells`."""
        if all(metric.samples is None for metric in self.values()):
            return PAIRED_HEADINGS
        return (*_HEADINGS, "samples")

    @property
    def title(self) -> str:
        """Heading of the comparison: what is subtracted, the kind of interval, and the margin of "no worse"."""
        within = f", margin {self.margin:g}" if self.margin else ""
        return f"Candidate minus baseline, 95% intervals, p Holm-adjusted{within}"


_HEADINGS = ("metric", "verdict", "baseline", "candidate", "difference", "95% interval", "p")
PAIRED_HEADINGS = (*_HEADINGS, "pairs", "+", "−")


def comparison_cells(metric: MetricComparison) -> tuple[str, ...]:
    """Return the comparison of a metric as texts, one for each column of `Comparison.headings`."""

    def text(number: float | None, form: str) -> str:
        return "–" if number is None else format(number, form)

    name = f"{metric.metric} ↓" if metric.direction == "lower" else metric.metric
    means = (text(metric.baseline, ".3f"), text(metric.mean, ".3f"), text(metric.difference, "+.3f"))
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
    check_margin(margin)
    check_require(require, margin)
    ours, theirs = scores_by_metric(candidate), scores_by_metric(baseline)
    shared = [name for name in ours if name in theirs]
    notes = check_instruments(ours, theirs, shared, allow_different_instruments, provenance)
    pairing = pair_rows(candidate, baseline)
    if is_drawn:
        pairing = replace(pairing, missing=[])
    groups, repeats = _groups_of(pairing.pairs, cluster)
    compared = [compare_metric(name, ours[name][0].direction, pairing.pairs, groups) for name in shared]
    metrics = [_with_coverage(metric, pairing, groups, margin) for metric in with_verdicts(compared, margin)]
    notes += [*_unpaired_notes(ours, theirs, candidate, baseline, pairing), *repeats, *_coverage_notes(metrics)]
    alone = [name for name in theirs if name not in ours]
    return Comparison(metrics, notes, margin, require=require, missing_metrics=alone)


def check_require(require: Any, margin: float) -> Require:
    """Return a requirement.

    Raises:
        ConfigError: if it is unknown, or it is "no worse" without a margin.
    """
    if require not in get_args(Require):
        raise ConfigError(f"require must be one of {', '.join(map(repr, get_args(Require)))}, got {require!r}")
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
    if not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
        raise ConfigError(f"margin must be a number of at least 0, in the metrics' units, got {margin!r}")


def values_of_pairs(metric: str, candidate: Sequence[Row], baseline: Sequence[Row]) -> list[tuple[float, float]]:
    """Return the values of candidate and baseline for each sample that both runs scored."""
    values = [(_value(ours, metric), _value(theirs, metric)) for ours, theirs in paired_rows(candidate, baseline)]
    return [(own, other) for own, other in values if own is not None and other is not None]


def scores_by_metric(rows: Sequence[Row]) -> dict[str, list[Score]]:
    """Return the scores of each metric, in the order of the rows."""
    scores: dict[str, list[Score]] = {}
    for row in rows:
        for name, score in row.scores.items():
            scores.setdefault(name, []).append(score)
    return scores


def check_instruments(
    ours: Mapping[str, Sequence[Score]],
    theirs: Mapping[str, Sequence[Score]],
    shared: Sequence[str],
    allowed: bool,
    provenance: tuple[Provenance, Provenance],
) -> list[Note]:
    """Return notes on metrics whose instruments differ, if that is allowed, or are unknown.

    Raises:
        ConfigError: if they differ and that is not allowed, or the reports disagree on the direction of a metric.
    """
    opposite = [name for name in shared if ours[name][0].direction != theirs[name][0].direction]
    if opposite:
        raise ConfigError(
            f"the reports disagree on whether higher is better: {', '.join(opposite)}; score both with the same metric"
        )
    notes = _unknown_instruments(ours, theirs, shared, provenance)
    listed: list[str] = []
    of_code: list[str] = []
    for name in shared:
        words, is_code = _difference(ours[name], theirs[name], provenance)
        if words:
            (of_code if is_code else listed).append(f"{name} ({words})")
    if of_code:
        notes.append(Note("other-code", metrics=of_code))
    if not listed:
        return notes
    if not allowed:
        raise ConfigError(
            f"different instruments (judge, prompts, options or version) scored {'; '.join(listed)}: the difference "
            "cannot be attributed to the systems; score both alike, or set allow_different_instruments=True"
        )
    return [Note("different-instruments", metrics=listed), *notes]


def _difference(
    ours: Sequence[Score], theirs: Sequence[Score], provenance: tuple[Provenance, Provenance]
) -> tuple[str, bool]:
    """Return how the known instruments of a metric differ, in words, and whether only in code and versions."""
    words: list[str] = []
    is_code = True
    here, there = ({score.instrument for score in scores if score.value is not None} for scores in (ours, theirs))
    if all("." not in one for one in here | there) and "" not in here | there and here and there and here != there:
        return f"instrument {', '.join(sorted(here))} != {', '.join(sorted(there))}", False  # of version 0.1.0
    for number, part in enumerate(("found_by", "counted_by")):
        own, its = ({split_digests(one)[number] for one in found} - {UNKNOWN} for found in (here, there))
        if own and its and own != its:
            one, other = provenance[0].parts.get(min(own - its or own)), provenance[1].parts.get(min(its - own or its))
            words += differences(one, other) or [f"{part} {', '.join(sorted(own))} != {', '.join(sorted(its))}"]
            is_code = is_code and one is not None and other is not None and without_code(one) == without_code(other)
    return "; ".join(dict.fromkeys(words)), is_code


def _unknown_instruments(
    ours: Mapping[str, Sequence[Score]],
    theirs: Mapping[str, Sequence[Score]],
    shared: Sequence[str],
    provenance: tuple[Provenance, Provenance],
) -> list[Note]:
    """Return a note for each reason why the instruments of metrics are unknown."""
    metrics: dict[tuple[str, ...], list[str]] = {}
    for name in shared:
        reasons: list[str] = []
        for side, scores, known in zip(("candidate", "baseline"), (ours[name], theirs[name]), provenance, strict=True):
            digests = sorted({score.instrument for score in scores if score.value is not None})
            unknown = filter(None, (known.instrument(name, one).unknown for one in digests))
            reasons += [f"{side}: {reason}" for reason in unknown][:1]
        if reasons:
            metrics.setdefault(tuple(reasons), []).append(name)
    return [Note("unknown-instruments", metrics=names, reasons=reasons) for reasons, names in metrics.items()]


@dataclass(frozen=True)
class Pairing:
    """Pairs of rows of one sample, and the baseline's rows without a partner.

    Attributes:
        pairs: rows of candidate and baseline, in the order of the candidate.
        missing: rows of the baseline whose id and question the candidate lacks.
        reworded: rows of the baseline whose id has another question in the candidate.
    """

    pairs: Sequence[Pair]
    missing: Sequence[Row]
    reworded: Sequence[Row]


def pair_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> Pairing:
    """Pair rows by id and question, several of one id and question in their order, else by question.

    By question are paired the remaining rows whose question is the only one of its kind among them in both reports.
    """
    unpaired: dict[str, list[Row]] = {}
    for row in baseline:
        unpaired.setdefault(row.sample.id, []).append(row)
    others = [_take(row, unpaired) for row in candidate]
    alone_here = _by_question(row for row, other in zip(candidate, others, strict=True) if other is None)
    alone_there = _by_question(row for rows in unpaired.values() for row in rows)
    pairs, by_question = [], set[int]()
    for row, other in zip(candidate, others, strict=True):
        question = _question(row)
        if other is None and len(alone_here[question]) == len(alone_there.get(question, [])) == 1:
            other = alone_there[question][0]
            by_question.add(id(other))
        if other is not None:
            pairs.append((row, other))
    known = {row.sample.id for rows in alone_here.values() for row in rows}
    rest = [row for rows in unpaired.values() for row in rows if id(row) not in by_question]
    reworded = [row for row in rest if row.sample.id in known]
    return Pairing(pairs, [row for row in rest if row.sample.id not in known], reworded)


def paired_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> Sequence[Pair]:
    """Return pairs of rows of one sample, in the order of the candidate; see `pair_rows`."""
    return pair_rows(candidate, baseline).pairs


def _take(row: Row, unpaired: Mapping[str, list[Row]]) -> Row | None:
    """Remove and return the next row with the same id and question; None if there is none."""
    rest = unpaired.get(row.sample.id, [])
    place = next((place for place, other in enumerate(rest) if _question(other) == _question(row)), None)
    return None if place is None else rest.pop(place)


def _by_question(rows: Iterable[Row]) -> dict[str, list[Row]]:
    by_question: dict[str, list[Row]] = {}
    for row in rows:
        by_question.setdefault(_question(row), []).append(row)
    return by_question


def _question(row: Row) -> str:
    """Return the question of a row with single spaces."""
    return " ".join(row.sample.question.split())


def _groups_of(pairs: Sequence[Pair], cluster: By | None) -> tuple[Sequence[Hashable] | None, list[Note]]:
    """Return the unit of each pair, None if all are independent, and notes on the units; see `Units`."""
    units = Units((row.sample for row, _ in pairs), cluster)
    return units.groups(), units.notes(paired=True)


def with_verdicts(compared: Sequence[MetricComparison], margin: float) -> list[MetricComparison]:
    """Return comparisons with verdicts and with p-values that are Holm-adjusted over those with enough pairs."""
    coverage = holm([metric.coverage_p for metric in compared])
    compared = [replace(one, coverage_fell=p < COVERAGE_ALPHA) for one, p in zip(compared, coverage, strict=True)]
    enough = [metric for metric in compared if _units(metric) >= LEAST_PAIRS]
    adjusted = iter(holm([metric.p_unadjusted for metric in enough if metric.p_unadjusted is not None]))
    return [
        with_verdict(metric, next(adjusted) if _units(metric) >= LEAST_PAIRS else None, margin) for metric in compared
    ]


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
        p_value=None,
        p_unadjusted=result.p_value if result else None,
        verdict="too few pairs",
        pairs=len(both),
        clusters=None if among is None else len(set(among)),
        better=sum(sign * difference > 0 for difference in differences),
        worse=sum(sign * difference < 0 for difference in differences),
        lost=coverage.count(-1.0),
        gained=coverage.count(1.0),
        coverage_fell=False,
        largest_loss=loss,
        pairs_verdict="too few pairs",
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


def _units(metric: MetricComparison) -> int:
    return metric.pairs if metric.clusters is None else metric.clusters


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


def _unpaired_notes(
    ours: Mapping[str, object],
    theirs: Mapping[str, object],
    candidate: Sequence[Row],
    baseline: Sequence[Row],
    pairing: Pairing,
) -> list[Note]:
    """Return notes on metrics and samples that only one of the reports has."""
    notes, pairs = [], pairing.pairs
    for own, other, report in ((ours, theirs, "candidate"), (theirs, ours, "baseline")):
        alone = [name for name in own if name not in other]
        if alone:
            notes.append(Note(f"only-in-{report}", metrics=alone))
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


def _coverage_notes(metrics: Sequence[MetricComparison]) -> list[Note]:
    return [Note("coverage-fell", metric=m.metric, lost=m.lost, gained=m.gained) for m in metrics if m.coverage_fell]


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
        pairs = values_of_pairs(metric, data.rows, baseline.rows)
        values, factor = [own - other for own, other in pairs], 1.0
    if len(values) < 2:
        raise ConfigError(f"{metric}: a spread needs at least two scored samples, got {len(values)}")
    spread, centre = factor * stdev(values), fmean(values)
    deviation = factor * max(abs(value - centre) for value in values)

    def detectable(spread: float, deviation: float) -> float:
        return detectable_difference(spread, len(values), power, alpha, largest_deviation=deviation)

    found = detectable(spread, deviation)
    if found == inf or 2 * max(Counter(values).values()) <= len(values):
        return found
    lowest = bisect_left(_LOSSES, True, key=lambda loss: detectable(max(spread, _spread_of(loss)), 1 - loss) <= loss)
    return max(found, _LOSSES[lowest]) if lowest < len(_LOSSES) else inf


def _spread_of(loss: float) -> float:
    """Return the standard deviation of differences of which a share is -1 and the others are 0."""
    return sqrt(loss * (1 - loss))
