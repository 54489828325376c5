"""Prediction-powered means: few labels, corrected predictions for all."""

import random
from statistics import fmean

import pytest

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


def test_another_scale_gives_the_same_estimate_in_its_units():
    grades = [1 + 4 * label for label in LABELS]
    found = prediction_powered_mean(grades[:100], LABELS[:100], LABELS[100:], scale=(1, 5))
    plain = prediction_powered_mean(LABELS[:100], LABELS[:100], LABELS[100:])
    assert 1 <= found.low <= found.mean <= found.high <= 5
    assert abs(found.mean - (1 + 4 * plain.mean)) < 0.15


@pytest.mark.parametrize(("labels", "predictions"), [([], []), ([1.0], [])])
def test_labels_and_predictions_come_in_pairs(labels, predictions):
    with pytest.raises(ValueError, match=r"^\d labels and \d predictions of them: one of each is needed$"):
        prediction_powered_mean(labels, predictions, [1.0])
