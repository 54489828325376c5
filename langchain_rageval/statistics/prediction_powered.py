"""Prediction-powered inference: a mean known for few items, made more precise by predictions for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from langchain_rageval.statistics.intervals import cluster_numbers, student_t_quantile

_Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # variance of equal numbers, as computed


class PredictionPoweredMean(NamedTuple):
    """Estimate of a mean with its interval, within the scale.

    Attributes:
        mean: the estimate.
        low: lower end of the interval.
        high: upper end of the interval.
        weight: weight of the predictions, from 0 if they are useless to 1.
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
    """Estimate the mean label of a population from few labels and from predictions of these and of other items.

    The mean prediction of the other items is corrected by the difference between labels and predictions. The correction
    is weighted: predictions that agree with the labels narrow the interval, useless ones have no effect. The weight of
    each labelled item is computed from the other ones (cross-fitting), so that the estimate has no bias.

    The interval is Student's t interval of the corrections and two invented ones, the greatest and the least possible.
    Without them, labels that are nearly all equal seem certain.

    Args:
        labels: labels of a random part of the items, at least one; shape (n,).
        predictions: predictions of the labelled items, in the same order; shape (n,).
        others: predictions of the other items; may be empty.
        level: confidence level, between 0 and 1.
        scale: the lowest and the highest possible label. Predictions may have another scale.
        clusters: clusters of the labelled and of the other items, such as the conversations that they are turns of,
            which are independent where items are not; None if every item is independent.

    Returns:
        The estimate, with low <= mean <= high within the scale.

    Raises:
        ValueError: if there are no labels, or not as many predictions or clusters of them.

    Source: Angelopoulos et al. 2023, "Prediction-Powered Inference", doi:10.1126/science.adi6000; the weight:
        Angelopoulos, Duchi and Zrnic 2023, "PPI++", arXiv:2311.01453; cross-fitting: Zrnic and Candès 2024,
        doi:10.1073/pnas.2322083121; the invented corrections: as in
        `paired_difference`; clusters: the sandwich estimator of Liang and Zeger 1986, doi:10.1093/biomet/73.1.13.
    """
    if not labels or len(labels) != len(predictions):
        raise ValueError(f"{len(labels)} labels and {len(predictions)} predictions of them: one of each is needed")
    human, judge, more = (np.asarray(values, dtype=np.float64) for values in (labels, predictions, others))
    (lowest, highest), count = scale, len(labels) + 2
    if clusters is not None and (len(clusters[0]), len(clusters[1])) != (human.size, more.size):
        names = f"{len(clusters[0])} and {len(clusters[1])}"
        raise ValueError(f"{names} clusters of {human.size} and {more.size} items")
    least, greatest = _score_range(np.concatenate([judge, more]))
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
    corrections: _Floats, others: _Floats, clusters: tuple[Sequence[Hashable], Sequence[Hashable]]
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


def _weights(labels: _Floats, predictions: _Floats, others: _Floats, units: Sequence[Hashable]) -> _Floats:
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


def _score_range(scores: _Floats) -> tuple[float, float]:
    """Return the least and the greatest possible score: 0 and 1, or those observed if a score lies outside."""
    least, greatest = float(scores.min()), float(scores.max())
    return (0.0, 1.0) if least >= 0 and greatest <= 1 else (least, greatest)
