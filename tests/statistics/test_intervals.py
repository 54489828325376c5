from statistics import fmean

import numpy as np
import pytest
from helpers.each import each
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest, norm, t

from langchain_rageval.statistics import bounded_mean_interval, student_t_p, student_t_quantile

values = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def width(interval):
    return interval[1] - interval[0]


@given(values, st.floats(0.5, 0.999))
def test_the_interval_holds_the_mean_and_stays_between_0_and_1(values, level):
    low, high = bounded_mean_interval(values, level)
    assert 0 <= low <= fmean(values) + 1e-12
    assert fmean(values) - 1e-12 <= high <= 1


@given(st.integers(1, 300), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_on_yes_or_no_values_it_is_wilsons_interval(size, data, level):
    hits = data.draw(st.integers(0, size))
    wilson = binomtest(hits, size).proportion_ci(level, method="wilson")
    assert bounded_mean_interval([1.0] * hits + [0.0] * (size - hits), level) == pytest.approx(tuple(wilson), abs=1e-12)


@each(
    "draw",
    [
        lambda rng, n: (rng.random(n) < 0.5).astype(float),
        lambda rng, n: (rng.random(n) < 0.9).astype(float),
        lambda rng, n: (rng.random(n) < 0.97).astype(float),
        lambda rng, n: rng.binomial(m := rng.integers(1, 9, n), 0.9) / m,
        lambda rng, n: np.where(rng.random(n) < 0.7, 1.0, rng.beta(2, 2, n)),
    ],
    ids=["p=.5", "p=.9", "p=.97", "shares", "mixture"],
)
@each("size", [10, 200])
@pytest.mark.gate
def test_it_holds_the_true_mean_as_often_as_it_promises(draw, size):
    rng = np.random.default_rng(size)
    truth = draw(rng, 1_000_000).mean()
    intervals = [bounded_mean_interval(draw(rng, size).tolist()) for _ in range(1000)]
    assert np.mean([low <= truth <= high for low, high in intervals]) >= 0.91  # 92% less the noise of 1000 samples


@pytest.mark.parametrize("size", [2, 5])
def test_values_that_say_the_same_within_a_cluster_count_once(size):
    once = [1.0] * 15 + [0.0] * 5
    repeated = [value for value in once for _ in range(size)]
    clusters = [place // size for place in range(len(repeated))]
    assert bounded_mean_interval(repeated, clusters=clusters) == pytest.approx(
        bounded_mean_interval(once, clusters=range(20))
    )
    assert width(bounded_mean_interval(repeated)) < width(bounded_mean_interval(repeated, clusters=clusters))


def test_a_single_cluster_tells_nothing():
    assert bounded_mean_interval([0.2, 0.4, 0.6], clusters=["d", "d", "d"]) == (0.0, 1.0)


def test_the_t_of_19_degrees_of_freedom_is_in_a_clustered_interval():
    """Wilson's interval for 15 of 20 with 2.093, worked out by hand, in place of 1.960."""
    expected = tuple(binomtest(15, 20).proportion_ci(2 * norm.cdf(t.ppf(0.975, 19)) - 1, method="wilson"))
    given = bounded_mean_interval([1.0] * 15 + [0.0] * 5, clusters=range(20))
    assert given == pytest.approx(expected, abs=1e-3)


@each(("agreement", "clusters", "sizes"), [(0.3, 10, "equal"), (0.0, 20, "mixed"), (0.3, 50, "mixed")])
def test_a_clustered_interval_holds_the_true_mean_as_often_as_it_promises(agreement, clusters, sizes):
    rng = np.random.default_rng(clusters)
    held = []
    for _ in range(500):
        many = np.full(clusters, 5) if sizes == "equal" else rng.geometric(0.2, clusters)
        rates = rng.beta(0.9 * 7 / 3, 0.1 * 7 / 3, clusters) if agreement else np.full(clusters, 0.9)
        values = rng.random(many.sum()) < np.repeat(rates, many)
        low, high = bounded_mean_interval(values.astype(float).tolist(), clusters=np.repeat(range(clusters), many))
        held.append(low <= 0.9 <= high)
    assert np.mean(held) >= 0.91


def test_a_rounding_error_beyond_1_is_forgiven():
    assert bounded_mean_interval([1 + 1e-10, 1.0])[1] == 1.0


# Student's t: equal to SciPy, from half a degree of freedom to a hundred thousand.


@given(st.floats(0, 1e3), st.floats(0.5, 1e5))
@example(0.0, 1.0)
@example(1e-9, 79.0)
@example(40.0, 3.0)
def test_the_tail_is_that_of_scipy(t, freedom):
    expected = 2 * stats.t.sf(t, freedom)
    assert student_t_p(t, freedom) == pytest.approx(expected, rel=1e-7, abs=1e-300)
    assert student_t_p(-t, freedom) == student_t_p(t, freedom)


def test_an_infinite_t_has_the_p_value_0():
    assert student_t_p(float("inf"), 5) == student_t_p(float("-inf"), 5) == 0.0


@given(st.floats(0.01, 0.999), st.floats(0.5, 1e5))
@example(0.95, 1.0)
@example(0.95, 31.0)
def test_the_quantile_is_that_of_scipy_and_the_inverse_of_the_tail(level, freedom):
    quantile = student_t_quantile(level, freedom)
    assert quantile == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-7)
    assert student_t_p(quantile, freedom) == pytest.approx(1 - level, rel=1e-9)
