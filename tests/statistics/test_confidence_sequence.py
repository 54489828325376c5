"""Confidence sequences: coverage at any stopping time, level and number of values, by simulation and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.statistics.confidence_sequence import ConfidenceSequence


def scores_like_faithfulness(rng, size, mean):
    """Return values of which many are exactly 1, the others shares of up to five statements."""
    ones = (mean - 0.4) / 0.6
    counts = rng.integers(1, 6, size=size)
    return np.where(rng.random(size) < ones, 1.0, rng.binomial(counts, 0.4) / counts)


def stop_at(values, threshold, error=0.05):
    """Return the number of values after which a threshold is decided, and whether the mean exceeds it."""
    sequence = ConfidenceSequence(len(values), error, watched=[threshold])
    for value in values:
        sequence.add(value)
        if sequence.exceeds(threshold) or sequence.stays_below(threshold):
            break
    return sequence.count, sequence.exceeds(threshold)


def decided_after(values, candidate, error):
    """Return after how many values one of two bettors has 2 / error times the first capital, each value by itself.

    They bet on higher and on lower values than the candidate mean would leave, after the formulas of the paper:
    variance and mean with half a value and a quarter of a squared deviation added, at most 3/4 of the capital at stake.
    """
    size, seen = len(values), []
    higher = lower = 1.0
    for value in values:
        rest = (size * candidate - sum(seen)) / (size - len(seen))
        if not 0 <= rest <= 1:
            return len(seen)
        mean = (0.5 + sum(seen)) / (len(seen) + 1)
        variance = (0.25 + sum((one - mean) ** 2 for one in seen)) / (len(seen) + 1)
        stake = (mean - rest) / (variance + (mean - rest) ** 2)
        higher *= 1 + min(max(stake, 0), 0.75 / rest) * (value - rest) if rest else 1
        lower *= 1 - min(max(-stake, 0), 0.75 / (1 - rest)) * (value - rest) if rest < 1 else 1
        seen.append(value)
        if max(higher, lower) >= 2 / error:
            return len(seen)
    return size


@pytest.mark.parametrize("error", [0.05, 0.01, 0.2])
@pytest.mark.parametrize("threshold", [0.2, 0.45, 0.71, 0.9, 0.97])
def test_a_candidate_is_ruled_out_when_a_bettor_has_twice_the_capital_that_one_side_would_need(error, threshold):
    values = np.random.default_rng(5).permutation(scores_like_faithfulness(np.random.default_rng(4), 300, 0.7))
    assert stop_at(values, threshold, error)[0] == decided_after(values.tolist(), threshold, error)


@pytest.mark.parametrize(("distance", "most"), [(0.15, 80), (0.10, 150)])
def test_a_gate_away_from_the_mean_is_decided_after_few_of_a_thousand_values(distance, most):
    rng = np.random.default_rng(1)
    counts, wrong = [], 0
    for _ in range(40):
        values = rng.permutation(scores_like_faithfulness(rng, 1000, 0.8))
        count, exceeds = stop_at(values, values.mean() - distance)
        counts.append(count)
        wrong += not exceeds
    assert np.mean(counts) <= most
    assert wrong <= 2


def test_a_gate_just_above_the_mean_is_rarely_passed():
    rng = np.random.default_rng(2)
    wrong = 0
    for _ in range(100):
        values = rng.permutation(scores_like_faithfulness(rng, 300, 0.8))
        wrong += stop_at(values, values.mean() + 1e-6)[1]
    assert wrong <= 8  # 5 are expected at most, plus their noise


@pytest.mark.parametrize("unscored", [0.0, 0.2])
def test_the_interval_holds_the_mean_of_all_scored_values_at_every_time(unscored):
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(60):
        values = rng.permutation(scores_like_faithfulness(rng, 200, 0.7))
        scored = rng.random(len(values)) >= unscored
        truth, sequence, outside = values[scored].mean(), ConfidenceSequence(len(values)), False
        for value, has_score in zip(values, scored, strict=True):
            sequence.add(value) if has_score else sequence.skip()
            low, high = sequence.interval
            outside = outside or not low - 1e-9 <= truth <= high + 1e-9
        missed += outside
    assert missed <= 6


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_after_all_values_the_interval_is_their_mean(values):
    sequence = ConfidenceSequence(len(values))
    for value in values:
        sequence.add(value)
    mean = sum(values) / len(values)
    assert sequence.interval == pytest.approx((mean, mean), abs=2e-9)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.integers(0, 60))
def test_the_interval_only_narrows_and_stays_within_what_the_rest_may_be(values, more):
    sequence = ConfidenceSequence(len(values) + more, low=-1, high=1)
    before = sequence.interval
    assert before == (-1.0, 1.0)
    for value in values:
        sequence.add(value)
        low, high = sequence.interval
        assert before[0] - 1e-9 <= low <= high <= before[1] + 1e-9
        before = low, high
    assert (sum(values) - more) / (len(values) + more) <= low + 1e-9


def test_twelve_of_twenty_zeros_decide_a_gate_by_arithmetic_alone():
    """With 8 values left, the mean of 20 is at most .4."""
    sequence = ConfidenceSequence(20, error=1e-6, watched=[0.41])
    for _ in range(12):
        sequence.add(0.0)
    assert sequence.stays_below(0.41)


@pytest.mark.parametrize("threshold", [0.25, 0.5, 0.75])
def test_a_gate_on_the_mean_itself_is_decided_in_its_favour_when_all_values_are_known(threshold):
    sequence = ConfidenceSequence(4, error=1e-6, watched=[threshold])
    for value in [threshold] * 4:
        sequence.add(value)
    assert sequence.exceeds(threshold)
    assert not sequence.stays_below(threshold)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ConfidenceSequence(0), "size must be at least 1, got 0"),
        (lambda: ConfidenceSequence(9, 1.5), "error must be between 0 and 1, such as 0.05, got 1.5"),
        (
            lambda: ConfidenceSequence(9, low=1, high=0),
            "low and high must be finite bounds, low below high; got 1 and 0",
        ),
        (lambda: ConfidenceSequence(9).add(1.5), "every value must be in [0, 1], got 1.5"),
    ],
)
def test_invalid_arguments_are_named(make, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        make()
    assert str(raised.value) == message


def test_more_values_than_the_set_has_are_refused():
    sequence = ConfidenceSequence(1)
    sequence.add(0.5)
    with pytest.raises(ValueError, match=r"^the set has only 1 values$"):
        sequence.add(0.5)


@pytest.mark.parametrize(("value", "threshold"), [(1.0, 0.6005), (0.0, 0.3995)])
def test_the_interval_excludes_a_watched_mean_as_soon_as_it_is_ruled_out(value, threshold):
    sequence = ConfidenceSequence(1000, watched=[threshold])
    while not (sequence.exceeds(threshold) or sequence.stays_below(threshold)):
        sequence.add(value)
    low, high = sequence.interval
    assert low >= threshold if value else high <= threshold


def test_the_ends_lie_on_the_grid_of_a_thousandth_one_step_beyond_the_means_that_are_not_ruled_out():
    sequence = ConfidenceSequence(10**6)
    for _ in range(200):
        sequence.add(0.5)
    low, high = sequence.interval
    assert (1000 * low, 1000 * high) == pytest.approx((round(1000 * low), round(1000 * high)), abs=1e-9)
    assert 0.3 < low < 0.5 < high < 0.7
