"""Confidence sequences: coverage at any stopping time, level and number of values, by simulation and by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.statistics.sequential import ConfidenceSequence


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
    """Return after how many values the bettors of one side have 1 / error times their first capital, one by one.

    They bet on higher and on lower values than the candidate mean would leave, each with a share of its capital.
    """
    size, total = len(values), 0.0
    shares = (0.8, 0.4, 0.2)  # of 300 values
    higher, lower = [1.0] * len(shares), [1.0] * len(shares)
    for count, value in enumerate(values, 1):
        rest = (size * candidate - total) / (size - count + 1)
        if not 0 <= rest <= 1:
            return count - 1
        for number, share in enumerate(shares):
            higher[number] *= 1 + share / rest * (value - rest) if rest else 1
            lower[number] *= 1 - share / (1 - rest) * (value - rest) if rest < 1 else 1
        total += value
        if max(sum(higher), sum(lower)) / len(shares) >= 1 / error:
            return count
    return size


@pytest.mark.parametrize("error", [0.05, 0.01, 0.2])
@pytest.mark.parametrize("threshold", [0.2, 0.45, 0.71, 0.9, 0.97])
def test_a_candidate_is_ruled_out_when_one_side_has_multiplied_its_capital_by_one_over_the_error(error, threshold):
    values = np.random.default_rng(5).permutation(scores_like_faithfulness(np.random.default_rng(4), 300, 0.7))
    assert stop_at(values, threshold, error)[0] == decided_after(values.tolist(), threshold, error)


def test_a_gate_at_the_mean_is_decided_wrongly_as_often_as_the_error_allows(monkeypatch):
    """As many ones as zeros, and a gate on their mean: each side wins 1 / error with probability error, or hardly less.

    Half the error would make both shares too small, twice the error too large.
    """
    monkeypatch.setattr("langchain_rageval.statistics.sequential._GRID", 2)
    rng, error, runs = np.random.default_rng(6), 0.4, 150
    passed = failed = 0
    for _ in range(runs):
        sequence = ConfidenceSequence(200, error, watched=[0.5])
        for value in rng.permutation([0.0, 1.0] * 100)[:120]:
            sequence.add(value)
        passed += sequence.exceeds(0.5)
        failed += sequence.stays_below(0.5)
    noise = 3 * (error * (1 - error) / runs) ** 0.5
    for wrong in (passed, failed):
        assert 0.6 * error < wrong / runs <= error + noise


def test_the_two_ends_have_errors_of_their_own():
    for value, error, error_above in ((1.0, 0.05, 0.001), (0.0, 0.001, 0.05)):
        sequence = ConfidenceSequence(1000, error, error_above, watched=[0.5])
        for _ in range(8):
            sequence.add(value)
        assert sequence.exceeds(0.5) == (value == 1.0)
        assert sequence.stays_below(0.5) == (value == 0.0)
        assert not sequence.exceeds(0.5, 0.001)
        opposite = ConfidenceSequence(1000, error_above, error, watched=[0.5])
        for _ in range(8):
            opposite.add(value)
        assert not opposite.exceeds(0.5)
        assert not opposite.stays_below(0.5)


@pytest.mark.parametrize(
    ("means", "statements", "most"), [((0.9, 0.7), 1, 112), ((0.95, 0.65), 1, 52), ((0.9, 0.7), 5, 60)]
)
def test_a_gate_of_point_eight_is_decided_after_few_of_a_thousand_values(monkeypatch, means, statements, most):
    monkeypatch.setattr("langchain_rageval.statistics.sequential._GRID", 2)
    rng = np.random.default_rng(8)
    counts = [stop_at(rng.binomial(statements, mean, 1000) / statements, 0.8)[0] for mean in means for _ in range(60)]
    assert np.mean(counts) <= most


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


@pytest.mark.parametrize(("value", "threshold"), [(1.0, 0.6005), (0.0, 0.3995)])
def test_the_interval_excludes_a_watched_mean_as_soon_as_it_is_ruled_out(value, threshold):
    sequence = ConfidenceSequence(1000, watched=[threshold])
    while not (sequence.exceeds(threshold) or sequence.stays_below(threshold)):
        assert sequence.interval[0] < threshold < sequence.interval[1]
        sequence.add(value)
    low, high = sequence.interval
    assert low >= threshold if value else high <= threshold


def test_an_item_without_a_value_that_ends_the_set_settles_what_was_watched():
    told = ConfidenceSequence(3, watched=[0.5])
    told.add(1.0)
    told.add(0.5)
    assert not told.exceeds(0.5)
    told.skip()
    assert (told.exceeds(0.5), told.interval) == (True, (0.75, 0.75))
