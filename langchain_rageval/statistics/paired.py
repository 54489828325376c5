"""Comparison of the means of two runs: paired (over the same samples) or unpaired (over different samples)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from math import erfc, exp, fsum, inf, isclose, lgamma, log, sqrt
from statistics import NormalDist

import numpy as np

from langchain_rageval.statistics.intervals import (
    bounded_mean_interval,
    cluster_totals,
    least_accepted,
    student_t_p,
    student_t_quantile,
)

# Size of the invented pairs that stand for losses which no pair shows, in spans, and level of the interval of
# `largest_loss`. With both, "no worse" is wrong in at most 2.5% of comparisons (table in
# tests/benchmarks/results/interval_coverage.md), and equal pairs exclude no smaller share than the exact bound.
_UNSEEN, _NO_WORSE_LEVEL = 5 / 4, 0.967
_MOST_FLIPPED = 1_000  # pairs; beyond, the normal approximation is more accurate than random patterns
_PATTERNS = 20_000
_TOLERANCE = 1e-9  # for sums that differ only by rounding


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Mean of paired differences, with a confidence interval and a p-value that agree with each other.

    The interval contains 0 if and only if the p-value is at least 1 minus the confidence level.

    Attributes:
        mean: observed mean of the differences.
        low: lower end of the confidence interval, at most `mean` and at least the lowest possible difference.
        high: upper end of the confidence interval, at least `mean` and at most the highest possible difference.
        p_value: two-sided p-value of the hypothesis "the mean difference is 0"; greater than 0, at most 1.
    """

    mean: float
    low: float
    high: float
    p_value: float


def paired_difference(
    differences: Sequence[float],
    clusters: Sequence[Hashable] | None = None,
    *,
    span: float = 1.0,
    rare_losses: bool = False,
    level: float = 0.95,
) -> PairedDifference:
    """Estimate the population mean of paired differences, and test whether it is 0.

    The method is Student's t interval and test on the pairs and two invented pairs, with differences +r and -r. Here r
    is the largest observed difference, but at least `span` / sqrt(n). The invented pairs pull the estimate towards 0,
    so that a few equal differences do not seem certain. The method assumes that the observed differences are typical.
    This fails if a few samples lose nearly the whole span and most gain a little: a small sample may contain none of
    the losses. `rare_losses` keeps the level in this case, with r = `span`; on few pairs the intervals are then several
    times wider.

    Coverage, level and power: tests/benchmarks/results/interval_coverage.md, by tests/benchmarks/interval_coverage.py.

    Args:
        differences: a random sample of differences, one per pair, at least one; shape (n,).
        clusters: cluster of each pair, in the same order. Each cluster then counts as one pair, so n is the number of
            clusters. None if all pairs are independent.
        span: the largest possible difference of one pair, above 0.
        rare_losses: True to keep the level even if a few samples lose nearly the whole span.
        level: confidence level, between 0 and 1.

    Raises:
        ValueError: if there are no differences, or the span is not above 0.

    Source: Student 1908, doi:10.1093/biomet/6.1.1; the invented pairs: Agresti and Min 2005, doi:10.1002/sim.1781, who
        add them to binary pairs; the value of a cluster: linearisation of a ratio, Cochran 1977, Sampling Techniques,
        section 9A.2.
    """
    if not differences:
        raise ValueError("an interval needs at least one difference; got none")
    if span <= 0:
        raise ValueError(f"span is the largest possible difference of one pair, above 0; got {span!r}")
    totals, sizes = cluster_totals(differences, clusters)
    mean = fsum(differences) / len(differences)
    values = mean + (totals - mean * sizes) * (totals.size / len(differences))
    reach = max(span if rare_losses else span / sqrt(values.size), float(np.abs(values).max()))
    count = values.size + 2
    centre = mean * values.size / count
    squares = fsum([float(value - centre) ** 2 for value in (*values, reach, -reach)])
    error = sqrt(squares / (count - 1) / count)
    half = student_t_quantile(level, count - 1) * error
    p_value = max(student_t_p(centre / error, count - 1), float(np.finfo(float).tiny))
    low, high = max(centre - half, -span), min(centre + half, span)
    return PairedDifference(mean, min(low, mean), max(high, mean), p_value)


