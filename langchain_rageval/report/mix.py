"""Mix of questions: in which properties the samples of two runs differ, such as language, length and topic."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

import numpy as np

from langchain_rageval.data.schema import Row
from langchain_rageval.statistics import holm
from langchain_rageval.text.language import detect_language

_ALPHA = 0.01
_LEAST_DISTANCE = 0.1
_MOST_VALUES = 20  # of a property; more are no mix, but names of single samples
_PERMUTATIONS = 2_000
_LENGTH = "length of the question"
_LENGTHS = ("short", "medium", "long", "very long")
_MOST_SHOWN = 4


@dataclass(frozen=True)
class MixShift:
    """Property in which the samples of two runs differ.

    Attributes:
        by: name of the property, such as "language" or "metadata.topic".
        shares: value to its share in the candidate and in the baseline, the most changed first.
        distance: total variation distance, the share of samples that would have to change, from 0 to 1.
        p_value: p-value of "both are random samples of one mix", from a permutation test, Holm-adjusted over the
            properties.
    """

    by: str
    shares: Mapping[str, tuple[float, float]]
    distance: float
    p_value: float

    def __str__(self) -> str:
        """Return the shift as a sentence part: the property and its most changed shares."""
        parts = [f"{value} {own:.0%} (baseline {other:.0%})" for value, (own, other) in self.shares.items()]
        return f"{self.by}: {', '.join(parts[:_MOST_SHOWN])}"


def mix_shifts(candidate: Sequence[Row], baseline: Sequence[Row]) -> list[MixShift]:
    """Return the properties in which two runs differ significantly and by at least a tenth, the greatest first.

    Compared are the language and the length of the question, and all metadata and tags with at most 20 values.
    """
    if not candidate or not baseline:
        return []
    found = []
    for by, property_of in _properties(candidate, baseline):
        own, its = ([property_of(row) for row in rows] for rows in (candidate, baseline))
        values = Counter([*own, *its])
        if 2 <= len(values) <= _MOST_VALUES:
            found.append(_shift(by, own, its))
    adjusted = holm([shift.p_value for shift in found])
    shifts = [
        MixShift(one.by, one.shares, one.distance, p)
        for one, p in zip(found, adjusted, strict=True)
        if p < _ALPHA and one.distance >= _LEAST_DISTANCE
    ]
    return sorted(shifts, key=lambda shift: -shift.distance)


def _properties(candidate: Sequence[Row], baseline: Sequence[Row]) -> Iterator[tuple[str, Callable[[Row], str]]]:
    yield "language", lambda row: detect_language(row.sample.question)
    lengths = [len(row.sample.question) for row in baseline]
    bounds = quantiles(lengths, n=4) if len(lengths) > 1 else [*lengths, *lengths, *lengths]
    yield _LENGTH, lambda row: _LENGTHS[bisect_right(bounds, len(row.sample.question))]
    for name in _shared_names([row.sample.metadata for row in candidate], [row.sample.metadata for row in baseline]):
        yield f"metadata.{name}", lambda row, name=name: str(row.sample.metadata.get(name))  # type: ignore[misc]
    for name in _shared_names([row.tags for row in candidate], [row.tags for row in baseline]):
        yield f"tags.{name}", lambda row, name=name: row.tags.get(name, "")  # type: ignore[misc]


def _shared_names(own: Sequence[Mapping[str, object]], its: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names that most rows of both runs have, with texts or truth values."""
    names = (
        {
            name
            for name, count in Counter(
                name for values in side for name, value in values.items() if isinstance(value, str | bool)
            ).items()
            if 2 * count >= len(side)
        }
        for side in (own, its)
    )
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
