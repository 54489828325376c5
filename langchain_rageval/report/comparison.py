"""Comparison: what two reports over the same samples say of each other, metric by metric."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from statistics import fmean
from typing import Literal

from langchain_rageval.data.instrument import UNKNOWN, Provenance, differences, split_digests
from langchain_rageval.data.schema import Direction, Row, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.notebook import html_table
from langchain_rageval.report.slices import By, clusters
from langchain_rageval.statistics import holm, mean_difference_interval, sign_flip_p

Verdict = Literal["better", "worse", "no worse", "inconclusive", "too few pairs"]
Pair = tuple[Row, Row]

ALPHA = 0.05
LEAST_PAIRS = 6
"""With fewer pairs, or clusters, no exact two-sided test at 5% can find a difference: 2 / 2⁵ is more."""


@dataclass(frozen=True)
class MetricComparison:
    """One metric of two runs, over the samples that both have scored. "Better" speaks of the candidate.

    Attributes:
        metric: its name.
        direction: whether "higher" or "lower" is better.
        mean: of the candidate over the pairs; None without pairs.
        baseline: mean of the baseline over the pairs.
        difference: mean of candidate minus baseline, whatever the direction; None without pairs.
        low: lower end of the 95% interval of the difference, for this metric alone; None without pairs.
        high: its upper end.
        p_value: of "the two are equal", two-sided, Holm-adjusted over the metrics; None without pairs.
        p_unadjusted: the same for this metric alone.
        verdict: "better" or "worse" when `p_value` is below 0.05, "no worse" when the interval leaves out what is worse
            than the margin, else "inconclusive"; "too few pairs" below six.
        pairs: samples that both have scored.
        clusters: groups of samples that count as one; None when each counts by itself.
        better: pairs in which the candidate's value is the better one.
        worse: pairs in which it is the worse one.
        lost: samples that only the baseline has scored, of those that both hold.
        gained: samples that only the candidate has scored.
        coverage_fell: whether significantly more samples lack a score than in the baseline (sign-flip test, for samples
            McNemar's exact one; p < 0.05 one-sided); the candidate is then neither "better" nor "no worse".
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

    @property
    def interval(self) -> str:
        """The interval as text, "" when there is none."""
        return "" if self.low is None else f"[{self.low:+.3f}, {self.high:+.3f}]"

    def __str__(self) -> str:
        """One line."""
        units = f"{self.pairs} pairs" + ("" if self.clusters is None else f" in {self.clusters} clusters")
        counts = f"{units}, {self.better} better, {self.worse} worse"
        if self.difference is None:
            return f"{self.metric} {self.verdict} ({counts})"
        return f"{self.metric} {self.verdict}: {self.difference:+.3f} {self.interval}, p = {self.p} ({counts})"

    @property
    def p(self) -> str:
        """The adjusted p-value as text, "" when there is none."""
        if self.p_value is None:
            return ""
        return "< 0.001" if self.p_value < 0.001 else f"{self.p_value:.3f}"


class Comparison(Mapping[str, MetricComparison]):
    """Metric name to what two reports say of it, in the candidate's order.

    Attributes:
        notes: what a reader of the verdicts should know, such as that some samples are in one report only.
        margin: by how much a metric may be worse and still count as "no worse".
    """

    def __init__(self, metrics: Sequence[MetricComparison], notes: Sequence[str] = (), margin: float = 0.0) -> None:
        self._metrics = {metric.metric: metric for metric in metrics}
        self.notes = list(notes)
        self.margin = margin

    def __getitem__(self, name: str) -> MetricComparison:
        """One metric."""
        return self._metrics[name]

    def __iter__(self) -> Iterator[str]:
        """Names of the metrics."""
        return iter(self._metrics)

    def __len__(self) -> int:
        """Number of metrics that both reports have."""
        return len(self._metrics)

    def __repr__(self) -> str:
        """One line for each metric, and the notes."""
        return "\n".join([self.title, *map(str, self.values()), *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(self.title, HEADINGS, map(cells, self.values()), self.notes)

    @property
    def title(self) -> str:
        """What is compared, and within which margin."""
        within = f", margin {self.margin:g}" if self.margin else ""
        return f"Candidate minus baseline, 95% intervals, p Holm-adjusted{within}"


HEADINGS = ("metric", "verdict", "baseline", "candidate", "difference", "95% interval", "p", "pairs", "+", "−")


def cells(metric: MetricComparison) -> tuple[str, ...]:
    """One metric as the cells of a table under `HEADINGS`."""

    def told(number: float | None, form: str) -> str:
        return "–" if number is None else format(number, form)

    name = f"{metric.metric} ↓" if metric.direction == "lower" else metric.metric
    means = (told(metric.baseline, ".3f"), told(metric.mean, ".3f"), told(metric.difference, "+.3f"))
    counts = (str(metric.pairs), str(metric.better), str(metric.worse))
    return (name, metric.verdict, *means, metric.interval or "–", metric.p or "–", *counts)


def compare_rows(
    candidate: Sequence[Row],
    baseline: Sequence[Row],
    margin: float,
    cluster: By | None,
    allow_different_instruments: bool,
    provenance: tuple[Provenance, Provenance] = (Provenance(), Provenance()),
) -> Comparison:
    """The comparison of two runs; see `Report.compare`."""
    if not isinstance(margin, int | float) or not isfinite(margin) or margin < 0:
        raise ConfigError(f"margin takes a number from 0 on, in the metrics' units, got {margin!r}")
    ours, theirs = _scores(candidate), _scores(baseline)
    shared = [name for name in ours if name in theirs]
    notes = _check_instruments(ours, theirs, shared, allow_different_instruments, provenance)
    pairs = paired_rows(candidate, baseline)
    groups = None if cluster is None else clusters((row.sample for row, _ in pairs), cluster)
    compared = [_compared(name, ours[name][0].direction, pairs, groups) for name in shared]
    enough = [metric for metric in compared if _units(metric) >= LEAST_PAIRS]
    adjusted = dict(
        zip(
            [m.metric for m in enough],
            holm([m.p_unadjusted for m in enough if m.p_unadjusted is not None]),
            strict=True,
        )
    )
    judged = [_judged(metric, adjusted.get(metric.metric), margin) for metric in compared]
    notes += [*_missing(ours, theirs, candidate, baseline, len(pairs)), *_of_coverage(judged)]
    return Comparison(judged, notes, margin)


def values_of_pairs(metric: str, candidate: Sequence[Row], baseline: Sequence[Row]) -> list[tuple[float, float]]:
    """What the two runs have scored for the samples that both have scored."""
    values = [(_value(ours, metric), _value(theirs, metric)) for ours, theirs in paired_rows(candidate, baseline)]
    return [(own, other) for own, other in values if own is not None and other is not None]


def _scores(rows: Sequence[Row]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for row in rows:
        for name, score in row.scores.items():
            found.setdefault(name, []).append(score)
    return found


def _check_instruments(
    ours: Mapping[str, Sequence[Score]],
    theirs: Mapping[str, Sequence[Score]],
    shared: Sequence[str],
    allowed: bool,
    provenance: tuple[Provenance, Provenance],
) -> list[str]:
    """Return notes on metrics whose instruments differ, where that is allowed, or are unknown."""
    turned = [name for name in shared if ours[name][0].direction != theirs[name][0].direction]
    if turned:
        raise ConfigError(f"the reports disagree on whether higher is better: {', '.join(turned)}")
    differ = {name: words for name in shared if (words := _difference(name, ours[name], theirs[name], provenance))}
    notes = [note for name in shared if (note := _unknown(name, ours[name], theirs[name], provenance))]
    if not differ:
        return notes
    listed = "; ".join(f"{name} ({words})" for name, words in differ.items())
    problem = f"different instruments gave the scores of {listed}"
    effect = "a difference may come from the instruments, not from the systems"
    if not allowed:
        remedy = "score both alike, or pass allow_different_instruments=True"
        raise ConfigError(f"{problem}: {effect}; {remedy}")
    return [f"{problem[0].upper()}{problem[1:]}: {effect}.", *notes]


def _difference(
    name: str, ours: Sequence[Score], theirs: Sequence[Score], provenance: tuple[Provenance, Provenance]
) -> str:
    """Return how the known instruments of a metric differ, in words; "" if they do not."""
    words: list[str] = []
    here, there = ({score.instrument for score in scores if score.value is not None} for scores in (ours, theirs))
    if all("." not in one for one in here | there) and "" not in here | there and here and there and here != there:
        return f"instrument {', '.join(sorted(here))} != {', '.join(sorted(there))}"  # of version 0.1.0
    for number, part in enumerate(("found_by", "counted_by")):
        own, its = ({split_digests(one)[number] for one in found} - {UNKNOWN} for found in (here, there))
        if own and its and own != its:
            one, other = provenance[0].parts.get(min(own - its or own)), provenance[1].parts.get(min(its - own or its))
            words += differences(one, other) or [f"{part} {', '.join(sorted(own))} != {', '.join(sorted(its))}"]
    return "; ".join(words)


def _unknown(
    name: str, ours: Sequence[Score], theirs: Sequence[Score], provenance: tuple[Provenance, Provenance]
) -> str:
    """Return a note if an instrument of a metric is unknown, with the reasons; else ""."""
    reasons = []
    for side, scores, known in zip(("candidate", "baseline"), (ours, theirs), provenance, strict=True):
        found = {score.instrument for score in scores if score.value is not None}
        reason = next((one for digests in sorted(found) if (one := known.instrument(name, digests).unknown)), "")
        reasons += [f"{side}: {reason}"] if reason else []
    if not reasons:
        return ""
    return (
        f"{name}: it is unknown whether the same instrument gave the scores ({'; '.join(reasons)}); "
        "a difference may come from the instruments, not from the systems."
    )


def paired_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> list[Pair]:
    """Rows of one sample id, the first with the first, the second with the second."""
    waiting: dict[str, list[Row]] = {}
    for row in reversed(baseline):
        waiting.setdefault(row.sample.id, []).append(row)
    return [(row, waiting[row.sample.id].pop()) for row in candidate if waiting.get(row.sample.id)]


def _compared(
    name: str, direction: Direction, pairs: Sequence[Pair], groups: Sequence[Hashable] | None
) -> MetricComparison:
    """The numbers of one metric, not yet adjusted or judged."""
    values = [(_value(ours, name), _value(theirs, name)) for ours, theirs in pairs]
    both = [(place, own, other) for place, (own, other) in enumerate(values) if own is not None and other is not None]
    differences = [own - other for _, own, other in both]
    among = None if groups is None else [groups[place] for place, _, _ in both]
    kept = [float(own is not None) - float(other is not None) for own, other in values]
    known = [value for _, own, other in both for value in (own, other)]
    low, high = mean_difference_interval(differences, among, span=_span(known)) if both else (None, None)
    sign = 1 if direction == "higher" else -1
    return MetricComparison(
        metric=name,
        direction=direction,
        mean=fmean(own for _, own, _ in both) if both else None,
        baseline=fmean(other for _, _, other in both) if both else None,
        difference=fmean(differences) if both else None,
        low=low,
        high=high,
        p_value=None,
        p_unadjusted=sign_flip_p(differences, among) if both else None,
        verdict="too few pairs",
        pairs=len(both),
        clusters=None if among is None else len(set(among)),
        better=sum(sign * difference > 0 for difference in differences),
        worse=sum(sign * difference < 0 for difference in differences),
        lost=kept.count(-1.0),
        gained=kept.count(1.0),
        coverage_fell=sum(kept) < 0 and sign_flip_p(kept, groups) / 2 < ALPHA,
    )


def _value(row: Row, name: str) -> float | None:
    return row.scores[name].value if name in row.scores else None


def _span(values: Sequence[float]) -> float:
    """The greatest difference of two values: 1 when all lie from 0 to 1, else the one that was seen."""
    return 1.0 if min(values) >= 0 and max(values) <= 1 else max(values) - min(values)


def _units(metric: MetricComparison) -> int:
    return metric.pairs if metric.clusters is None else metric.clusters


def _judged(metric: MetricComparison, p_value: float | None, margin: float) -> MetricComparison:
    if p_value is None:
        return replace(metric, p_value=metric.p_unadjusted)
    sign = 1 if metric.direction == "higher" else -1
    gain = sign * (metric.difference or 0.0)
    worst = min(sign * (metric.low or 0.0), sign * (metric.high or 0.0))
    verdict: Verdict = "inconclusive"
    if p_value < ALPHA and gain > 0:
        verdict = "better"
    elif worst >= -margin:
        verdict = "no worse"
    elif p_value < ALPHA:
        verdict = "worse"
    if metric.coverage_fell and verdict in ("better", "no worse"):
        verdict = "inconclusive"
    return replace(metric, p_value=p_value, verdict=verdict)


def _missing(
    ours: Mapping[str, object],
    theirs: Mapping[str, object],
    candidate: Sequence[Row],
    baseline: Sequence[Row],
    pairs: int,
) -> list[str]:
    """Notes on what only one of the reports holds."""
    notes = []
    for held, other, whose in ((ours, theirs, "candidate"), (theirs, ours, "baseline")):
        alone = [name for name in held if name not in other]
        if alone:
            notes.append(f"Only the {whose} has {', '.join(alone)}.")
    if not pairs and candidate and baseline:
        notes.append(
            "No sample is in both reports. Samples are paired by id, by default a hash of question, answer and "
            "contexts: give each question an id of its own."
        )
    elif pairs < max(len(candidate), len(baseline)):
        alone_here, alone_there = len(candidate) - pairs, len(baseline) - pairs
        notes.append(f"Paired by id; {alone_here} samples are in the candidate alone, {alone_there} in the baseline.")
    return notes


def _of_coverage(metrics: Sequence[MetricComparison]) -> list[str]:
    return [
        f"{m.metric}: {m.lost} samples that the baseline has scored lack a score, {m.gained} the other way round; what "
        "is left may be the easier part."
        for m in metrics
        if m.coverage_fell
    ]