def largest_loss(
    differences: Sequence[float], clusters: Sequence[Hashable] | None = None, *, span: float = 1.0, sign: int = 1
) -> float:
    """Return the upper confidence bound (97.5%) of the mean loss of the candidate against the baseline, at least 0.

    The bound allows for rare losses of the whole span, even if no pair shows such a loss. The method is that of
    `paired_difference` with `rare_losses=True`.

    Args:
        differences: candidate minus baseline, one per pair; shape (n,).
        clusters: cluster of each pair; None if all are independent.
        span: the largest possible difference of one pair.
        sign: 1 if a negative difference is a loss, -1 if a positive difference is a loss.
    """
    found = paired_difference(differences, clusters, span=_UNSEEN * span, rare_losses=True, level=_NO_WORSE_LEVEL)
    return min(span, max(0.0, -found.low if sign > 0 else found.high))


def pairs_to_show(margin: float, span: float = 1.0) -> int:
    """Return the least number of pairs that can show that the mean loss is at most `margin`, if no pair differs.

    The pairs show this if `largest_loss`, an upper confidence bound (97.5%), is at most `margin`.

    Args:
        margin: the greatest accepted loss, above 0 and below `span`.
        span: the largest possible difference of one pair.
    """

    def is_enough(pairs: int) -> bool:
        return largest_loss([0.0] * pairs, span=span) <= margin

    most = 1
    while not is_enough(most):
        most *= 2
    return bisect_left(range(most), True, lo=1, key=is_enough)


