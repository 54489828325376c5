"""Intervals of one run: how sure a mean is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import fsum, sqrt
from statistics import NormalDist

_TOLERANCE = 1e-9  # of a value that rounding has carried out of [0, 1]


def bounded_mean_interval(
    values: Sequence[float], level: float = 0.95, clusters: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """Bound the mean of a population of values in [0, 1], of which these are a random sample.

    Wilson's score interval, with the sample size that a yes-or-no question would have needed to be as sure: n times
    p(1 - p) over the variance. Mean and variance for that factor count one more value at 0 and one at 1, so that a
    sample of equal values does not seem certain. On 0/1 data the factor is 1 and the interval is Wilson's own.

    Coverage at 95%, simulated from n = 10 to 200: 92% or more on 0/1 data with p = .5, .9 and .97, on shares of
    supported statements with mean .9 and on a mixture of ones and partial values; about 90% at worst when a rare low
    value decides (p = .99). Below n = 10 it can fall to 85%, as Wilson's does. Student's t only widens it. With 5 to
    50 clusters of 5 values, all or on average: 92% or more; about 90% at worst when the values within a cluster are all
    equal and the sizes differ much, where an interval that ignores the clusters covers half as often.

    Args:
        values: each in [0, 1], independent of one another, at least one.
        level: the share of samples whose interval is to hold the population's mean, between 0 and 1.
        clusters: to which cluster, such as a document, each value belongs; by default each to its own. Counts one
            value for each cluster, with Student's t on as many clusters as their sizes are worth; [0, 1] for a single
            one.

    Returns:
        (low, high) with 0 <= low <= mean <= high <= 1.

    Raises:
        ValueError: if there are no values, or one lies outside [0, 1], or the level outside (0, 1).

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953; the effective sample size in it: Franco et al. 2019,
        doi:10.1093/jssam/smy019; clusters: Korn and Graubard 1998, Survey Methodology 24, 193-201, and Kish 1965,
        Survey Sampling.
    """
    if not 0 < level < 1:
        raise ValueError(f"the level lies between 0 and 1, such as 0.95; got {level}")
    if not values:
        raise ValueError("an interval needs at least one value; got none: leave unscored samples out, but not all")
    for value in values:
        if not -_TOLERANCE <= value <= 1 + _TOLERANCE:
            raise ValueError(f"every value lies in [0, 1]; got {value}: divide by the scale's highest grade")
    mean = min(max(fsum(values) / len(values), 0.0), 1.0)
    z = NormalDist().inv_cdf((1 + level) / 2)
    if clusters is None:
        low, high = _wilson(mean, _effective_size(values), z)
    else:
        low, high = _wilson_of_clusters(values, clusters, mean, z)
    return max(0.0, min(low, mean)), min(1.0, max(high, mean))


def _wilson_of_clusters(
    values: Sequence[float], clusters: Sequence[Hashable], mean: float, z: float
) -> tuple[float, float]:
    """As for one value from each cluster, linearised: their plain mean is the mean, and they vary as its parts do."""
    members: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        members.setdefault(cluster, []).append(value - mean)
    freedom = len(values) ** 2 / sum(len(own) ** 2 for own in members.values()) - 1
    if freedom <= 0:
        return 0.0, 1.0
    linearised = [mean + fsum(own) * len(members) / len(values) for own in members.values()]
    return _wilson(mean, _effective_size(linearised), _student(z, freedom))


def _student(z: float, freedom: float) -> float:
    """Quantile of Student's t at the normal quantile z, to two terms (Abramowitz and Stegun 1964, 26.7.5)."""
    return float(z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2))


def _effective_size(values: Sequence[float]) -> float:
    """Count the yes-or-no answers that would fix the mean as well as these values do."""
    size = len(values) + 2
    mean = (fsum(values) + 1) / size
    variance = fsum([(value - mean) ** 2 for value in (*values, 0.0, 1.0)]) / size
    return len(values) * mean * (1 - mean) / variance


def _wilson(mean: float, size: float, z: float) -> tuple[float, float]:
    spread = z * z / size
    centre = (mean + spread / 2) / (1 + spread)
    half = sqrt(spread * mean * (1 - mean) + spread * spread / 4) / (1 + spread)
    return centre - half, centre + half
