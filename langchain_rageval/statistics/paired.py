"""Paired comparison of two runs over the same samples: intervals, p-values and the detectable difference.

A difference is the value of one sample in the candidate run minus its value in the baseline run. Pairs of one cluster,
such as questions about one document, are resampled and flipped together. Results are deterministic and do not depend on
the order of the pairs.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import erfc, exp, fsum, isclose, lgamma, log, sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_EXACT_PAIRS = 15
_MOST_FLIPPED = 1_000  # pairs; beyond, the normal approximation is more accurate than random patterns
_MOST_RESAMPLED = 10_000
_PATTERNS = 20_000
_RESAMPLES = 2_000
_AT_ONCE = 2_000_000  # numbers held in memory
_TOLERANCE = 1e-9  # for sums that differ only by rounding


def mean_difference_interval(
    differences: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    span: float = 1.0,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[float, float]:
    """Compute a confidence interval for the population mean of paired differences.

    Percentile bootstrap over the pairs and two pseudo-pairs: one with difference 0, and one half each at plus and minus
    `span`, so that pairs without a difference do not seem certain. Beyond 10,000 pairs the normal interval is used.

    Coverage at 95%, simulated from n = 10 to 200 on pairs of binary values and of shares of supported statements, with
    and without a difference, independent and correlated: 93% or more. At n = 10, with both runs right 97% of the time,
    the plain percentile and BCa intervals cover 21%, Student's t 37%.

    Args:
        differences: a random sample of differences, one per pair, at least one; shape (n,).
        clusters: cluster of each pair, in the same order; None if all pairs are independent.
        span: the largest possible difference of one pair.
        level: confidence level, between 0 and 1.
        seed: seed of the resampling.

    Returns:
        (low, high) with low <= mean <= high.

    Raises:
        ValueError: if there are no differences.

    Source: Efron 1979, doi:10.1214/aos/1176344552; the added pairs: Agresti and Min 2005, doi:10.1002/sim.1781.
    """
    if not differences:
        raise ValueError("an interval needs at least one difference; got none")
    totals, sizes = _units(differences, clusters)
    mean = float(totals.sum() / sizes.sum())
    # Swapping the runs must give the same interval with opposite signs.
    mirrored = np.sort(-totals).tolist() > np.sort(totals).tolist()
    totals = -totals if mirrored else totals
    order = np.lexsort((sizes, totals))
    low, high = _bootstrapped(totals[order], sizes[order], span, (1 - level) / 2, seed)
    low, high = (-high, -low) if mirrored else (low, high)
    return min(low, mean), max(high, mean)


def _bootstrapped(totals: Floats, sizes: Floats, span: float, tail: float, seed: int) -> tuple[float, float]:
    usual = float(sizes.mean())
    ends = np.array([0.0, 0.0, span, -span]) * usual
    halves, weights = np.append(np.repeat(totals, 2), ends), np.append(np.repeat(sizes, 2), np.full(4, usual))
    count = halves.size // 2
    if count > _MOST_RESAMPLED:
        mean = halves.sum() / weights.sum()
        spread = np.sqrt(np.mean((halves - mean * weights) ** 2) / count) / usual
        half = NormalDist().inv_cdf(1 - tail) * float(spread)
        return float(mean) - half, float(mean) + half
    rng = np.random.default_rng(seed)
    means: list[Floats] = []
    at_once = max(1, _AT_ONCE // count)
    for start in range(0, _RESAMPLES, at_once):
        drawn = rng.integers(0, halves.size, size=(min(at_once, _RESAMPLES - start), count))
        means.append(halves[drawn].sum(axis=1) / weights[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return float(low), float(high)


def sign_flip_p(differences: Sequence[float], clusters: Sequence[Hashable] | None = None, *, seed: int = 0) -> float:
    """Compute the two-sided p-value of the sign-flip permutation test for "both runs are equal".

    Exact if all nonzero differences have the same size, as with binary values (this is McNemar's exact test), and for
    up to 15 nonzero differences. For up to 1,000, estimated from 20,000 random sign patterns, with the observed pattern
    included in the count. Beyond, from the normal approximation of the sum.

    Args:
        differences: one per pair; shape (n,).
        clusters: cluster of each pair, in the same order; the sum of a cluster is flipped as one. None if all pairs are
            independent.
        seed: seed of the random sign patterns.

    Returns:
        Greater than 0, at most 1; 1.0 if all differences are 0 or there are none.

    Source: Fisher 1935, The Design of Experiments, section 21; McNemar 1947, doi:10.1007/BF02295996, with the binomial
        distribution instead of chi-squared; inclusion of the observed pattern: Phipson and Smyth 2010,
        doi:10.2202/1544-6115.1585.
    """
    totals, _ = _units(differences, clusters)
    moved = np.sort(np.abs(totals[np.abs(totals) > _TOLERANCE]))
    if not moved.size:
        return 1.0
    observed = abs(float(totals.sum()))
    if isclose(moved[0], moved[-1], rel_tol=_TOLERANCE):
        return _coin_p(int((totals > _TOLERANCE).sum()), int(moved.size))
    if moved.size > _MOST_FLIPPED:
        return max(erfc(observed / sqrt(2 * float(moved @ moved))), float(np.finfo(float).tiny))
    reached = observed - _TOLERANCE * float(moved.sum())
    if moved.size <= _EXACT_PAIRS:
        patterns = (np.arange(2**moved.size)[:, None] >> np.arange(moved.size)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ moved) >= reached))
    rng = np.random.default_rng(seed)
    as_extreme = 0
    for _ in range(_PATTERNS // 1000):
        signs = 1 - 2 * rng.integers(0, 2, size=(1000, moved.size), dtype=np.int8)
        as_extreme += int(np.sum(np.abs(signs @ moved) >= reached))
    return (as_extreme + 1) / (_PATTERNS + 1)


def _coin_p(heads: int, throws: int) -> float:
    """Return the two-sided p-value of the hypothesis that a coin is fair."""
    fewer = min(heads, throws - heads)
    whole = lgamma(throws + 1) - throws * log(2)
    tail = fsum(exp(whole - lgamma(k + 1) - lgamma(throws - k + 1)) for k in range(fewer + 1))
    return min(1.0, 2 * tail) or float(np.finfo(float).tiny)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple testing by Holm's step-down method.

    Args:
        p_values: from 0 to 1; shape (n,).

    Returns:
        Adjusted p-values in the same order, each at least as large as before and at most 1. If those below alpha are
        rejected, the probability of any false rejection is at most alpha. Empty input gives [].

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65-70.
    """
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted


def detectable_difference(spread: float, pairs: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest true difference that a paired comparison detects with the given power.

    Args:
        spread: standard deviation of the differences.
        pairs: number of pairs, at least 1.
        power: probability that the test detects the difference, between 0 and 1.
        alpha: significance level of the two-sided test, between 0 and 1.

    Returns:
        (z(1 - alpha/2) + z(power)) · spread / √pairs, in the unit of `spread`.

    Source: the normal approximation of the paired t-test; Cohen 1988, Statistical Power Analysis, chapter 2.
    """
    normal = NormalDist()
    return (normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(power)) * spread / sqrt(pairs)


def _units(differences: Sequence[float], clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
    """Return the sums and the sizes of the clusters, each of shape (clusters,); a pair alone is a cluster of size 1."""
    values = np.asarray(differences, dtype=np.float64)
    if clusters is None:
        return values, np.ones(values.size)
    numbers: dict[Hashable, int] = {}
    places = np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)
    return np.bincount(places, weights=values).astype(np.float64), np.bincount(places).astype(np.float64)