def sign_flip_p(differences: Sequence[float], clusters: Sequence[Hashable] | None = None, *, seed: int = 0) -> float:
    """Compute the two-sided p-value of the hypothesis "both runs are equal" by the sign-flip permutation test.

    The p-value is exact for up to 15 nonzero differences, and if all nonzero differences have the same size. Binary
    values are such a case: the test is then McNemar's exact test. For up to 1,000 nonzero differences, the p-value is
    estimated from 20,000 random sign patterns, with the observed pattern included in the count. Beyond, it follows from
    the normal approximation of the sum.

    Args:
        differences: difference of each pair; shape (n,).
        clusters: cluster of each pair, in the same order. The sign of a cluster's sum is flipped as a whole. None if
            all pairs are independent.
        seed: seed of the random sign patterns.

    Returns:
        The p-value, greater than 0 and at most 1; 1.0 if there are no differences, or all are 0.

    Source: Fisher 1935, The Design of Experiments, section 21; McNemar 1947, doi:10.1007/BF02295996, with the binomial
        distribution instead of chi-squared; inclusion of the observed pattern: Phipson and Smyth 2010,
        doi:10.2202/1544-6115.1585.
    """
    totals, _ = cluster_totals(differences, clusters)
    moved = np.sort(np.abs(totals[np.abs(totals) > _TOLERANCE]))
    if not moved.size:
        return 1.0
    observed = abs(float(totals.sum()))
    if isclose(moved[0], moved[-1], rel_tol=_TOLERANCE):
        # The signs are throws of a fair coin.
        heads, throws = int((totals > _TOLERANCE).sum()), int(moved.size)
        whole, fewer = lgamma(throws + 1) - throws * log(2), min(heads, throws - heads)
        tail = fsum(exp(whole - lgamma(k + 1) - lgamma(throws - k + 1)) for k in range(fewer + 1))
        return min(1.0, 2 * tail) or float(np.finfo(float).tiny)
    if moved.size > _MOST_FLIPPED:
        return max(erfc(observed / sqrt(2 * float(moved @ moved))), float(np.finfo(float).tiny))
    reached = observed - _TOLERANCE * float(moved.sum())
    if moved.size <= 15:  # all patterns of signs are counted
        patterns = (np.arange(2**moved.size)[:, None] >> np.arange(moved.size)) & 1
        return float(np.mean(np.abs((1 - 2 * patterns) @ moved) >= reached))
    rng = np.random.default_rng(seed)
    as_extreme = 0
    for _ in range(_PATTERNS // 1000):
        signs = 1 - 2 * rng.integers(0, 2, size=(1000, moved.size), dtype=np.int8)
        as_extreme += int(np.sum(np.abs(signs @ moved) >= reached))
    return (as_extreme + 1) / (_PATTERNS + 1)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjust p-values for multiple testing by Holm's step-down method.

    Args:
        p_values: unadjusted p-values from 0 to 1; shape (n,).

    Returns:
        Adjusted p-values in the same order, each at least as large as before and at most 1. If every hypothesis with an
        adjusted p-value below alpha is rejected, the probability of any false rejection is at most alpha. Empty input
        gives [].

    Source: Holm 1979, Scandinavian Journal of Statistics 6, 65-70.
    """
    adjusted = [0.0] * len(p_values)
    greatest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        greatest = max(greatest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = greatest
    return adjusted


def detectable_difference(
    spread: float,
    pairs: int,
    power: float = 0.8,
    alpha: float = 0.05,
    *,
    span: float = 1.0,
    largest_deviation: float = 0.0,
) -> float:
    """Return the smallest true mean difference that `paired_difference` detects with the probability `power`.

    Args:
        spread: standard deviation of the differences.
        pairs: number of pairs, at least 1.
        power: probability that the test detects the difference, between 0 and 1.
        alpha: significance level of the two-sided test, between 0 and 1.
        span: the largest possible difference of one pair.
        largest_deviation: largest expected distance of a single difference from the mean difference. A larger
            distance widens the interval of `paired_difference`, so the result is larger.

    Returns:
        The smallest significant observed difference plus z(power) · spread / √pairs, in the unit of `spread`. Infinite
        if there are too few pairs for any significant difference. A result above the largest possible difference means
        that no difference can be detected with this power.

    Source: the normal approximation of the power of a t-test; Cohen 1988, Statistical Power Analysis, chapter 2.
    """
    count, factor = pairs + 2, student_t_quantile(1 - alpha, pairs + 1)
    if factor >= pairs / 2:  # t of equal differences, whatever their size
        return inf

    def is_significant(mean: float) -> bool:
        reach = max(span / sqrt(pairs), largest_deviation + mean)
        squares = (pairs - 1) * spread**2 + 2 * reach**2 + 2 * pairs * mean**2 / count
        return mean * pairs / count > factor * sqrt(squares / (count - 1) / count)

    return least_accepted(is_significant, 1e-9) + NormalDist().inv_cdf(power) * spread / sqrt(pairs)


_LEAST_P = 1e-12
_STEPS = 50  # bisections of the level


@dataclass(frozen=True, slots=True)
class Stratum:
    """Values of both runs, candidate and baseline, in one slice of the samples.

    Attributes:
        candidate: values in [0, 1] of the candidate, at least one.
        baseline: values in [0, 1] of the baseline, at least one.
        weight: weight of the slice in the weighted mean of either run; the weights of all slices sum to 1.
        candidate_clusters: cluster of each value of the candidate; None if all are independent.
        baseline_clusters: cluster of each value of the baseline; None if all are independent.
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
        high: upper end of the confidence interval.
        p_value: two-sided p-value of the hypothesis "the means are equal"; below 1 - `level` if and only if the
            interval excludes 0.
    """

    candidate: float
    baseline: float
    low: float
    high: float
    p_value: float


def unpaired_difference(strata: Sequence[Stratum], level: float = 0.95, *, shift: float = 0.0) -> UnpairedDifference:
    """Estimate the difference of two means over independent samples, optionally weighted by slices.

    The interval combines the intervals of the two means (`bounded_mean_interval`). The distance of its lower end from
    the difference is sqrt(a² + b²): a is the distance of the candidate's mean from the lower end of its interval, and b
    the distance of the baseline's mean from the upper end of its interval. The upper end uses the opposite ends.
    With slices of weight w, each distance is the square root of the sum of w²(a² + b²). On binary values without
    slices, the result is Newcombe's hybrid score interval. The p-value inverts this interval.

    Args:
        strata: values of both runs for each slice; at least one slice, whose weights sum to 1. A single slice gives an
            unweighted difference.
        level: confidence level, between 0 and 1.
        shift: number that is subtracted from the candidate's mean before the comparison.

    Raises:
        ValueError: if a slice has no values, or a value is outside [0, 1].

    Source: Newcombe 1998, doi:10.1002/(SICI)1097-0258(19980430)17:8<873::AID-SIM779>3.0.CO;2-I; for any intervals: Zou
        and Donner 2008, doi:10.1002/sim.3095.
    """
    candidate = fsum(stratum.weight * _mean(stratum.candidate) for stratum in strata) - shift
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
