"""Unpaired comparison of two runs over different samples: the difference of means, its interval and p-value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import fsum, sqrt

from langchain_rageval.statistics.intervals import bounded_mean_interval

_LEAST_P = 1e-12
_STEPS = 50  # bisections of the level


@dataclass(frozen=True, slots=True)
class Stratum:
    """Values of one slice of the samples in both runs.

    Attributes:
        candidate: values in [0, 1] of the candidate, at least one.
        baseline: values in [0, 1] of the baseline, at least one.
        weight: share of the slice in the mean that both runs are compared at.
        candidate_clusters: cluster of each value of the candidate; None if all are independent.
        baseline_clusters: the same for the baseline.
    """

    candidate: Sequence[float]
    baseline: Sequence[float]
    weight: float = 1.0
    candidate_clusters: Sequence[Hashable] | None = None
    baseline_clusters: Sequence[Hashable] | None = None


@dataclass(frozen=True, slots=True)
class UnpairedDifference:
    """Difference of the weighted means of two runs.

    Attributes:
        candidate: weighted mean of the candidate.
        baseline: weighted mean of the baseline.
        low: lower end of the confidence interval of candidate minus baseline.
        high: upper end.
        p_value: two-sided p-value of "the means are equal"; below 1 minus the level exactly if the interval does not
            contain 0.
    """

    candidate: float
    baseline: float
    low: float
    high: float
    p_value: float


def unpaired_difference(strata: Sequence[Stratum], level: float = 0.95) -> UnpairedDifference:
    """Estimate the difference of two means, over independent samples of one population or of several slices.

    The interval combines the intervals of the single means (`bounded_mean_interval`) as square roots of sums of squared
    distances. On binary values without slices it is Newcombe's hybrid score interval. The p-value inverts it.

    Args:
        strata: the values by slice, at least one; one for an unweighted difference. The weights sum to 1.
        level: confidence level, between 0 and 1.

    Raises:
        ValueError: if a slice has no values, or a value is outside [0, 1].

    Source: Newcombe 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I; for any intervals: Zou
        and Donner 2008, doi:10.1002/sim.3095.
    """
    candidate = fsum(stratum.weight * _mean(stratum.candidate) for stratum in strata)
    baseline = fsum(stratum.weight * _mean(stratum.baseline) for stratum in strata)
    low, high = _interval(strata, candidate - baseline, level)
    return UnpairedDifference(candidate, baseline, low, high, _p_value(strata, candidate - baseline))


def _interval(strata: Sequence[Stratum], difference: float, level: float) -> tuple[float, float]:
    below, above = [], []
    for stratum in strata:
        low, high = bounded_mean_interval(stratum.candidate, level, stratum.candidate_clusters)
        its_low, its_high = bounded_mean_interval(stratum.baseline, level, stratum.baseline_clusters)
        mean, its_mean = _mean(stratum.candidate), _mean(stratum.baseline)
        below.append(stratum.weight**2 * ((mean - low) ** 2 + (its_high - its_mean) ** 2))
        above.append(stratum.weight**2 * ((high - mean) ** 2 + (its_mean - its_low) ** 2))
    return difference - sqrt(fsum(below)), difference + sqrt(fsum(above))


def _p_value(strata: Sequence[Stratum], difference: float) -> float:
    """Return 1 minus the highest level whose interval does not contain 0."""
    if not difference:
        return 1.0
    low, high = 0.0, 1.0 - _LEAST_P
    for _ in range(_STEPS):
        middle = (low + high) / 2
        ends = _interval(strata, difference, middle)
        low, high = (middle, high) if ends[0] > 0 or ends[1] < 0 else (low, middle)
    return max(1.0 - low, _LEAST_P)


def _mean(values: Sequence[float]) -> float:
    return min(max(fsum(values) / len(values), 0.0), 1.0)
