"""Change points: the places at which the mean of a series of numbers changes."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import numpy as np
from numpy.typing import NDArray

_SHORTEST = 6  # values between two changes
_ROUNDING = 1e-12  # variance of equal numbers, as computed


def change_points(values: Sequence[float], error: float = 0.05) -> list[int]:
    """Return the places at which the mean of a series changes: the numbers of values before each change, in order.

    The series is divided where two different means fit it best, if its cumulative sums depart from a straight line by
    more than chance explains, and so is each part again (binary segmentation). Six values or more lie between changes.

    Args:
        values: independent values, in order; shape (n,).
        error: probability of any change in a series without one, between 0 and 1. The test is approximate, and
            conservative for short series.

    Raises:
        ValueError: if the error is out of range.

    Source: Csörgő and Horváth 1997, "Limit Theorems in Change-Point Analysis", section 2.1 (the limit is that of
        Kolmogorov's statistic); Vostrikova 1981 (binary segmentation).
    """
    if not 0 < error < 1:
        raise ValueError(f"error must be between 0 and 1, such as 0.05; got {error}")
    numbers = np.asarray(values, dtype=np.float64)
    found, parts = [], [(0, len(numbers))]
    while parts:
        start, end = parts.pop()
        place = _change_in(numbers[start:end], error)
        if place is not None:
            found.append(start + place)
            parts += [(start, start + place), (start + place, end)]
    return sorted(found)


def _change_in(values: NDArray[np.float64], error: float) -> int | None:
    """Return the number of values before the most likely change; None if chance explains it."""
    size = len(values)
    if size < 2 * _SHORTEST or (variance := float(values.var())) <= _ROUNDING:
        return None
    departure = np.abs(np.cumsum(values - values.mean())[:-1])
    if 2 * exp(-2 * float(departure.max()) ** 2 / (variance * size)) > error:
        return None
    before = np.arange(1, size)
    fit = departure**2 / (before * (size - before))
    return _SHORTEST + int(fit[_SHORTEST - 1 : size - _SHORTEST].argmax())
