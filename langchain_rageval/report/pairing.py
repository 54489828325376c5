"""Pair the rows of two runs that belong to one sample, find common metrics, and compare the judges' configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from langchain_rageval.data.instrument import UNKNOWN, Provenance, differences, split_digests, without_code
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Direction, Row, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import ReportData

Pair = tuple[Row, Row]
Name = TypeVar("Name")
Item = TypeVar("Item")


@dataclass(frozen=True)
class Pairing:
    """Pairs of rows that belong to the same sample, and the rows of the baseline without a partner.

    Attributes:
        pairs: rows of candidate and baseline, in the order of the candidate.
        missing: rows of the baseline whose id and question the candidate lacks.
        reworded: rows of the baseline whose id has another question in the candidate.
    """

    pairs: Sequence[Pair]
    missing: Sequence[Row]
    reworded: Sequence[Row]


def pair_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> Pairing:
    """Pair the rows of two runs: first by id and question, then by question alone.

    Several rows with the same id and question are paired in order. A remaining row is paired by question only if the
    question is unique among the remaining rows of both runs.
    """
    unpaired = grouped((row.sample.id, row) for row in baseline)
    others: list[Row | None] = []
    for row in candidate:
        rest = unpaired.get(row.sample.id, [])
        place = next((place for place, other in enumerate(rest) if _question(other) == _question(row)), None)
        others.append(None if place is None else rest.pop(place))
    alone_here = grouped((_question(row), row) for row, other in zip(candidate, others, strict=True) if other is None)
    alone_there = grouped((_question(row), row) for rows in unpaired.values() for row in rows)
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


def grouped(pairs: Iterable[tuple[Name, Item]]) -> dict[Name, list[Item]]:
    """Return the items of pairs of name and item as lists by name, in order of appearance."""
    items: dict[Name, list[Item]] = {}
    for name, item in pairs:
        items.setdefault(name, []).append(item)
    return items


def _question(row: Row) -> str:
    """Return the question of a row with single spaces."""
    return " ".join(row.sample.question.split())


def scores_by_metric(rows: Sequence[Row]) -> dict[str, list[Score]]:
    """Return the scores of each metric, in the order of the rows."""
    return grouped((name, score) for row in rows for name, score in row.scores.items())


def metrics_in_common(
    candidate: ReportData, baseline: ReportData, allowed: bool, rows: Sequence[Row] | None = None
) -> tuple[dict[str, Direction], dict[str, str], list[Note], list[str]]:
    """Return the common metrics of two runs, after checking that the runs are comparable.

    Args:
        candidate: one run.
        baseline: the other run.
        allowed: True if scores of different judge configurations may be compared.
        rows: rows of the candidate to compare; None for all.

    Returns:
        A tuple: mapping of each common metric to "higher" or "lower", whichever is better; mapping of each common
        metric to the names of its judges, "" if unknown; notes on differing configurations, and on metrics of one run
        only; names of the metrics that only the baseline has.

    Raises:
        ConfigError: if the configurations differ and `allowed` is False, or the runs disagree on the direction of a
            metric.
    """
    sides = scores_by_metric(candidate.rows if rows is None else rows), scores_by_metric(baseline.rows)
    provenance = candidate.provenance, baseline.provenance
    shared = {name: own[0].direction for name, own in sides[0].items() if name in sides[1]}
    if opposite := [name for name, direction in shared.items() if sides[1][name][0].direction != direction]:
        raise ConfigError(
            f"the reports disagree on whether higher is better: {', '.join(opposite)}; score both with the same metric"
        )
    notes = _instrument_notes({name: [side[name] for side in sides] for name in shared}, allowed, provenance)
    alone = [[name for name in side if name not in shared] for side in sides]
    notes += [Note(f"only-in-{run}", metrics=names) for run, names in zip(_SIDES, alone, strict=True) if names]
    judges = {name: _judges(name, [side[name] for side in sides], provenance) for name in shared}
    return shared, judges, notes, alone[1]


_SIDES = ("candidate", "baseline")


def _judges(metric: str, sides: Sequence[Sequence[Score]], provenance: Sequence[Provenance]) -> str:
    """Return the names of the judges that gave the scores of a metric in both runs, with commas between them."""
    known = zip(sides, provenance, strict=True)
    digests = ((side, one) for scores, side in known for one in dict.fromkeys(score.instrument for score in scores))
    return ", ".join(dict.fromkeys(name for side, one in digests for name in side.instrument(metric, one).judges))


def _instrument_notes(
    scores: Mapping[str, Sequence[Sequence[Score]]], allowed: bool, provenance: tuple[Provenance, Provenance]
) -> list[Note]:
    """Return notes on the metrics whose judge configurations differ between two runs, or are unknown.

    `scores` holds the scores of each metric in both runs.
    """
    unknown: dict[tuple[str, ...], list[str]] = {}
    listed: list[str] = []
    of_code: list[str] = []
    for name, sides in scores.items():
        here, there = ({score.instrument for score in own if score.value is not None} for own in sides)
        words, is_code = _difference(here, there, provenance)
        if words:
            (of_code if is_code else listed).append(f"{name} ({words})")
        reasons: list[str] = []
        for side, found, known in zip(_SIDES, (here, there), provenance, strict=True):
            why = filter(None, (known.instrument(name, one).unknown for one in sorted(found)))
            reasons += [f"{side}: {reason}" for reason in why][:1]
        if reasons:
            unknown.setdefault(tuple(reasons), []).append(name)
    if listed and not allowed:
        raise ConfigError(
            f"different instruments (judge, prompts, options or version) scored {'; '.join(listed)}: the difference "
            "cannot be attributed to the systems; score both runs with the same instruments, or set "
            "allow_different_instruments=True"
        )
    return [
        *([Note("different-instruments", metrics=listed)] if listed else []),
        *(Note("unknown-instruments", metrics=names, reasons=reasons) for reasons, names in unknown.items()),
        *([Note("other-code", metrics=of_code)] if of_code else []),
    ]


def _difference(
    here: Collection[str], there: Collection[str], provenance: tuple[Provenance, Provenance]
) -> tuple[str, bool]:
    """Return how the known instruments of a metric differ, in words, and whether only in code and versions."""
    words: list[str] = []
    is_code = True
    both = {*here, *there}
    if all("." not in one for one in both) and "" not in both and here and there and here != there:
        return f"instrument {', '.join(sorted(here))} != {', '.join(sorted(there))}", False  # of version 0.1.0
    for number, part in enumerate(("found_by", "counted_by")):
        own, its = ({split_digests(one)[number] for one in found} - {UNKNOWN} for found in (here, there))
        if own and its and own != its:
            one, other = provenance[0].parts.get(min(own - its or own)), provenance[1].parts.get(min(its - own or its))
            words += differences(one, other) or [f"{part} {', '.join(sorted(own))} != {', '.join(sorted(its))}"]
            is_code = is_code and one is not None and other is not None and without_code(one) == without_code(other)
    return "; ".join(dict.fromkeys(words)), is_code
