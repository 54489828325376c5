"""Differences of means over different samples: against Newcombe's published intervals, and by simulation."""

import numpy as np
import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.statistics.paired import Stratum, unpaired_difference


def binary(ones, size):
    return [1.0] * ones + [0.0] * (size - ones)


@each(
    ("own", "its", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        ((56, 70), (48, 80), 0.0524, 0.3339),
        ((9, 10), (3, 10), 0.1705, 0.8090),
        ((6, 7), (2, 7), 0.0582, 0.8062),
        ((5, 56), (0, 29), -0.0381, 0.1926),
        ((0, 10), (0, 20), -0.1611, 0.2775),
        ((10, 10), (0, 20), 0.6791, 1.0),
    ],
)
def test_binary_values_have_the_published_intervals(own, its, low, high):
    found = unpaired_difference([Stratum(binary(*own), binary(*its))])
    assert (round(found.low, 4), round(found.high, 4)) == (low, high)


VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=6, max_size=30)


@given(VALUES, VALUES)
def test_interval_and_p_value_agree_and_sides_are_symmetric(own, its):
    found, mirrored = unpaired_difference([Stratum(own, its)]), unpaired_difference([Stratum(its, own)])
    assert found.low <= found.candidate - found.baseline <= found.high
    assert (found.low, found.high) == pytest.approx((-mirrored.high, -mirrored.low))
    if abs(found.p_value - 0.05) > 1e-6:
        assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)


def test_weights_undo_a_shift_of_the_mix():
    """Easy questions score 0.9 and hard ones 0.5 in both runs, but the candidate has far more hard ones."""
    easy, hard = binary(90, 100), binary(50, 100)
    plain = unpaired_difference([Stratum([*easy[::5], *hard * 4], [*easy * 4, *hard[::5]])])
    assert plain.p_value < 0.001
    weighted = unpaired_difference([Stratum(easy[::5], easy * 4, 0.95), Stratum(hard * 4, hard[::5], 0.05)])
    assert weighted.candidate == pytest.approx(weighted.baseline)
    assert weighted.low < 0 < weighted.high


@pytest.mark.gate
@each("sizes", [(30, 30), (30, 200), (150, 150)])
@each("share", [0.5, 0.9, 0.97])
def test_equal_means_are_called_different_in_one_of_twenty_comparisons(share, sizes):
    rng = np.random.default_rng(5)

    def values(size):
        return list(np.where(rng.random(size) < share, 1.0, rng.integers(0, 4, size) / 4))

    wrong = [unpaired_difference([Stratum(*map(values, sizes))]).p_value < 0.05 for _ in range(200)]
    assert np.mean(wrong) <= 0.09
