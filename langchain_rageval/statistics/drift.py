"""Drift of a mean over time: an alarm, and the places of changes in a finished series."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import exp, inf, log

import numpy as np
from numpy.typing import NDArray

from langchain_rageval.statistics.intervals import bounded_mean_interval

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


_STEPS = ((10_000, 10), (100_000, 100), (inf, 1_000))  # up to so many values, one further start in so many
_MOST_STAKED = 0.75  # of the capital that the worst value could lose


class DriftDetector:
    """Sequential test of "the mean is not below that of the baseline".

    A bettor stakes on values below the baseline, and gains in the long run only if they are. One bettor starts at every
    tenth value; their capital is averaged with weights 1/((k + 1)(k + 2)). The average exceeds 2/error with probability
    at most error/2 (Ville's inequality); error/2 is left for the uncertainty of the baseline.

    Args:
        baseline: values of the baseline in [0, 1] by slice; with one slice, its name may be None.
        error: probability of an alarm without drift, over the whole watch, between 0 and 1.
        margin: by how much the mean may be lower, at least 0.

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
        self, baseline: Mapping[Hashable, Sequence[float]], error: float = 0.05, *, margin: float = 0.0
    ) -> None:
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, such as 0.05; got {error}")
        level = 1 - error / len(baseline)  # two-sided, of which the lower half counts
        self._lowest = {part: max(0.0, bounded_mean_interval(of, level)[0] - margin) for part, of in baseline.items()}
        self._bound = log(2 / error)
        self.count = 0
        self.alarm: int | None = None
        self.change: int | None = None
        self._losses: list[float] = []
        self._starts: list[int] = []
        self._weights = np.zeros(0)
        self._capital, self._sums, self._squares = np.zeros(0), np.zeros(0), np.zeros(0)

    def add(self, value: float, part: Hashable = None) -> bool:
        """Add the next value; return True if the alarm has been raised. Values of unknown slices are ignored.

        Raises:
            ValueError: if the value is outside [0, 1].
        """
        if part not in self._lowest:
            return self.alarm is not None
        if not 0 <= value <= 1:
            raise ValueError(f"every value must be in [0, 1]; got {value}")
        self._begin()
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
        if self.alarm is None and self._log_average() >= self._bound:
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

    def _begin(self) -> None:
        """Let a further bettor start, if one is due."""
        step = next(step for limit, step in _STEPS if self.count < limit)
        if self.count % step:
            return
        number = len(self._starts)
        self._starts.append(self.count)
        self._weights = np.append(self._weights, -log((number + 1) * (number + 2)))
        self._capital, self._sums, self._squares = (
            np.append(array, 0.0) for array in (self._capital, self._sums, self._squares)
        )

    def _log_average(self) -> float:
        """Return the logarithm of the average capital; bettors that have not started hold 1."""
        waiting = 1 / (len(self._starts) + 1)
        logs: NDArray[np.float64] = self._capital + self._weights
        highest = float(logs.max())
        return highest + log(float(np.exp(logs - highest).sum()) + exp(min(log(waiting) - highest, 700.0)))
