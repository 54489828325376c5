"""Means over time: a confidence sequence, an alarm about drift, and the places of changes in a finished series."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import exp, isfinite, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from langchain_rageval.statistics.intervals import bounded_mean_interval

_GRID = 1001  # candidate means
_LARGEST_STAKE = 0.8  # of the capital, in one bet
_FEWEST_STAKES, _MOST_STAKES = 3, 6
_RICHEST = 1e200  # capital, of which more would overflow
_LEAST_MEAN = 1e-9  # of the remaining values, by which a stake is divided
_ROUNDING = 1e-9


class ConfidenceSequence:
    """Confidence interval for the mean of a finite set of bounded values, drawn in random order without replacement.

    With probability 1 - error the lower end is at most the mean of the whole set after every draw at once, and with
    that probability the upper end is at least the mean. Both hold together with probability 1 - 2 * error. Looking
    after each value and stopping when one likes the interval does not change that.

    For each candidate mean bettors bet on every next value that it is higher than the candidate would have it, each
    with a fixed share of their capital, and as many bet that it is lower. While the candidate is the mean, no bet is
    favourable, so the mean capital of a side ever grows by 1 / error with probability error at most (Ville's
    inequality); it is ruled out when that has happened. Source: Waudby-Smith and Ramdas 2024,
    doi:10.1093/jrsssb/qkad009, sections 4 and 5. One share suits means far from the candidate, another near ones; each
    is half of the next larger one, and larger sets, which can tell nearer means apart, have more of them.

    Args:
        size: number of values in the set.
        error: probability that the lower end is ever above the mean, between 0 and 1.
        error_above: probability that the upper end is ever below it; None for the same.
        low: lowest possible value.
        high: highest possible value.
        watched: means that `exceeds` and `stays_below` will be asked about.

    Attributes:
        count: number of values so far.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self,
        size: int,
        error: float = 0.05,
        error_above: float | None = None,
        *,
        low: float = 0.0,
        high: float = 1.0,
        watched: Sequence[float] = (),
    ) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        self._error, self._error_above = error, error if error_above is None else error_above
        if not (0 < error < 1 and 0 < self._error_above < 1):
            raise ValueError(f"error must be between 0 and 1, such as 0.05, got {error}")
        if not (isfinite(low) and isfinite(high) and low < high):
            raise ValueError(f"low and high must be finite bounds, low below high; got {low} and {high}")
        self.count = 0
        self._size = size
        self._low, self._width = low, high - low
        self._watched = {mean: place for place, mean in enumerate(dict.fromkeys(watched), _GRID)}
        scaled = [(mean - low) / self._width for mean in self._watched]
        self._means = np.concatenate([np.linspace(0, 1, _GRID), scaled])
        stakes = min(max(round(log2(size) / 2 - 0.75), _FEWEST_STAKES), _MOST_STAKES)
        self._stakes = _LARGEST_STAKE * 0.5 ** np.arange(stakes)[:, np.newaxis]
        self._rising, self._falling = np.ones((2, stakes, len(self._means)))  # capital of each bettor
        self._too_low, self._too_high = np.zeros((2, len(self._means)))  # most capital of a side; infinite: impossible
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Add the next value of the random order.

        Raises:
            ValueError: if it is out of bounds, or more values were added than the set has.
        """
        scaled = (value - self._low) / self._width
        if not -_ROUNDING <= scaled <= 1 + _ROUNDING:
            raise ValueError(f"every value must be in [{self._low:g}, {self._low + self._width:g}], got {value}")
        if self.count >= self._size:
            raise ValueError(f"the set has only {self._size} values")
        scaled = min(max(scaled, 0.0), 1.0)
        rest = (self._size * self._means - self._sum) / (self._size - self.count)
        gain = np.where((rest > 0) & (rest < 1), scaled - rest, 0.0)
        safe = np.clip(rest, _LEAST_MEAN, 1 - _LEAST_MEAN)
        self._rising = np.minimum(self._rising * (1 + self._stakes * (gain / safe)), _RICHEST)
        self._falling = np.minimum(self._falling * (1 - self._stakes * (gain / (1 - safe))), _RICHEST)
        self.count += 1
        self._sum += scaled
        self._rule_out()

    def skip(self) -> None:
        """Take the next item of the random order out of the set, because it has no value."""
        self._size = max(self._size - 1, self.count, 1)
        self._rule_out()

    @property
    def mean(self) -> float | None:
        """Mean of the values so far; None before the first."""
        return self._unscaled(self._sum / self.count) if self.count else None

    @property
    def interval(self) -> tuple[float, float]:
        """Lowest and highest mean that is not ruled out, never beyond a watched value that is."""
        is_low, is_high = self._too_low >= 1 / self._error, self._too_high >= 1 / self._error_above
        left = np.flatnonzero(~(is_low | is_high)[:_GRID])
        if not len(left):  # between two neighbours of the grid
            mean = self._sum / max(self.count, 1)
            return self._unscaled(mean), self._unscaled(mean)
        step = 1 / (_GRID - 1)
        certain_low, certain_high = self._sum / self._size, (self._sum + (self._size - self.count)) / self._size
        low = max(self._means[left[0]] - step, certain_low, 0.0)
        high = min(self._means[left[-1]] + step, certain_high, 1.0)
        too_low = [mean for mean, place in self._watched.items() if is_low[place]]
        too_high = [mean for mean, place in self._watched.items() if is_high[place]]
        return max([self._unscaled(low), *too_low]), min([self._unscaled(high), *too_high])

    def exceeds(self, mean: float, error: float | None = None) -> bool:
        """Return True if the mean of the set is known to be at least a watched value.

        Args:
            mean: the value.
            error: probability that this is ever wrong; None for that of the lower end.
        """
        return bool(self._too_low[self._watched[mean]] >= 1 / (error or self._error))

    def stays_below(self, mean: float) -> bool:
        """Return True if the mean of the set is known to be less than `mean`, which must be one of `watched`."""
        return bool(self._too_high[self._watched[mean]] >= 1 / self._error_above)

    def _rule_out(self) -> None:
        """Rule out candidates whose bets have won, or that no remaining values could give; they stay ruled out."""
        total = self._size * self._means - self._sum
        self._too_low = np.maximum(self._too_low, self._rising.mean(axis=0))
        self._too_high = np.maximum(self._too_high, self._falling.mean(axis=0))
        self._too_low[total < -_ROUNDING] = np.inf
        self._too_high[total > self._size - self.count + _ROUNDING] = np.inf
        if self.count == self._size:  # the mean is known
            self._too_low[_GRID:][total[_GRID:] <= _ROUNDING] = np.inf

    def _unscaled(self, mean: float) -> float:
        return float(self._low + self._width * mean)


_SHORTEST = 6  # values between two changes
_EQUAL = 1e-12  # variance of equal numbers, as computed
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
    if size < 2 * _SHORTEST or (variance := float(values.var())) <= _EQUAL:
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
    ratio = (excess / max(error, _EQUAL)) ** (1 / 3)
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
