"""Confidence intervals of means of bounded values: from the values alone, or from few labels and many predictions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from math import exp, fsum, lgamma, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def student_t_p(t: float, freedom: float) -> float:
    """Return the two-sided p-value of Student's t: the probability that |T| is at least |t|.

    Args:
        t: value of the statistic; infinite values give 0.
        freedom: degrees of freedom, above 0.

    Returns:
        A probability from 0 to 1.

    Source: Abramowitz and Stegun 1964, Handbook of Mathematical Functions, 26.7.1 and 26.5.27.
    """
    square = t * t
    return incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))


@lru_cache(maxsize=1024)
def student_t_quantile(level: float, freedom: float) -> float:
    """Return the quantile t of Student's distribution: |T| is below t with probability `level`.

    Args:
        level: central probability, from 0 to below 1; 0.95 gives the factor of a two-sided 95% interval.
        freedom: degrees of freedom, above 0.

    Returns:
        The quantile, at least 0. It is at most about 1e154, a value that occurs only below 0.01 degrees of freedom.
    """
    return least_accepted(lambda t: student_t_p(t, freedom) <= 1 - level, 1e-13)


def least_accepted(accepts: Callable[[float], bool], precision: float) -> float:
    """Return the least number above 0 that fulfils a condition, by bisection.

    Args:
        accepts: function that returns True if a number fulfils the condition. If it returns True for a number, it must
            return True for every greater number.
        precision: largest error of the result, relative to the result.
    """
    low, high = 0.0, 1.0
    while not accepts(high):
        low, high = high, 2 * high
    while high - low > precision * high:
        middle = (low + high) / 2
        low, high = (low, middle) if accepts(middle) else (middle, high)
    return high


def incomplete_beta(a: float, b: float, x: float, complement: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b); `complement` is 1 - x without its rounding error.

    With x at most (a + 1) / (a + b + 2), no divisor of the fraction is 0.

    Source: the continued fraction of Abramowitz and Stegun 1964, 26.5.8, by Lentz's method (Thompson and Barnett 1986,
        doi:10.1016/0021-9991(86)90046-X).
    """
    if x == 0 or complement == 0:  # of an infinite t, or of 0
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, complement, x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(complement)) / a
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 10_000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return front * fraction


_TOLERANCE = 1e-9  # by which rounding may move a value out of [0, 1]


def bounded_mean_interval(
    values: Sequence[float], level: float = 0.95, clusters: Sequence[Hashable] | None = None
) -> tuple[float, float]:
    """Compute a confidence interval for the population mean of values in [0, 1].

    This is Wilson's score interval with an effective sample size: the number of binary values that would determine the
    mean as precisely. The effective size is n times the factor p(1 - p) / variance. Mean and variance in this factor
    include one additional value at 0 and one at 1, so that a sample of equal values does not seem certain. On 0/1 data
    the factor is 1 and the interval is exactly Wilson's.

    Coverage of the 95% interval, simulated from n = 10 to 200: 92% or more on 0/1 data with p = .5, .9 and .97, on
    shares of supported statements with mean .9, and on a mixture of ones and partial values. It is at worst about 90%
    if a rare low value decides (p = .99). Below n = 10 it can fall to 85%, as with Wilson's interval. With clusters, a
    quantile of Student's t replaces the smaller normal quantile and so widens the interval. Coverage with 5 to 50
    clusters of 5 values on average: 92% or more. The worst case is about 90%, if all values within a cluster are equal
    and cluster sizes differ much. In this worst case, an interval that ignores the clusters covers half as often.

    Args:
        values: a random sample of independent values in [0, 1], at least one; shape (n,).
        level: confidence level, between 0 and 1.
        clusters: cluster of each value, such as its document, in the same order; None if all values are independent.
            Each cluster then counts as one value, with Student's t on the effective number of clusters. A single
            cluster gives (0, 1).

    Returns:
        (low, high) with 0 <= low <= mean <= high <= 1.

    Raises:
        ValueError: if there are no values, a value is outside [0, 1], or the level is outside (0, 1).

    Source: Wilson 1927, doi:10.1080/01621459.1927.10502953; the effective sample size in it: Franco et al. 2019,
        doi:10.1093/jssam/smy019; clusters: Korn and Graubard 1998, Survey Methodology 24, 193-201, and Kish 1965,
        Survey Sampling.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1, such as 0.95; got {level}")
    if not values:
        raise ValueError("an interval needs at least one value; got none: at least one sample must be scored")
    for value in values:
        if not -_TOLERANCE <= value <= 1 + _TOLERANCE:
            raise ValueError(f"every value must be in [0, 1]; got {value}: divide by the highest grade of the scale")
    mean = min(max(fsum(values) / len(values), 0.0), 1.0)
    totals, sizes = cluster_totals(values, clusters)
    if clusters is None:
        factor = NormalDist().inv_cdf((1 + level) / 2)
    elif sizes.size == 1:
        return 0.0, 1.0
    else:
        factor = student_t_quantile(level, len(values) ** 2 / float(sizes @ sizes) - 1)
    linearised = mean + (totals - mean * sizes) * (totals.size / len(values))
    extended = np.append(linearised, [0.0, 1.0])
    middle = fsum(extended) / extended.size
    variance = fsum((extended - middle) ** 2) / extended.size
    spread = factor**2 * variance / (totals.size * middle * (1 - middle))  # over the effective size
    centre = (mean + spread / 2) / (1 + spread)
    half = sqrt(spread * mean * (1 - mean) + spread**2 / 4) / (1 + spread)
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))


def cluster_numbers(clusters: Sequence[Hashable]) -> NDArray[np.intp]:
    """Return a number for the cluster of each item. Clusters are numbered from 0 in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(cluster, len(numbers)) for cluster in clusters], dtype=np.intp)


