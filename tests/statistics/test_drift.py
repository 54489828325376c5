"""The drift detector: level over the whole watch, delay, and what it ignores."""

import numpy as np
import pytest

from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.statistics.drift import DriftDetector


def shares(rng, size, mean):
    """Return values like shares of supported statements: 1, or a multiple of a quarter."""
    return np.where(rng.random(size) < 2 * mean - 1, 1.0, rng.integers(0, 5, size) / 4)


def alarm_of(baseline, values, **options):
    detector = DriftDetector({None: list(baseline)}, **options)
    for value in values:
        if detector.add(float(value)):
            break
    return detector


def test_a_stable_stream_raises_an_alarm_in_at_most_one_of_twenty_watches():
    rng = np.random.default_rng(1)
    alarms = [alarm_of(shares(rng, 100, 0.85), shares(rng, 1000, 0.85)).alarm for _ in range(60)]
    assert sum(alarm is not None for alarm in alarms) <= 3


@pytest.mark.parametrize("before", [0, 500])
def test_a_fall_is_noticed_and_dated(before):
    rng = np.random.default_rng(2)
    found = []
    for _ in range(20):
        stream = np.concatenate([shares(rng, before, 0.85), shares(rng, 800, 0.6)])
        found.append(alarm_of(shares(rng, 200, 0.85), stream))
    assert all(detector.alarm is not None and detector.alarm > before for detector in found)
    assert np.median([detector.alarm for detector in found]) <= before + 150
    assert abs(np.median([detector.change for detector in found]) - before) <= 20


@pytest.mark.parametrize(
    ("before", "value", "after"), [(80, 0.9, 0.1), (200, 1.0, 0.0), (33, 0.75, 0.5), (0, 0.9, 0.2)]
)
def test_a_fall_without_noise_is_dated_exactly(before, value, after):
    detector = alarm_of([value] * 300, [value] * before + [after] * 300)
    assert detector.change == before


def test_a_fall_within_the_margin_raises_no_alarm():
    rng = np.random.default_rng(3)
    assert alarm_of(shares(rng, 400, 0.85), shares(rng, 1500, 0.8), margin=0.1).alarm is None


def test_each_slice_has_a_baseline_of_its_own_and_unknown_slices_are_ignored():
    rng = np.random.default_rng(4)
    detector = DriftDetector({"easy": list(shares(rng, 200, 0.95)), "hard": list(shares(rng, 200, 0.6))})
    for value in shares(rng, 600, 0.6):
        assert not detector.add(float(value), "hard")
    assert not detector.add(0.0, "new")
    assert detector.count == 600


@pytest.mark.parametrize(("error", "value"), [(0.0, 0.5), (0.05, 1.5)])
def test_invalid_numbers_are_refused(error, value):
    with pytest.raises(ValueError, match="must be"):
        DriftDetector({None: [1.0] * 10}, error).add(value)


def alarm_after(values, lowest, error):
    """Return after how many values the average capital of all bettors is 2 / error, each bettor by itself.

    One starts at every tenth value, bets by mean and square of its own losses so far, half a value and a quarter of a
    square added as in the paper, and stakes at most what loses 3/4 of its capital on the best value.
    """
    starts = range(0, len(values), 10)
    for end in range(1, len(values) + 1):
        begun = [start for start in starts if start < end]
        average = 1 / (len(begun) + 1)
        for number, start in enumerate(begun):
            capital, losses = 1.0, []
            for value in values[start:end]:
                mean = sum(losses) / (len(losses) + 1)
                spread = (sum(loss**2 for loss in losses) + 0.25) / (len(losses) + 1)
                stake = min(max(mean, 0.0) / spread, 0.75 / (1 - lowest))
                losses.append(lowest - value)
                capital *= 1 + stake * losses[-1]
            average += capital / ((number + 1) * (number + 2))
        if average >= 2 / error:
            return end
    return None


@pytest.mark.parametrize("error", [0.05, 0.3])
@pytest.mark.parametrize(("fall", "margin"), [(0.0, 0.0), (0.6, 0.0), (0.35, 0.1), (0.9, 0.02)])
def test_the_alarm_comes_when_the_average_bettor_has_twice_the_capital_that_one_side_would_need(error, fall, margin):
    rng = np.random.default_rng(7)
    baseline = rng.beta(8, 1, size=200)
    values = np.concatenate([rng.beta(8, 1, size=35), np.maximum(rng.beta(8, 1, size=60) - fall, 0.0)]).tolist()
    detector = DriftDetector({None: baseline.tolist()}, error, margin=margin)
    lowest = bounded_mean_interval(baseline.tolist(), 1 - error)[0] - margin
    for value in values:
        detector.add(value)
    assert detector.alarm == alarm_after(values, lowest, error)


def test_fewer_and_fewer_bettors_start():
    detector = DriftDetector({None: [0.5] * 20})
    counts = (0, 5, 10, 9_990, 10_010, 10_100, 99_900, 100_100, 101_000, 1_000_000)
    for count in counts:
        detector.count = count
        detector._begin()
    assert detector._starts == [0, 10, 9_990, 10_100, 99_900, 101_000, 1_000_000]
