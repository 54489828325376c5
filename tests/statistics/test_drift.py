"""The drift detector: level over the whole watch, delay, and what it ignores."""

import numpy as np
import pytest

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
