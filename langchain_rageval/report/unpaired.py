"""Comparison of two reports over different samples, such as production and development, and of their mix.

The mix of a report is the distribution of properties, such as the language, over its samples.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from statistics import quantiles
from typing import Any

import numpy as np

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.report.comparison import Comparison, Require, check_require
from langchain_rageval.report.files import ReportData
from langchain_rageval.report.metric_comparison import (
    MetricComparison,
    Verdict,
    equal_rows,
    judge_shifts,
    moved_verdicts,
    value_in,
    with_verdicts,
)
from langchain_rageval.report.pairing import metrics_in_common, pair_rows
from langchain_rageval.report.summary import value_range
from langchain_rageval.report.units import NONE, By, Units, slices_of
from langchain_rageval.statistics import holm
from langchain_rageval.statistics.paired import Stratum, unpaired_difference
from langchain_rageval.text.language import detect_language

_ALPHA = 0.01
_LEAST_DISTANCE = 0.1
_MOST_VALUES = 20  # of a property; more are no mix, but names of single samples
_PERMUTATIONS = 2_000
_LENGTH = "length of the question"
_LENGTHS = ("short", "medium", "long", "very long")
_MOST_SHOWN = 4
_MOST_DROPPED = 0.05  # of the baseline's samples, in a verdict other than "inconclusive" or "worse"


@dataclass(frozen=True)
class MixShift:
    """Property whose distribution differs between the samples of two runs, such as the language.

    Attributes:
        by: name of the property, such as "language" or "metadata.topic".
        shares: mapping of each value to a pair, its share in the candidate and its share in the baseline; the most
            changed value is first.
        distance: total variation distance from 0 to 1: the share of samples that would have to change to make both runs
            equal.
        p_value: p-value of "both are random samples of one mix", from a permutation test, Holm-adjusted over the
            properties.
    """

    by: str
    shares: Mapping[str, tuple[float, float]]
    distance: float
    p_value: float

    def __str__(self) -> str:
        """Return the shift as a sentence part: the property and its most changed shares."""
        return str(self.note)

    @property
    def note(self) -> Note:
        """Note that names the property and those of its values, at most four, whose shares of the samples differ most.

        `Comparison.notes` and `Trend.notes` have one longer note, which contains the notes of all such properties.
        """
        of_length = self.by == _LENGTH
        shares = [
            Note("share", value=Note(f"length-{value.replace(' ', '-')}") if of_length else value, own=own, other=other)
            for value, (own, other) in islice(self.shares.items(), _MOST_SHOWN)
        ]
        code = {_LENGTH: "shift-of-length", "language": "shift-of-language"}.get(self.by, "shift")
        return Note(code, by=self.by, shares=shares)


def mix_shifts(candidate: Sequence[Row], baseline: Sequence[Row]) -> list[MixShift]:
    """Return the properties whose distribution differs between two runs, the greatest distance first.

    The distance is the total variation distance of the two distributions, from 0 to 1. Only properties with a distance
    of at least 0.1 and a p-value below 0.01 are returned (permutation test, Holm-adjusted over the properties). The
    compared properties are the language and the length of the question, and all metadata and tags that most rows of
    both runs have, with 2 to 20 different values.
    """
    if not candidate or not baseline:
        return []
    found = []
    for by, property_of in _properties(candidate, baseline):
        own, its = ([property_of(row) for row in rows] for rows in (candidate, baseline))
        if 2 <= len({*own, *its}) <= _MOST_VALUES:
            found.append(_shift(by, own, its))
    adjusted = holm([shift.p_value for shift in found])
    shifts = (replace(one, p_value=p) for one, p in zip(found, adjusted, strict=True))
    kept = (shift for shift in shifts if shift.p_value < _ALPHA and shift.distance >= _LEAST_DISTANCE)
    return sorted(kept, key=lambda shift: -shift.distance)


def _properties(candidate: Sequence[Row], baseline: Sequence[Row]) -> Iterator[tuple[str, Callable[[Row], str]]]:
    yield "language", lambda row: detect_language(row.sample.language_text)
    lengths = [len(row.sample.question) for row in baseline]
    bounds = quantiles(lengths, n=4) if len(lengths) > 1 else [*lengths, *lengths, *lengths]
    yield _LENGTH, lambda row: _LENGTHS[bisect_right(bounds, len(row.sample.question))]
    for name in _shared_names([row.sample.metadata for row in candidate], [row.sample.metadata for row in baseline]):
        yield f"metadata.{name}", lambda row, name=name: str(row.sample.metadata.get(name))  # type: ignore[misc]
    for name in _shared_names([row.tags for row in candidate], [row.tags for row in baseline]):
        yield f"tags.{name}", lambda row, name=name: row.tags.get(name, "")  # type: ignore[misc]


def _shared_names(own: Sequence[Mapping[str, object]], its: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names that most rows of both runs have, with texts or truth values."""
    names = []
    for side in (own, its):
        counts = Counter(name for values in side for name, value in values.items() if isinstance(value, str | bool))
        names.append({name for name, count in counts.items() if 2 * count >= len(side)})
    return sorted(set.intersection(*names))


