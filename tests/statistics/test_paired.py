"""Comparisons of two runs: agreement with scipy, power, published intervals, and what must not change a number."""

from dataclasses import astuple
from math import inf, sqrt
from statistics import fmean

import numpy as np
import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, permutation_test, ttest_1samp

from langchain_rageval.statistics import PairedDifference, detectable_difference, holm, paired_difference, sign_flip_p
from langchain_rageval.statistics.paired import Stratum, largest_loss, pairs_to_show, unpaired_difference

differences = st.lists(st.sampled_from([step / 8 for step in range(-8, 9)]), min_size=1, max_size=15)
many = st.lists(st.floats(-1, 1), min_size=1, max_size=60)


# The test


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.125, 0.75, 1.0]), min_size=2, max_size=9))
def test_up_to_15_pairs_it_is_scipys_exact_permutation_test(values):
    pairs, options = (np.array(values), np.zeros(len(values))), {"permutation_type": "samples", "n_resamples": np.inf}
    expected = permutation_test(pairs, lambda x, y, axis: np.sum(x - y, axis=axis), vectorized=True, **options).pvalue
    assert sign_flip_p(values) == pytest.approx(min(1.0, expected))


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 20))
def test_on_yes_or_no_values_it_is_mcnemars_exact_test(gained, lost, ties):
    expected = binomtest(gained, gained + lost).pvalue if gained + lost else 1.0
    assert sign_flip_p([1.0] * gained + [-1.0] * lost + [0.0] * ties) == pytest.approx(expected)


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1])
def test_of_16_to_1000_pairs_it_comes_near_the_exact_value(shift):
    values = (np.random.default_rng(3).normal(shift, 0.3, 18) + 0).tolist()
    patterns = 1 - 2 * ((np.arange(2**18)[:, None] >> np.arange(18)) & 1)
    exact = np.mean(np.abs(patterns @ values) >= abs(sum(values)) - 1e-9)
    assert sign_flip_p(values) == pytest.approx(exact, abs=0.012)  # three standard errors of 20,000 patterns


def test_a_pattern_that_no_drawn_one_reaches_counts_itself_only():
    assert sign_flip_p([1 + n / 100 for n in range(40)]) == 1 / 20_001


def test_a_hundred_thousand_pairs_take_no_time_and_a_p_value_is_never_0():
    values = np.random.default_rng(5).normal(0.5, 0.3, 100_000).tolist()
    assert 0 < sign_flip_p(values) < 1e-100
    assert 0 < sign_flip_p([1.0] * 100_000) < 1e-100
    found = paired_difference(values)
    assert (found.low, found.high) == pytest.approx((0.498, 0.502), abs=2e-3)
    assert 0 < found.p_value < 1e-100


@given(many, st.randoms())
def test_neither_the_order_of_the_pairs_nor_which_run_comes_first_changes_a_number(values, random):
    shuffled = random.sample(values, len(values))
    assert sign_flip_p(shuffled) == sign_flip_p(values) == sign_flip_p([-value for value in values])
    found, mirrored = paired_difference(values), paired_difference([-value for value in values])
    assert paired_difference(shuffled) == approximately(found)
    assert (mirrored.mean, mirrored.low, mirrored.high) == pytest.approx((-found.mean, -found.high, -found.low))
    assert mirrored.p_value == found.p_value


# Clusters


