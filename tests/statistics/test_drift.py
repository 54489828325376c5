"""The drift detector: level over the whole watch, delay, and what it ignores."""

import numpy as np
import pytest

from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.statistics.sequential import DriftDetector, change_points, spread_of_groups


def shares(rng, size, mean):
    """Return values like shares of supported statements: 1, or a multiple of a quarter."""
    return np.where(rng.random(size) < 2 * mean - 1, 1.0, rng.integers(0, 5, size) / 4)


def alarm_of(baseline, values, per_day=100, **options):
    detector = DriftDetector({None: list(baseline)}, **options)
    for number, value in enumerate(values):
        if detector.add(float(value), period=number // per_day):
            break
    return detector


def test_a_stable_stream_raises_one_alarm_in_a_year_of_days_at_the_most():
    """The baseline's mean is known nearly exactly here, so that its uncertainty does not hide alarms."""
    rng = np.random.default_rng(1)
    days = 20
    alarms = [alarm_of(shares(rng, 20_000, 0.85), shares(rng, 10 * days, 0.85), per_day=10).alarm for _ in range(60)]
    assert sum(alarm is not None for alarm in alarms) <= 60 * days / 365 + 2 * (60 * days / 365) ** 0.5


@pytest.mark.parametrize(
    ("before", "value", "after"), [(80, 0.9, 0.1), (200, 1.0, 0.0), (33, 0.75, 0.5), (0, 0.9, 0.2)]
)
def test_a_fall_without_noise_is_dated_exactly(before, value, after):
    detector = alarm_of([value] * 300, [value] * before + [after] * 300)
    assert detector.change == before


def test_each_slice_has_a_baseline_of_its_own_and_unknown_slices_are_ignored():
    rng = np.random.default_rng(4)
    detector = DriftDetector({"easy": list(shares(rng, 200, 0.95)), "hard": list(shares(rng, 200, 0.6))})
    for value in shares(rng, 600, 0.6):
        assert not detector.add(float(value), "hard")
    assert not detector.add(0.0, "new")
    assert detector.count == 600


def alarm_after(values, lowest, run_length, per_day):
    """Return after how many values the sum of the capital of all bettors is the run length, each bettor by itself.

    One starts on every day, bets by mean and square of its own losses so far, half a value and a quarter of a square
    added as in the paper, and stakes at most what loses 3/4 of its capital on the best value.
    """
    for end in range(1, len(values) + 1):
        total = 0.0
        for start in range(0, end, per_day):
            capital, losses = 1.0, []
            for value in values[start:end]:
                mean = sum(losses) / (len(losses) + 1)
                spread = (sum(loss**2 for loss in losses) + 0.25) / (len(losses) + 1)
                stake = min(max(mean, 0.0) / spread, 0.75 / (1 - lowest))
                losses.append(lowest - value)
                capital *= 1 + stake * losses[-1]
            total += capital
        if total >= run_length:
            return end
    return None


@pytest.mark.parametrize("run_length", [30, 365])
@pytest.mark.parametrize(("fall", "margin"), [(0.0, 0.0), (0.6, 0.0), (0.35, 0.1), (0.9, 0.02)])
def test_the_alarm_comes_when_the_bettors_together_have_the_run_length(run_length, fall, margin):
    rng = np.random.default_rng(7)
    baseline = rng.beta(8, 1, size=200)
    values = np.concatenate([rng.beta(8, 1, size=35), np.maximum(rng.beta(8, 1, size=60) - fall, 0.0)]).tolist()
    detector = DriftDetector({None: baseline.tolist()}, 0.05, margin=margin, run_length=run_length)
    lowest = bounded_mean_interval(baseline.tolist(), 0.95)[0] - margin
    for number, value in enumerate(values):
        detector.add(value, period=number // 8)
    assert detector.alarm == alarm_after(values, lowest, run_length, 8)


def test_the_spread_of_days_is_estimated_and_chance_is_none():
    rng = np.random.default_rng(5)
    same = [[rng.normal(0, 0.3, 100) for _ in range(30)] for _ in range(60)]
    assert sum(spread_of_groups(days) > 0 for days in same) <= 1
    found = [spread_of_groups([rng.normal(rng.normal(0, 0.1), 0.3, 100) for _ in range(30)]) for _ in range(60)]
    assert min(found) > 0
    assert np.mean(found) == pytest.approx(0.1, abs=0.01)
    assert (spread_of_groups([[0.5, 0.5]]), spread_of_groups([[0.1], [0.9]]), spread_of_groups([])) == (0.0, 0.0, 0.0)


# Change points: false alarms, place, several changes, and series that have none.


def binary(rng, *parts):
    return np.concatenate([rng.random(size) < mean for size, mean in parts]).astype(float)


@pytest.mark.parametrize("size", [20, 200, 2000])
def test_about_one_of_twenty_series_without_a_change_has_one(size):
    rng = np.random.default_rng(1)
    assert (
        sum(bool(change_points(binary(rng, (size, 0.9)))) for _ in range(400)) <= 28
    )  # 20 are expected, and 28 are two standard deviations more


def test_a_change_without_noise_is_found_exactly():
    assert change_points([0.9] * 80 + [0.1] * 10) == [80]
    assert change_points([0.2] * 7 + [0.8] * 70) == [7]


@pytest.mark.parametrize("values", [[], [0.5], [1.0] * 1000, [1.0, 0.0] * 5, [0.1 + 0.2, 0.3] * 50])
def test_short_and_constant_series_have_no_change(values):
    assert change_points(values) == []


def test_a_series_of_twice_the_shortest_part_may_have_a_change_in_its_middle():
    assert change_points([0.9] * 6 + [0.1] * 6) == [6]
    assert change_points([0.9] * 6 + [0.1] * 5) == []
