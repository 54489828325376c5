"""Prediction-powered means: few labels, corrected predictions for all."""

import random
from collections import Counter
from math import sqrt
from statistics import fmean, variance

import numpy as np
import pytest
from scipy.stats import t as student_t

from langchain_rageval.statistics import prediction_powered_mean

DRAW = random.Random(0)
LABELS = [DRAW.choice([0.0, 0.5, 1.0, 1.0]) for _ in range(1000)]


def test_predictions_equal_to_the_labels_are_used_in_full_and_narrow_the_interval():
    found = prediction_powered_mean(LABELS[:100], LABELS[:100], LABELS[100:])
    alone = prediction_powered_mean(LABELS[:100], [0.5] * 100, [0.5] * 900)
    assert found.weight > 0.8
    assert found.high - found.low < 0.6 * (alone.high - alone.low)
    assert abs(found.mean - fmean(LABELS)) < abs(alone.mean - fmean(LABELS))


def test_a_constant_bias_of_the_predictions_does_not_matter():
    biased = [min(1.0, label / 2 + 0.5) for label in LABELS]
    found = prediction_powered_mean(LABELS[:200], biased[:200], biased[200:])
    assert found.low <= fmean(LABELS) <= found.high < fmean(biased)


@pytest.mark.parametrize("predictions", [[0.7] * 1000, [1 - label for label in LABELS]])
def test_useless_predictions_have_no_weight(predictions):
    found = prediction_powered_mean(LABELS[:100], predictions[:100], predictions[100:])
    assert (found.weight, found.mean) == (0.0, fmean(LABELS[:100]))


@pytest.mark.parametrize("others", [[], [0.5]])
def test_without_other_predictions_the_labels_decide(others):
    found = prediction_powered_mean(LABELS[:50], LABELS[:50], others)
    assert (found.weight, found.mean) == (0.0, fmean(LABELS[:50]))
    assert 0 <= found.low < found.mean < found.high <= 1


def test_one_label_and_equal_labels_do_not_seem_certain():
    one = prediction_powered_mean([1.0], [1.0], [1.0, 0.0])
    assert (one.mean, one.low, one.high) == (pytest.approx(one.mean), 0.0, 1.0)
    equal = prediction_powered_mean([1.0] * 50, [1.0] * 50, [1.0] * 500)
    assert (equal.mean, equal.high) == (1.0, 1.0)
    assert 0.9 < equal.low < 0.99


def test_numbers_worked_out_step_by_step():
    human, judge, others = [0.0, 1.0, 0.5, 1.0], [0.2, 0.9, 0.4, 0.7], [0.1, 0.8, 0.6, 0.9, 0.3, 0.5]
    found = prediction_powered_mean(human, judge, others, level=0.8)
    weights = []
    for place in range(4):  # each weight by the other three labels
        hs, js = human[:place] + human[place + 1 :], judge[:place] + judge[place + 1 :]
        covariance = fmean([h * j for h, j in zip(hs, js, strict=True)]) - fmean(hs) * fmean(js)
        weights.append(min(max(covariance / variance([*judge, *others]) / (1 + 4 / 6), 0), 1))
    weight, middle = fmean(weights), fmean(others)
    corrections = [h - w * (j - middle) for h, j, w in zip(human, judge, weights, strict=True)]
    extended = [
        *corrections,
        1 + weight * middle,
        -weight * (1 - middle),
    ]  # the greatest and the least that are possible
    half = student_t.ppf(0.9, 5) * sqrt(variance(extended) / 6 + weight**2 * variance(others) / 6)
    centre = fmean(extended)
    assert found.weight == pytest.approx(weight)
    assert found.mean == pytest.approx(fmean(corrections))
    assert (found.low, found.high) == pytest.approx((max(centre - half, 0), min(centre + half, 1)))
    assert 0 < found.low < found.high < 1


@pytest.mark.parametrize(("mean", "leniency", "labelled", "size"), [(0.8, 0.7, 10, 100), (0.6, 0.5, 20, 200)])
def test_a_lenient_judge_leaves_no_bias_in_the_estimate(mean, leniency, labelled, size):
    """Weights computed from the same labels would leave a bias of 0.02 to 0.03."""
    rng, found = np.random.default_rng(3), []
    for _ in range(4000):
        human = (rng.random(size) < mean) * 1.0
        judge = np.where((human == 0) & (rng.random(size) < leniency), 1.0, human).tolist()
        found.append(prediction_powered_mean(human[:labelled].tolist(), judge[:labelled], judge[labelled:]).mean)
    assert abs(fmean(found) - mean) < 0.005 + 1.96 * float(np.std(found)) / 4000**0.5


def test_another_scale_gives_the_same_estimate_in_its_units():
    grades = [1 + 4 * label for label in LABELS]
    found = prediction_powered_mean(grades[:100], LABELS[:100], LABELS[100:], scale=(1, 5))
    plain = prediction_powered_mean(LABELS[:100], LABELS[:100], LABELS[100:])
    assert 1 <= found.low <= found.mean <= found.high <= 5
    assert abs(found.mean - (1 + 4 * plain.mean)) < 0.15


def test_intervals_over_conversations_cover_the_mean_where_those_over_turns_do_not():
    draw = np.random.default_rng(0)
    conversations, turns, mean, runs = 30, 8, 0.8, 400
    names = np.repeat(np.arange(conversations), turns)
    covered = Counter()
    for _ in range(runs):
        of_conversation = draw.beta(mean, 1 - mean, conversations)
        labels = (draw.random(names.size) < of_conversation[names]).astype(float)
        predictions = np.where(draw.random(names.size) < 0.8, labels, draw.random(names.size) < 0.7).astype(float)
        audited = draw.permutation(names.size) < names.size // 5
        values = (labels[audited].tolist(), predictions[audited].tolist(), predictions[~audited].tolist())
        for clusters in (None, (names[audited].tolist(), names[~audited].tolist())):
            found = prediction_powered_mean(*values, clusters=clusters)
            covered[clusters is not None] += found.low <= mean <= found.high
    assert covered[False] / runs < 0.9
    assert covered[True] / runs >= 0.92


def test_clusters_of_one_item_give_nearly_the_same_interval():
    values = (LABELS[:100], [label / 2 for label in LABELS[:100]], [label / 2 for label in LABELS[100:]])
    alone = prediction_powered_mean(*values, clusters=(list(range(100)), list(range(100, 1000))))
    plain = prediction_powered_mean(*values)
    assert alone.mean == plain.mean
    assert (alone.low, alone.high) == (pytest.approx(plain.low, abs=0.002), pytest.approx(plain.high, abs=0.002))


def test_the_degrees_of_freedom_of_clusters_are_their_number_and_one_for_two_invented_ones():
    """With predictions of no weight and no others, the variance is that of the labels, clusters in place of items."""
    labels, clusters = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b", "c", "c"]
    found = prediction_powered_mean(labels, [0.5] * 6, [0.5] * 4, level=0.3, clusters=(clusters, list("defg")))
    extended = [*labels, 1.0, 0.0]
    residuals = [(value - fmean(extended)) / 8 for value in extended]
    sums = [sum(residuals[:2]), sum(residuals[2:4]), sum(residuals[4:6]), residuals[6], residuals[7], 0, 0, 0, 0]
    half = student_t.ppf(0.65, 4) * sqrt(sum(part**2 for part in sums) * 9 / 8)
    assert (found.low, found.high) == pytest.approx((fmean(extended) - half, fmean(extended) + half))
