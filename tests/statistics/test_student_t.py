"""Student's t: equal to SciPy, from half a degree of freedom to a hundred thousand."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from langchain_rageval.statistics import student_t_p, student_t_quantile


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
