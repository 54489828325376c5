"""Paired comparisons: agreement with scipy, coverage, and what must not change a number."""

from math import sqrt
from statistics import fmean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, false_discovery_control, norm, permutation_test

from langchain_rageval.statistics import detectable_difference, holm, mean_difference_interval, sign_flip_p

differences = st.lists(st.sampled_from([step / 8 for step in range(-8, 9)]), min_size=1, max_size=15)
many = st.lists(st.floats(-1, 1), min_size=1, max_size=60)


# The test


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.125, 0.75, 1.0]), min_size=2, max_size=9))
def test_up_to_15_pairs_it_is_scipys_exact_permutation_test(values):
    expected = permutation_test(
        (np.array(values), np.zeros(len(values))),
        lambda x, y, axis: np.sum(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    ).pvalue
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


def test_the_normal_distribution_takes_over_smoothly():
    values = np.random.default_rng(5).normal(0.016, 0.3, 1000)
    assert sign_flip_p([*values, 1e-6]) == pytest.approx(sign_flip_p(values.tolist()), abs=0.012)


def test_a_hundred_thousand_pairs_take_no_time_and_a_p_value_is_never_0():
    values = np.random.default_rng(5).normal(0.5, 0.3, 100_000).tolist()
    assert 0 < sign_flip_p(values) < 1e-100
    assert 0 < sign_flip_p([1.0] * 100_000) < 1e-100
    assert mean_difference_interval(values) == pytest.approx((0.498, 0.502), abs=2e-3)


@pytest.mark.parametrize(
    ("values", "p"),
    [
        ([], 1.0),
        ([0.0, 0.0], 1.0),
        ([1.0], 1.0),
        ([1.0] * 5, 2 / 32),
        ([1.0] * 6, 2 / 64),
        ([0.5, 0.25, 0.25], 2 / 8),
        ([0.1, 0.2, -0.3], 1.0),  # in floats the sum is no 0
        ([1.0, 1.0, 1.0, -0.5], 4 / 16),  # 2.5 or 3.5, and both with the signs changed
    ],
)
def test_p_values_worked_out_by_hand(values, p):
    assert sign_flip_p(values) == pytest.approx(p)


@given(many, st.randoms())
def test_neither_the_order_of_the_pairs_nor_which_run_comes_first_changes_a_number(values, random):
    shuffled = random.sample(values, len(values))
    assert sign_flip_p(shuffled) == sign_flip_p(values) == sign_flip_p([-value for value in values])
    low, high = mean_difference_interval(values)
    assert mean_difference_interval(shuffled) == pytest.approx((low, high), abs=1e-12)
    assert mean_difference_interval([-value for value in values]) == pytest.approx((-high, -low), abs=1e-12)


@given(many)
def test_pairs_that_are_equal_do_not_change_the_p_value(values):
    assert sign_flip_p([*values, 0.0, 0.0]) == sign_flip_p(values)


# Clusters


@given(differences)
def test_a_cluster_is_flipped_as_one(values):
    doubled = [value for value in values for _ in range(2)]
    clusters = [place // 2 for place in range(len(doubled))]
    assert sign_flip_p(doubled, clusters) == sign_flip_p(values)
    assert sign_flip_p(values, range(len(values))) == sign_flip_p(values)
    assert mean_difference_interval(doubled, clusters) == pytest.approx(mean_difference_interval(values), abs=1e-12)


def test_differences_that_agree_within_documents_are_less_sure():
    values = [0.5] * 20 + [-0.25] * 10
    documents = [place // 5 for place in range(30)]
    assert sign_flip_p(values) < 0.01 < 0.1 < sign_flip_p(values, documents)
    apart, together = mean_difference_interval(values), mean_difference_interval(values, documents)
    assert together[0] < apart[0] < apart[1] < together[1]


# The interval


@given(many)
def test_the_interval_holds_the_mean_and_is_the_same_each_time(values):
    low, high = mean_difference_interval(values)
    assert low <= fmean(values) + 1e-12
    assert fmean(values) - 1e-12 <= high
    assert low < high
    assert mean_difference_interval(values) == (low, high)


def test_pairs_without_a_difference_are_not_certain():
    """Of 20 and 2 pairs, one half is +1 and another -1: variance 1/22, so about ±1.96 · √(1/22) / √22."""
    low, high = mean_difference_interval([0.0] * 20)
    assert (low, high) == (pytest.approx(-0.089, abs=0.012), pytest.approx(0.089, abs=0.012))
    assert mean_difference_interval([0.0] * 20, span=0.0) == (0.0, 0.0)


def test_the_normal_interval_of_more_than_10000_pairs_continues_the_bootstrap():
    values = np.random.default_rng(1).normal(0.1, 0.4, 10_000).tolist()
    fewer, more = mean_difference_interval(values[:9990]), mean_difference_interval(values)
    assert fewer == pytest.approx(more, abs=1e-3)
    assert more == pytest.approx((fmean(values) - 1.96 * 0.004, fmean(values) + 1.96 * 0.004), abs=5e-4)


def yes_or_no(baseline, candidate, correlation):
    def draw(rng, size):
        one, own = rng.standard_normal(size), rng.standard_normal(size)
        other = correlation * one + sqrt(1 - correlation**2) * own
        return (other < norm.ppf(candidate)).astype(float) - (one < norm.ppf(baseline))

    return draw


def shares(baseline, candidate, alike):
    def draw(rng, size):
        of = rng.integers(1, 9, size)
        moved = (rng.binomial(of, candidate) - rng.binomial(of, baseline)) / of
        return np.where(rng.random(size) < alike, 0.0, moved)

    return draw


def mixture(baseline, candidate, alike):
    def draw(rng, size):
        luck = rng.random(size)
        other = np.where(rng.random(size) < alike, luck, rng.random(size))
        one = np.where(luck < baseline, 1.0, rng.beta(2, 2, size))
        return np.where(other < candidate, 1.0, rng.beta(2, 2, size)) - one

    return draw


@pytest.mark.parametrize("size", [10, 50])
@pytest.mark.parametrize(
    "draw",
    [
        pytest.param(yes_or_no(0.9, 0.9, 0.5), id="p=.9"),
        pytest.param(yes_or_no(0.97, 0.97, 0.5), id="p=.97"),
        pytest.param(yes_or_no(0.9, 0.97, 0.7), id="p=.9 to .97"),
        pytest.param(shares(0.9, 0.9, 0.5), id="shares"),
        pytest.param(shares(0.8, 0.95, 0.7), id="better shares"),
        pytest.param(mixture(0.7, 0.85, 0.8), id="mixture"),
    ],
)
def test_it_holds_the_true_difference_as_often_as_it_promises(draw, size):
    rng = np.random.default_rng(size)
    truth = draw(rng, 1_000_000).mean()
    intervals = [mean_difference_interval(draw(rng, size).tolist()) for _ in range(300)]
    assert np.mean([low <= truth <= high for low, high in intervals]) >= 0.9  # 92% less the noise of 300 samples


def test_an_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"^an interval needs at least one difference; got none$"):
        mean_difference_interval([])


# Several metrics


def test_holm_worked_out_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_only_raises_keeps_the_order_and_stays_between_the_others(p_values):
    adjusted = holm(p_values)
    assert all(raw <= new <= 1 for raw, new in zip(p_values, adjusted, strict=True))
    assert sorted(range(len(p_values)), key=p_values.__getitem__) == sorted(
        range(len(p_values)), key=lambda place: (adjusted[place], p_values[place])
    )
    bonferroni = [min(1.0, len(p_values) * p) for p in p_values]
    hochberg = false_discovery_control(p_values)  # a weaker promise, hence never greater
    assert all(
        weak - 1e-12 <= new <= strong + 1e-12 for weak, new, strong in zip(hochberg, adjusted, bonferroni, strict=True)
    )


# How much can be seen


def test_the_detectable_difference_worked_out_by_hand():
    """(1.960 + 0.842) · 0.5 / √100."""
    assert detectable_difference(0.5, 100) == pytest.approx(0.1401, abs=1e-4)


def test_a_difference_of_that_size_is_seen_as_often_as_was_asked():
    rng = np.random.default_rng(2)
    size, spread = 60, 0.3
    shift = detectable_difference(spread, size, power=0.8)
    seen = [sign_flip_p(rng.normal(shift, spread, size).tolist()) < 0.05 for _ in range(200)]
    assert np.mean(seen) == pytest.approx(0.8, abs=0.085)
