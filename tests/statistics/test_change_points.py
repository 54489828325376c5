"""Change points: false alarms, place, several changes, and series that have none."""

import numpy as np
import pytest

from langchain_rageval.statistics.drift import change_points


def binary(rng, *parts):
    return np.concatenate([rng.random(size) < mean for size, mean in parts]).astype(float)


@pytest.mark.parametrize("size", [20, 200, 2000])
def test_about_one_of_twenty_series_without_a_change_has_one(size):
    rng = np.random.default_rng(1)
    assert (
        sum(bool(change_points(binary(rng, (size, 0.9)))) for _ in range(400)) <= 28
    )  # 20 are expected, and 28 are two standard deviations more


def test_changes_are_found_where_they_are_both_ways():
    rng = np.random.default_rng(2)
    found = [change_points(binary(rng, (100, 0.95), (100, 0.3), (100, 0.95))) for _ in range(40)]
    assert np.median([len(places) for places in found]) == 2
    assert np.median([min(abs(place - 100) for place in places) for places in found]) <= 3
    assert np.median([min(abs(place - 200) for place in places) for places in found]) <= 3


def test_a_change_without_noise_is_found_exactly():
    assert change_points([0.9] * 80 + [0.1] * 10) == [80]
    assert change_points([0.2] * 7 + [0.8] * 70) == [7]


@pytest.mark.parametrize("values", [[], [0.5], [1.0] * 1000, [1.0, 0.0] * 5, [0.1 + 0.2, 0.3] * 50])
def test_short_and_constant_series_have_no_change(values):
    assert change_points(values) == []


@pytest.mark.parametrize("error", [0.0, 1.0, float("nan")])
def test_an_error_that_is_no_probability_is_refused(error):
    with pytest.raises(ValueError, match="error must be between 0 and 1"):
        change_points([0.0] * 20, error)


def test_a_series_of_twice_the_shortest_part_may_have_a_change_in_its_middle():
    assert change_points([0.9] * 6 + [0.1] * 6) == [6]
    assert change_points([0.9] * 6 + [0.1] * 5) == []
