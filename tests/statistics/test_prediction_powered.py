"""Prediction-powered means: few labels, corrected predictions for all."""

import random
from math import sqrt
from statistics import fmean, variance

import pytest
from scipy.stats import t as student_t

from langchain_rageval.statistics import prediction_powered_mean

DRAW = random.Random(0)
LABELS = [DRAW.choice([0.0, 0.5, 1.0, 1.0]) for _ in range(1000)]


@pytest.mark.parametrize(
    ("predictions", "others"),
    [
        ([0.7] * 50, [0.7] * 950),
        ([1 - label for label in LABELS[:50]], LABELS[50:]),
        (LABELS[:50], []),
        (LABELS[:50], [0.5]),
    ],
    ids=["equal", "opposite", "no others", "one other"],
)
def test_useless_or_too_few_predictions_have_no_weight(predictions, others):
    found = prediction_powered_mean(LABELS[:50], predictions, others)
    assert (found.weight, found.mean) == (0.0, fmean(LABELS[:50]))
    assert 0 <= found.low < found.mean < found.high <= 1


def test_one_label_and_equal_labels_do_not_seem_certain():
    one = prediction_powered_mean([1.0], [1.0], [1.0, 0.0])
    assert (one.mean, one.low, one.high) == (pytest.approx(one.mean), 0.0, 1.0)
    equal = prediction_powered_mean([1.0] * 50, [1.0] * 50, [1.0] * 500)
    assert (equal.mean, equal.high) == (1.0, 1.0)
    assert 0.9 < equal.low < 0.99


@pytest.mark.parametrize(
    ("judge", "others"),
    [
        ([0.2, 0.9, 0.4, 0.7], [0.1, 0.8, 0.6, 0.9, 0.3, 0.5]),
        ([0.2, 0.9, 0.4, 0.7], [0.1, 0.8]),  # the least number of others
        ([0.0, 0.9, 0.4, 0.7], [0.0, 0.8, 0.2]),  # scores may be up to 1, though none is
        ([0.2, 1.0, 0.4, 0.7], [0.1, 0.8, 1.0]),
        ([0.2, 1.5, 0.4, 0.9], [0.0, 0.8, 1.2]),  # beyond [0, 1], they are those observed
        ([-0.2, 0.9, 0.4, 0.7], [0.1, 0.8, 0.5]),
    ],
)
def test_numbers_worked_out_step_by_step(judge, others):
    human = [0.0, 1.0, 0.5, 1.0]
    found = prediction_powered_mean(human, judge, others, level=0.5)
    weights = []
    for place in range(4):  # each weight by the other three labels
        hs, js = human[:place] + human[place + 1 :], judge[:place] + judge[place + 1 :]
        covariance = fmean([h * j for h, j in zip(hs, js, strict=True)]) - fmean(hs) * fmean(js)
        weights.append(min(max(covariance / variance([*judge, *others]) / (1 + 4 / len(others)), 0), 1))
    weight, middle, scores = fmean(weights), fmean(others), [*judge, *others]
    least, greatest = (0, 1) if min(scores) >= 0 and max(scores) <= 1 else (min(scores), max(scores))
    corrections = [h - w * (j - middle) for h, j, w in zip(human, judge, weights, strict=True)]
    invented = [1 - weight * (least - middle), -weight * (greatest - middle)]  # the greatest and the least possible
    extended = [*corrections, *invented]
    half = student_t.ppf(0.75, 5) * sqrt(variance(extended) / 6 + weight**2 * variance(others) / len(others))
    centre = fmean(extended)
    assert found.weight == pytest.approx(weight)
    assert weight > 0.1
    assert found.mean == pytest.approx(fmean(corrections))
    assert (found.low, found.high) == pytest.approx((centre - half, max(centre + half, found.mean)))
    assert 0 < found.low < found.high < 1


def test_the_degrees_of_freedom_of_clusters_are_their_number_and_one_for_two_invented_ones():
    """With predictions of no weight and no others, the variance is that of the labels, clusters in place of items."""
    labels, clusters = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b", "c", "c"]
    found = prediction_powered_mean(labels, [0.5] * 6, [0.5] * 4, level=0.3, clusters=(clusters, list("defg")))
    extended = [*labels, 1.0, 0.0]
    residuals = [(value - fmean(extended)) / 8 for value in extended]
    sums = [sum(residuals[:2]), sum(residuals[2:4]), sum(residuals[4:6]), residuals[6], residuals[7], 0, 0, 0, 0]
    half = student_t.ppf(0.65, 4) * sqrt(sum(part**2 for part in sums) * 9 / 8)
    assert (found.low, found.high) == pytest.approx((fmean(extended) - half, fmean(extended) + half))