def _shift(by: str, own: Sequence[str], its: Sequence[str]) -> MixShift:
    values = sorted({*own, *its})
    place = {value: number for number, value in enumerate(values)}
    codes = np.array([place[value] for value in (*own, *its)])
    counts = np.bincount(codes, minlength=len(values))
    ours = np.bincount(codes[: len(own)], minlength=len(values))

    def distances(chosen: Any) -> Any:
        return np.abs(chosen / len(own) - (counts - chosen) / len(its)).sum(axis=-1) / 2

    distance = float(distances(ours))
    drawn = np.random.default_rng(0).multivariate_hypergeometric(counts, len(own), size=_PERMUTATIONS)
    p_value = (1 + int((distances(drawn) >= distance - 1e-12).sum())) / (1 + _PERMUTATIONS)
    shares = {
        value: (float(ours[number]) / len(own), float(counts[number] - ours[number]) / len(its))
        for value, number in place.items()
    }
    changed = sorted(shares, key=lambda value: (-abs(shares[value][0] - shares[value][1]), value))
    return MixShift(by, {value: shares[value] for value in changed}, distance, p_value)


LEAST_SAMPLES = 6
"""Minimum number of scored samples, or clusters, in each report."""


_Entry = tuple[Row, Hashable, str | None]
"""Row with its cluster and its slice; None without a value."""
_Value = tuple[float, Hashable, str | None]


def _values(entries: Sequence[_Entry], metric: str) -> list[_Value]:
    """Return value, cluster and slice of each row that has a value."""
    valued = ((value_in(row, metric), cluster, part) for row, cluster, part in entries)
    return [(value, cluster, part) for value, cluster, part in valued if value is not None]


def compare_unpaired(
    candidate: ReportData,
    baseline: ReportData,
    margin: float,
    cluster: By | None,
    allow_different_instruments: bool,
    require: Require,
    again: Sequence[Row],
    reweight: By | None,
) -> Comparison:
    """Return the comparison of two runs over different samples; `Report.compare` describes the other arguments.

    `again` holds rows of the baseline that the candidate's metrics scored again, to measure how far the judge has
    changed.
    """
    check_require(require, margin)
    shared, judges, notes, alone = metrics_in_common(candidate, baseline, allow_different_instruments)
    runs = {"candidate": candidate.rows, "baseline": baseline.rows}
    units = {name: Units((row.sample for row in rows), cluster) for name, rows in runs.items()}
    notes += [Note(f"units-of-{name}", note=note) for name, one in units.items() for note in one.notes()]
    groups = [one.groups() for one in units.values()]
    own, its = (
        list(zip(rows, own or range(len(rows)), slices_of(rows, reweight), strict=True))
        for rows, own in zip(runs.values(), groups, strict=True)
    )
    compare = partial(_compare, own, its, clustered=any(groups))
    metrics = with_verdicts([compare(name, direction) for name, direction in shared.items()], margin)
    if reweight is not None:
        metrics, dropped_notes = _without_dropped(metrics, own, its)
        notes += dropped_notes
    shifts = judge_shifts(equal_rows(*runs.values()), pair_rows(again, baseline.rows).pairs, shared, cluster)
    moved = moved_verdicts(metrics, shifts, margin, lambda one, by: compare(one.metric, one.direction, by=by))
    metrics = [replace(one, judge=judges[one.metric]) for one in metrics]
    for place, metric in enumerate(metrics):
        if metric.coverage_fell:
            lost = [Note("lost-coverage-unpaired", metric=metric.metric)]
            shown: Verdict = metric.verdict if metric.verdict == "worse" else "lost coverage"
            metrics[place] = replace(metric, verdict=shown, lost_coverage=lost)
    notes += _mix_notes(candidate.rows, baseline.rows, reweight)
    return Comparison(metrics, notes, margin, require=require, missing_metrics=alone, judge_shift=shifts, moved=moved)


