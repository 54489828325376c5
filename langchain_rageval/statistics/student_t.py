"""Student's t-distribution: tail probability and quantile, without SciPy.

The quantile is the inverse of the tail probability to about 13 digits, so an interval and a p-value of one statistic do
not contradict each other.
"""

from __future__ import annotations

from functools import lru_cache
from math import exp, inf, lgamma, log

_MOST_TERMS = 10_000
_PRECISION = 1e-15
_TINY = 1e-300


def student_t_p(t: float, freedom: float) -> float:
    """Return the two-sided p-value: the probability that |T| is at least |t|.

    Args:
        t: value of the statistic; infinite values give 0.
        freedom: degrees of freedom, above 0.

    Returns:
        A probability from 0 to 1.

    Source: Abramowitz and Stegun 1964, Handbook of Mathematical Functions, 26.7.1 and 26.5.27.
    """
    square = t * t
    if square == inf:
        return 0.0
    return _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + square), square / (freedom + square))


@lru_cache(maxsize=1024)
def student_t_quantile(level: float, freedom: float) -> float:
    """Return t such that |T| is below t with probability `level`, by bisection.

    Args:
        level: central probability, from 0 to below 1; 0.95 gives the factor of a two-sided 95% interval.
        freedom: degrees of freedom, above 0.

    Returns:
        A number from 0 to about 1e154, which is reached only below 0.01 degrees of freedom.
    """
    low, high = 0.0, 1.0
    while student_t_p(high, freedom) > 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if student_t_p(middle, freedom) > 1 - level else (low, middle)
    return high


def _incomplete_beta(a: float, b: float, x: float, complement: float) -> float:
    """Return the regularized incomplete beta function I_x(a, b); `complement` is 1 - x without its rounding error.

    Source: the continued fraction of Abramowitz and Stegun 1964, 26.5.8, by Lentz's method (Thompson and Barnett 1986,
        doi:10.1016/0021-9991(86)90046-X).
    """
    if x == 0 or complement == 0:
        return float(x > 0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, complement, x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(complement)) / a
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < _PRECISION:
            break
    return front * fraction


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
