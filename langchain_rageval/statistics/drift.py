"""Drift of a mean over time: an alarm, and the places of changes in a finished series."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from langchain_rageval.statistics.intervals import bounded_mean_interval

_SHORTEST = 6  # values between two changes
_ROUNDING = 1e-12  # variance of equal numbers, as computed
_SURE = 3.09  # normal quantile of 0.999


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


def spread_of_groups(groups: Sequence[Sequence[float]], parts: int = 1) -> float:
    """Return the standard deviation of the means of groups beyond chance; 0.0 if chance explains it (p > 0.001).

    Args:
        groups: independent values by group, such as a day, with means of about 0.
        parts: number of means that the values were centred with.

    Source: one-way analysis of variance; its F-test with the approximation of Wilson and Hilferty 1931,
        doi:10.1073/pnas.17.12.684.
    """
    counts = np.array([len(group) for group in groups], dtype=np.float64)
    total, between, within = float(counts.sum()), len(groups) - parts, float(counts.sum()) - len(groups)
    if between < 1 or within < 1:
        return 0.0
    error = sum(float(np.var(group)) * len(group) for group in groups) / within
    excess = sum(len(group) * float(np.mean(group)) ** 2 for group in groups) / between
    small = 2 / (9 * between), 2 / (9 * within)
    ratio = (excess / max(error, _ROUNDING)) ** (1 / 3)
    score = ((1 - small[1]) * ratio - (1 - small[0])) / sqrt(small[0] + ratio**2 * small[1])
    size = (total - float((counts**2).sum()) / total) / max(1, len(groups) - 1)
    return sqrt((excess - error) / size) if score > _SURE and excess > error else 0.0


_MOST_STAKED = 0.75  # of the capital that the worst value could lose


class DriftDetector:
    """Sequential test of "the mean is not below that of the baseline".

    A bettor stakes on values below the baseline, and gains in the long run only if they are. One bettor starts in every
    period, such as a day. Without drift, the sum of their capital exceeds `run_length` after so many periods on average
    or later (a Shiryaev–Roberts e-detector).

    Args:
        baseline: values of the baseline in [0, 1] by slice; with one slice, its name may be None.
        error: twice the probability that a mean of the baseline is below its assumed lowest value, between 0 and 1.
        margin: by how much the mean may be lower, at least 0.
        run_length: average number of periods until an alarm without drift, above 1.

    Attributes:
        count: number of values so far.
        alarm: number of values after which the alarm was raised, from 1; None before.
        change: number of values before the estimated change; None before the alarm.

    Raises:
        ValueError: if a slice of the baseline has no values, or a value is outside [0, 1].

    Source: betting on bounded means, Waudby-Smith and Ramdas 2024, doi:10.1093/jrsssb/qkad009; averages over starting
        times, Shin, Ramdas and Rinaldo 2022, arXiv:2203.03532.
    """

    def __init__(
        self,
        baseline: Mapping[Hashable, Sequence[float]],
        error: float = 0.05,
        *,
        margin: float = 0.0,
        run_length: float = 365.0,
    ) -> None:
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, such as 0.05; got {error}")
        level = 1 - error / len(baseline)  # two-sided, of which the lower half counts
        self._lowest = {part: max(0.0, bounded_mean_interval(of, level)[0] - margin) for part, of in baseline.items()}
        self._bound = log(run_length)
        self.count = 0
        self.alarm: int | None = None
        self.change: int | None = None
        self._losses: list[float] = []
        self._starts: list[int] = []
        self._period: Hashable = None
        self._capital, self._sums, self._squares = np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, value: float, part: Hashable = None, period: Hashable = None) -> bool:
        """Add the next value, of a period; return True if the alarm has been raised. Unknown slices are ignored.

        Raises:
            ValueError: if the value is outside [0, 1].
        """
        if part not in self._lowest:
            return self.alarm is not None
        if not 0 <= value <= 1:
            raise ValueError(f"every value must be in [0, 1]; got {value}")
        if not self._starts or period != self._period:  # a further bettor starts
            self._period = period
            self._starts.append(self.count)
            grown = (np.append(array, 0.0) for array in (self._capital, self._sums, self._squares))
            self._capital, self._sums, self._squares = grown
        lowest = self._lowest[part]
        loss = lowest - value
        numbers = self.count - np.array(self._starts)
        mean, squares = self._sums / (numbers + 1), (self._squares + 0.25) / (numbers + 1)
        edge = np.maximum(mean, 0.0)
        stake = np.minimum(edge / np.maximum(squares, 1e-9), _MOST_STAKED / max(1 - lowest, 1e-9))
        self._capital += np.log1p(stake * loss)
        self._losses.append(loss)
        self._sums += loss
        self._squares += loss**2
        self.count += 1
        if self.alarm is None and float(np.logaddexp.reduce(self._capital)) >= self._bound:
            self.alarm = self.count
            self.change = self._last_change()
        return self.alarm is not None

    def _last_change(self) -> int:
        """Return the number of values before the ones that lie below the baseline most clearly.

        That is the likeliest place of a change from the lowest mean that the baseline allows to a lower one.
        """
        losses = np.array(self._losses)
        sums, numbers = np.cumsum(losses[::-1])[::-1], np.arange(len(losses), 0, -1)
        return int(np.argmax(np.maximum(sums, 0.0) ** 2 / numbers))