@given(differences)
def test_a_cluster_is_flipped_as_one(values):
    doubled = [value for value in values for _ in range(2)]
    clusters = [place // 2 for place in range(len(doubled))]
    assert sign_flip_p(doubled, clusters) == sign_flip_p(values)
    assert sign_flip_p(values, range(len(values))) == sign_flip_p(values)
    assert paired_difference(doubled, clusters) == approximately(paired_difference(values))
    assert paired_difference(values, range(len(values))) == approximately(paired_difference(values))


def test_clusters_of_unequal_size_are_linearised():
    """Clusters of 1 and 3 with the mean 0.5: values 0.5 + (1 - 0.5) · 2/4 and 0.5 + (1 - 1.5) · 2/4."""
    found = paired_difference([1.0, 0.0, 0.5, 0.5], ["a", "b", "b", "b"])
    assert found == approximately(paired_difference([0.75, 0.25]))


# The interval and its test


def approximately(found):
    return PairedDifference(*(pytest.approx(value, abs=1e-12) for value in astuple(found)))


@given(many, st.booleans(), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_interval_contains_0_exactly_if_the_p_value_is_not_below_its_level(values, rare_losses, level):
    found = paired_difference(values, rare_losses=rare_losses, level=level)
    assert found.low <= found.mean <= found.high
    assert found.low < found.high
    assert 0 < found.p_value <= 1
    if abs(found.p_value - (1 - level)) > 1e-9:
        assert (found.low <= 0 <= found.high) == (found.p_value > 1 - level)
    assert paired_difference(values, rare_losses=rare_losses, level=level) == found


@given(st.lists(st.floats(-0.2, 0.2), min_size=2, max_size=40), st.booleans(), st.sampled_from([0.2, 1.0]))
def test_it_is_students_t_of_the_pairs_and_two_invented_ones_within_possible_differences(values, rare_losses, span):
    reach = span if rare_losses else max(span / sqrt(len(values)), *map(abs, values))
    expected = ttest_1samp([*values, reach, -reach], 0.0)
    low, high = expected.confidence_interval(0.95)
    found = paired_difference(values, rare_losses=rare_losses, span=span)
    assert found.p_value == pytest.approx(expected.pvalue)
    ends = (min(max(low, -span), fmean(values)), max(min(high, span), fmean(values)))
    assert (found.low, found.high) == pytest.approx(ends, abs=1e-12)


def test_equal_pairs_leave_a_little_more_loss_than_the_exact_bound_of_as_many_pairs_without_one():
    for size in (20, 50, 200, 1000):
        exact = 1 - 0.025 ** (1 / size)
        for span in (1.0, 4.0):
            assert exact <= largest_loss([0.0] * size, span=span) / span <= 1.15 * exact


@given(st.lists(st.floats(-0.5, 0.5), min_size=2, max_size=40), st.sampled_from([1.0, 4.0]))
def test_the_largest_loss_is_the_end_of_students_interval_that_means_a_loss(values, span):
    reach = 5 / 4 * span
    low, high = ttest_1samp([*values, reach, -reach], 0.0).confidence_interval(0.967)
    for sign, end in ((1, -low), (-1, high)):
        assert largest_loss(values, span=span, sign=sign) == pytest.approx(min(max(end, 0.0), span))


def test_as_many_equal_pairs_show_a_margin_as_have_it_for_their_largest_loss():
    for pairs in (8, 9, 31, 32, 33, 100):
        for span in (1.0, 4.0):
            margin = largest_loss([0.0] * pairs, span=span)
            assert pairs_to_show(margin, span) == pairs
            assert pairs_to_show(margin * (1 - 1e-12), span) == pairs + 1


# Several metrics


def test_holm_worked_out_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


# How much can be seen


def test_the_detectable_difference_is_the_smallest_significant_one_and_the_noise():
    """The noise of 16 pairs with the deviation 0.2, at a power of 80%: 0.842 · 0.2 / √16."""
    values = np.array([1.0, -1.0] * 8) * 0.2 * sqrt(15 / 16)
    least = detectable_difference(0.2, 16, largest_deviation=float(values.max())) - 0.841621 * 0.2 / 4
    assert paired_difference((values + least + 1e-4).tolist()).p_value < 0.05
    assert paired_difference((values + least - 1e-4).tolist()).p_value > 0.05


def test_four_pairs_detect_no_difference():
    assert detectable_difference(0.1, 4) == inf
    assert detectable_difference(0.1, 5) < inf


def binary(ones, size):
    return [1.0] * ones + [0.0] * (size - ones)


NEWCOMBE = [  # Newcombe 1998, table II, method 10
    ((56, 70), (48, 80), 0.0524, 0.3339),
    ((9, 10), (3, 10), 0.1705, 0.8090),
    ((6, 7), (2, 7), 0.0582, 0.8062),
    ((5, 56), (0, 29), -0.0381, 0.1926),
    ((0, 10), (0, 20), -0.1611, 0.2775),
    ((10, 10), (0, 20), 0.6791, 1.0),
]


@each(("own", "its", "low", "high"), NEWCOMBE)
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
