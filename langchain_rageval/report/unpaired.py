"""Comparison of two reports over different samples, such as production with development."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from langchain_rageval.data.instrument import Provenance
from langchain_rageval.data.schema import Row
from langchain_rageval.report.comparison import (
    ALPHA,
    Comparison,
    MetricComparison,
    check_instruments,
    check_margin,
    scores_by_metric,
    with_verdict,
)
from langchain_rageval.report.mix import mix_shifts
from langchain_rageval.report.slices import AUTO, By, Slicer, clusters_of, conversation_of, count_conversations
from langchain_rageval.statistics import holm
from langchain_rageval.statistics.unpaired import Stratum, unpaired_difference

LEAST_SAMPLES = 6
"""Minimum number of scored samples, or clusters, in each report."""


@dataclass(frozen=True)
class _Side:
    """Rows of one report with their clusters and slices."""

    rows: Sequence[Row]
    clusters: Sequence[Hashable] | None
    slices: Sequence[str | None]

    def values(self, metric: str) -> list[tuple[float, Hashable, str | None]]:
        """Return value, cluster and slice of each row that has a value."""
        clusters = self.clusters or [None] * len(self.rows)
        scored = zip(self.rows, clusters, self.slices, strict=True)
        return [
            (value, cluster, part)
            for row, cluster, part in scored
            if metric in row.scores and (value := row.scores[metric].value) is not None
        ]


def compare_unpaired(
    candidate: Sequence[Row],
    baseline: Sequence[Row],
    margin: float,
    cluster: By | None,
    allow_different_instruments: bool,
    reweight: By | None,
    provenance: tuple[Provenance, Provenance] = (Provenance(), Provenance()),
) -> Comparison:
    """Return the comparison of two runs over different samples; see `Report.compare`."""
    check_margin(margin)
    ours, theirs = scores_by_metric(candidate), scores_by_metric(baseline)
    shared = [name for name in ours if name in theirs]
    notes = check_instruments(ours, theirs, shared, allow_different_instruments, provenance)
    clusters, cluster_notes = _clusters(candidate, baseline, cluster)
    notes += cluster_notes
    sides = [_side(rows, own, reweight) for rows, own in zip((candidate, baseline), clusters, strict=True)]
    compared = [_compare(name, ours[name][0].direction, sides[0], sides[1], reweight is not None) for name in shared]
    enough = [metric for metric in compared if metric.p_unadjusted is not None]
    adjusted = holm([metric.p_unadjusted for metric in enough if metric.p_unadjusted is not None])
    p_values = {metric.metric: p for metric, p in zip(enough, adjusted, strict=True)}
    metrics = [with_verdict(metric, p_values.get(metric.metric), margin) for metric in compared]
    for own, other, report in ((ours, theirs, "candidate"), (theirs, ours, "baseline")):
        if alone := [name for name in own if name not in other]:
            notes.append(f"Only the {report} has {', '.join(alone)}.")
    notes += _mix_notes(candidate, baseline, reweight)
    problems = [] if metrics else ["the reports have no metric in common"]
    for metric in metrics:
        if metric.verdict in ("worse", "too few samples"):
            problems.append(str(metric))
        if metric.coverage_fell:
            problems.append(f"{metric.metric} lost coverage: a smaller share of the samples has a score")
    return Comparison(metrics, notes, margin, problems)


def _clusters(
    candidate: Sequence[Row], baseline: Sequence[Row], cluster: By | None
) -> tuple[list[Sequence[Hashable] | None], list[str]]:
    """Return the clusters of the rows of both runs, None if all are independent, and notes on clusters by default.

    Those are the turns of conversations; without two samples of one conversation there are no clusters.
    """
    runs = [[row.sample for row in rows] for rows in (candidate, baseline)]
    if cluster != AUTO:
        return [None if cluster is None else clusters_of(samples, cluster) for samples in runs], []
    named = [[conversation_of(sample) or place for place, sample in enumerate(samples)] for samples in runs]
    notes = []
    for names, report in zip(named, ("candidate", "baseline"), strict=True):
        known = [name for name in names if isinstance(name, str)]
        if len(set(known)) < len(known):
            notes.append(
                f"{len(known)} samples of the {report} are turns of {count_conversations(len(set(known)))}, and each "
                "conversation is one cluster."
            )
    return [names if notes else None for names in named], notes


def _side(rows: Sequence[Row], clusters: Sequence[Hashable] | None, reweight: By | None) -> _Side:
    if reweight is None:
        return _Side(rows, clusters, [None] * len(rows))
    slicer = Slicer(reweight)
    slices = [slicer.slice_of(row.sample) for row in rows]
    slicer.check_known()
    return _Side(rows, clusters, slices)


def _compare(metric: str, direction: str, own: _Side, its: _Side, reweighted: bool) -> MetricComparison:
    """Return the comparison of one metric, without adjusted p-value and verdict."""
    ours, theirs = own.values(metric), its.values(metric)
    numbers = [value for value, *_ in (*ours, *theirs)]
    low, width = (min(numbers), max(numbers) - min(numbers)) if numbers else (0.0, 1.0)
    if not numbers or (low >= 0 and low + width <= 1):
        low, width = 0.0, 1.0
    strata = _strata(ours, theirs, low, width or 1.0, own.clusters is not None, reweighted)
    enough = bool(strata) and min(_units(ours, own), _units(theirs, its)) >= LEAST_SAMPLES
    found = unpaired_difference(strata) if enough else None
    return MetricComparison(
        metric=metric,
        direction="lower" if direction == "lower" else "higher",
        mean=low + width * found.candidate if found else None,
        baseline=low + width * found.baseline if found else None,
        difference=width * (found.candidate - found.baseline) if found else None,
        low=width * found.low if found else None,
        high=width * found.high if found else None,
        p_value=None,
        p_unadjusted=found.p_value if found else None,
        verdict="too few samples",
        pairs=0,
        clusters=None,
        better=0,
        worse=0,
        lost=0,
        gained=0,
        coverage_fell=_coverage_fell((len(ours), len(own.rows)), (len(theirs), len(its.rows))),
        samples=(len(ours), len(theirs)),
    )


def _coverage_fell(own: tuple[int, int], its: tuple[int, int]) -> bool:
    """Return True if a significantly smaller share of the rows has a score; each pair is scored rows and all rows."""
    if not (own[1] and its[1]):
        return False
    ours, theirs = ([1.0] * scored + [0.0] * (rows - scored) for scored, rows in (own, its))
    found = unpaired_difference([Stratum(ours, theirs)])
    return found.candidate < found.baseline and found.p_value / 2 < ALPHA


def _units(values: Sequence[tuple[float, Hashable, str | None]], side: _Side) -> int:
    return len(values) if side.clusters is None else len({cluster for _, cluster, _ in values})


def _strata(
    ours: Sequence[tuple[float, Hashable, str | None]],
    theirs: Sequence[tuple[float, Hashable, str | None]],
    low: float,
    width: float,
    clustered: bool,
    reweighted: bool,
) -> list[Stratum]:
    """Return the values by slice with the baseline's shares, over the slices that both runs have."""
    parts: Mapping[str | None, tuple[list[tuple[float, Hashable]], list[tuple[float, Hashable]]]]
    parts = {part: ([], []) for _, _, part in (*ours, *theirs) if part is not None or not reweighted}
    for number, values in enumerate((ours, theirs)):
        for value, cluster, part in values:
            if part in parts:
                parts[part][number].append(((value - low) / width, cluster))
    both = [(own, its) for own, its in parts.values() if own and its]
    total = sum(len(its) for _, its in both)
    return [
        Stratum(
            [value for value, _ in own],
            [value for value, _ in its],
            len(its) / total,
            [cluster for _, cluster in own] if clustered else None,
            [cluster for _, cluster in its] if clustered else None,
        )
        for own, its in both
    ]


def _mix_notes(candidate: Sequence[Row], baseline: Sequence[Row], reweight: By | None) -> list[str]:
    """Return a note if the samples of the runs are of different kinds."""
    if reweight is not None:
        slices = reweight if isinstance(reweight, str) else "the slices"
        return [f"Both runs are compared at the baseline's shares of {slices}."]
    shifts = mix_shifts(candidate, baseline)
    if not shifts:
        return []
    listed = "; ".join(map(str, shifts))
    by = next((shift.by for shift in shifts if shift.by == "language" or shift.by.startswith("metadata.")), None)
    remedy = f'; reweight="{by}" compares at equal shares' if by else ""
    return [f"The questions differ: {listed}. A difference of the means may be due to them{remedy}."]