def cluster_totals(values: Sequence[float], clusters: Sequence[Hashable] | None) -> tuple[Floats, Floats]:
    """Return the sums and the sizes of the clusters, each of shape (clusters,); without clusters, one per value."""
    numbers = np.arange(len(values)) if clusters is None else cluster_numbers(clusters)
    sums, sizes = np.bincount(numbers, np.asarray(values, np.float64)), np.bincount(numbers)
    return sums.astype(np.float64), sizes.astype(np.float64)


_ROUNDING = 1e-12  # variance of equal numbers, as computed


class PredictionPoweredMean(NamedTuple):
    """Estimate of a mean label from few labels and many predictions, with its confidence interval.

    Attributes:
        mean: the estimate, within the scale of the labels, as are `low` and `high`.
        low: lower end of the interval.
        high: upper end of the interval.
        weight: weight of the predictions in the estimate: 0 if they are useless, at most 1.
    """

    mean: float
    low: float
    high: float
    weight: float


def prediction_powered_mean(
    labels: Sequence[float],
    predictions: Sequence[float],
    others: Sequence[float],
    level: float = 0.95,
    scale: tuple[float, float] = (0.0, 1.0),
    clusters: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
) -> PredictionPoweredMean:
    """Estimate the mean label of a population from the labels of a few items, and predictions for all items.

    The mean prediction of the unlabelled items is corrected by the difference between labels and predictions on the
    labelled items. The correction is weighted: predictions that agree with the labels narrow the interval, and useless
    predictions have no effect. The weight of each labelled item is computed from the other labelled items
    (cross-fitting), so that the estimate has no bias.

    The interval is Student's t interval of the corrections and of two invented corrections: the greatest and the least
    possible correction. Without them, the interval is too narrow if nearly all labels are equal.

    Args:
        labels: labels of randomly selected items, at least one; shape (n,).
        predictions: predictions of the labelled items, in the same order; shape (n,).
        others: predictions of the unlabelled items; may be empty.
        level: confidence level, between 0 and 1.
        scale: the lowest and the highest possible label. Predictions may have another scale.
        clusters: cluster of each labelled item, and cluster of each unlabelled item, such as the conversation of a
            turn. Clusters must be independent; items within a cluster may be dependent. None if every item is
            independent.

    Returns:
        The estimate, with low <= mean <= high within the scale.

    Raises:
        ValueError: if there are no labels, or the numbers of items and of their predictions or clusters differ.

    Source: Angelopoulos et al. 2023, "Prediction-Powered Inference", doi:10.1126/science.adi6000; the weight:
        Angelopoulos, Duchi and Zrnic 2023, "PPI++", arXiv:2311.01453; cross-fitting: Zrnic and Candès 2024,
        doi:10.1073/pnas.2322083121; the invented corrections: as in `paired_difference`; clusters: the sandwich
        estimator of Liang and Zeger 1986, doi:10.1093/biomet/73.1.13.
    """
    if not labels or len(labels) != len(predictions):
        raise ValueError(
            f"got {len(labels)} labels and {len(predictions)} predictions: pass at least one label, and a prediction "
            "for each label"
        )
    human, judge, more = (np.asarray(values, dtype=np.float64) for values in (labels, predictions, others))
    (lowest, highest), count = scale, len(labels) + 2
    if clusters is not None and (len(clusters[0]), len(clusters[1])) != (human.size, more.size):
        names = f"{len(clusters[0])} and {len(clusters[1])}"
        raise ValueError(f"got {names} clusters for {human.size} and {more.size} items: pass one cluster for each item")
    scores = np.concatenate([judge, more])
    least, greatest = float(scores.min()), float(scores.max())
    if least >= 0 and greatest <= 1:
        least, greatest = 0.0, 1.0
    if more.size:  # with weights that differ, the variance would depend on the origin of the predictions
        middle = float(more.mean())
        judge, more, least, greatest = judge - middle, more - middle, least - middle, greatest - middle
    weights = _weights(human, judge, more, range(len(labels)) if clusters is None else clusters[0])
    weight, corrections = float(weights.mean()), human - weights * judge
    extended = np.append(corrections, [highest - weight * least, lowest - weight * greatest])
    if clusters is None:
        freedom, variance = count - 1, float(extended.var(ddof=1)) / count
        if weight:
            variance += weight**2 * float(more.var(ddof=1)) / more.size
    else:
        freedom = len({*clusters[0]}) + 1
        variance = _clustered_variance(extended, weight * more, clusters)
    half = student_t_quantile(level, freedom) * sqrt(variance)
    centre = float(extended.mean())
    mean = min(max(float(corrections.mean()), lowest), highest)
    return PredictionPoweredMean(
        mean, max(lowest, min(centre - half, mean)), min(highest, max(centre + half, mean)), weight
    )