def _compare(
    own: Sequence[_Entry], its: Sequence[_Entry], metric: str, direction: Direction, *, clustered: bool, by: float = 0.0
) -> MetricComparison:
    """Return the comparison of one metric, with a shift subtracted, without adjusted p-value and verdict."""
    ours, theirs = _values(own, metric), _values(its, metric)
    both = [[1.0] * len(of) + [0.0] * (len(side) - len(of)) for of, side in ((ours, own), (theirs, its))]
    covered = unpaired_difference([Stratum(both[0], both[1])])
    coverage_p = covered.p_value / 2 if covered.candidate < covered.baseline else 1.0  # one-sided
    few: Verdict = "too few samples"
    samples = (len(ours), len(theirs))
    base = MetricComparison(metric, direction, verdict=few, samples=samples, pairs_verdict=few, coverage_p=coverage_p)
    if min(len({cluster for _, cluster, _ in values}) for values in (ours, theirs)) < LEAST_SAMPLES:
        return base
    numbers = [value for value, *_ in (*ours, *theirs)]
    scores = (row.scores[metric] for row, *_ in chain(own, its) if metric in row.scores)
    declared = next((score.range for score in scores if score.range is not None), None)
    low, high = value_range(declared, numbers) or (min(numbers), max(numbers))
    width = high - low or 1.0
    strata = _strata(ours, theirs, low, width, clustered)
    if not strata:
        return base
    found = unpaired_difference(strata, shift=by / width)
    return replace(
        base,
        mean=low + width * found.candidate,
        baseline=low + width * found.baseline,
        difference=width * (found.candidate - found.baseline),
        low=width * found.low,
        high=width * found.high,
        p_unadjusted=found.p_value,
        largest_loss=max(0.0, width * (found.high if direction == "lower" else -found.low)),
    )


def _without_dropped(
    metrics: Sequence[MetricComparison], own: Sequence[_Entry], its: Sequence[_Entry]
) -> tuple[list[MetricComparison], list[Note]]:
    """Return comparisons, at most inconclusive if over 5% of the baseline is in slices of its own, and notes."""
    found, notes = [], []
    for metric in metrics:
        ours, theirs = ([part for *_, part in _values(side, metric.metric)] for side in (own, its))
        dropped = [part or NONE for part in theirs if part is None or part not in ours]
        share = len(dropped) / max(1, len(theirs))
        if dropped:
            slices = list(dict.fromkeys(dropped))
            notes.append(Note("slices-dropped", metric=metric.metric, slices=slices[:_MOST_SHOWN], share=share))
        too_many = share > _MOST_DROPPED and metric.verdict in ("better", "no worse")
        found.append(replace(metric, verdict="inconclusive", pairs_verdict="inconclusive") if too_many else metric)
    return found, notes


def _strata(
    ours: Sequence[_Value], theirs: Sequence[_Value], low: float, width: float, clustered: bool
) -> list[Stratum]:
    """Return the values by slice with the baseline's shares, over the slices that both runs have."""
    parts: dict[str, tuple[list[tuple[float, Hashable]], list[tuple[float, Hashable]]]] = {}
    for side, values in enumerate((ours, theirs)):
        for value, cluster, part in values:
            if part is not None:
                parts.setdefault(part, ([], []))[side].append(((value - low) / width, cluster))
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


def _mix_notes(candidate: Sequence[Row], baseline: Sequence[Row], reweight: By | None) -> list[Note]:
    """Return a note if the samples of the runs are of different kinds."""
    if reweight is not None:
        return [Note("reweighted", by=reweight) if isinstance(reweight, str) else Note("reweighted-slices")]
    shifts = mix_shifts(candidate, baseline)
    if not shifts:
        return []
    by = next((shift.by for shift in shifts if shift.by == "language" or shift.by.startswith("metadata.")), None)
    code = "questions-differ-by" if by else "questions-differ"
    return [Note(code, shifts=[shift.note for shift in shifts], by=by or "")]