def _clustered_variance(
    corrections: Floats, others: Floats, clusters: tuple[Sequence[Hashable], Sequence[Hashable]]
) -> float:
    """Return the variance of the sum of two means over clustered items.

    Args:
        corrections: corrections of the labelled items, and the two invented ones, each of which is a cluster.
        others: weighted predictions of the other items.
        clusters: clusters of the labelled and of the other items.
    """
    labelled, rest = clusters
    parts: defaultdict[Hashable, float] = defaultdict(float)
    names = [*((0, name) for name in labelled), (1, "greatest"), (1, "least"), *((0, name) for name in rest)]
    residuals = [(part - part.mean()) / part.size for part in (corrections, others) if part.size]
    for name, residual in zip(names, np.concatenate(residuals), strict=True):
        parts[name] += float(residual)
    return sum(part**2 for part in parts.values()) * len(parts) / (len(parts) - 1)


def _weights(labels: Floats, predictions: Floats, others: Floats, units: Sequence[Hashable]) -> Floats:
    """Return the weight of the prediction of each labelled item, from 0 to 1, by the labels of the other units.

    A weight minimizes the variance of the estimate. It is 0 if the predictions are all equal, or there are fewer than
    two of other items, or no other units.
    """
    if others.size < 2 or (variance := float(np.concatenate([predictions, others]).var(ddof=1))) <= _ROUNDING:
        return np.zeros_like(labels)
    groups = cluster_numbers(units)
    sums = [np.bincount(groups, values) for values in (np.ones_like(labels), labels, predictions, labels * predictions)]
    rest, *means = (of_units.sum() - of_units for of_units in sums)
    label, prediction, product = (mean / np.maximum(rest, 1) for mean in means)
    weights = (product - label * prediction) / variance / (1 + labels.size / others.size)
    return np.asarray(np.clip(weights, 0.0, 1.0)[groups])
