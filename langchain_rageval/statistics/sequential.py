"""Statistics of a mean over time: its confidence interval after each value, a drift alarm, and change points."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import exp, isfinite, log, log2, sqrt

import numpy as np
from numpy.typing import NDArray

from langchain_rageval.statistics.intervals import bounded_mean_interval, incomplete_beta

_GRID = 1001  # candidate means
_LARGEST_STAKE = 0.8  # of the capital, in one bet
_FEWEST_STAKES, _MOST_STAKES = 3, 6
_RICHEST = 1e200  # capital, of which more would overflow
_LEAST_MEAN = 1e-9  # of the remaining values, by which a stake is divided
_ROUNDING = 1e-9


class ConfidenceSequence:
    """Confidence interval, updated after each value, for the mean of a finite set that is drawn in random order.

    The values are bounded and drawn without replacement. With probability 1 - `error`, the lower end stays at or below
    the mean of the whole set after every draw. With the same probability, the upper end stays at or above the mean.
    Both hold together with probability 1 - 2 * `error`. These probabilities stay valid if the user looks at the
    interval after each value and stops at any time.

    The method is betting. For each candidate mean, some bettors bet that the next value is higher than the candidate,
    and as many bet that the next value is lower. Each bettor stakes a fixed share of the capital. If the candidate is
    the true mean, no bet is favourable: the capital of one side ("higher" or "lower"), averaged over its bettors, ever
    grows to 1 / `error` times the start with probability at most `error` (Ville's inequality). A candidate is ruled out
    when the average capital of a side has grown by this factor. Source: Waudby-Smith and Ramdas 2024,
    doi:10.1093/jrsssb/qkad009, sections 4 and 5. Bettors who stake a large share rule out candidates far from the true
    mean, and bettors who stake a small share rule out candidates close to it. Each share is half of the next larger
    share. Larger sets can distinguish closer means, so they have more bettors.

    Args:
        size: number of values in the set.
        error: probability that the lower end is ever above the mean, between 0 and 1.
        error_above: probability that the upper end is ever below the mean; None for the value of `error`.
        low: lowest possible value.
        high: highest possible value.
        watched: means that will be passed to `exceeds` and `stays_below`, such as the threshold of a gate.

    Attributes:
        count: number of values added so far.

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
        for one in (self._error, self._error_above):
            if not 0 < one < 1:
                raise ValueError(f"error must be between 0 and 1, such as 0.05, got {one}")
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
            ValueError: if the value is outside `low` to `high`, or more values were added than the set has.
        """
        scaled = (value - self._low) / self._width
        if not -_ROUNDING <= scaled <= 1 + _ROUNDING:
            raise ValueError(f"every value must be in [{self._low:g}, {self._low + self._width:g}], got {value}")
        if self.count >= self._size:
            raise ValueError(
                f"more than size={self._size} values were added: size must be the number of all values of the set"
            )
        scaled = min(max(scaled, 0.0), 1.0)
        rest = (self._size * self._means - self._sum) / (self._size - self.count)
        rest = np.clip(rest, _LEAST_MEAN, 1 - _LEAST_MEAN)
        gain = self._stakes * (scaled - rest)
        self._rising = np.minimum(self._rising * (1 + gain / rest), _RICHEST)
        self._falling = np.minimum(self._falling * (1 - gain / (1 - rest)), _RICHEST)
        self.count += 1
        self._sum += scaled
        self._rule_out()

    def skip(self) -> None:
        """Skip the next item of the random order, which has no value; the set then has one value less."""
        self._size = max(self._size - 1, self.count, 1)
        self._rule_out()

    @property
    def mean(self) -> float | None:
        """Mean of the values added so far; None before the first value."""
        return self._unscaled(self._sum / self.count) if self.count else None

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval (low, high) of the mean of the set; it excludes `watched` means that are ruled out."""
        is_low, is_high = self._too_low >= 1 / self._error, self._too_high >= 1 / self._error_above
        left = np.flatnonzero(~(is_low | is_high)[:_GRID])
        if not len(left):  # between two neighbours of the grid
            mean = self._sum / max(self.count, 1)
            return self._unscaled(mean), self._unscaled(mean)
        step = 1 / (_GRID - 1)
        certain_low, certain_high = self._sum / self._size, (self._sum + (self._size - self.count)) / self._size
        low = max(self._means[left[0]] - step, certain_low)
        high = min(self._means[left[-1]] + step, certain_high)
        too_low = [mean for mean, place in self._watched.items() if is_low[place]]
        too_high = [mean for mean, place in self._watched.items() if is_high[place]]
        return max([self._unscaled(low), *too_low]), min([self._unscaled(high), *too_high])

    def exceeds(self, mean: float, error: float | None = None) -> bool:
        """Return True if the values so far show that the mean of the whole set is at least `mean`, otherwise False.

        Args:
            mean: one of the means in `watched`.
            error: probability that the result is ever wrongly True; None for the `error` of the sequence.
        """
        return bool(self._too_low[self._watched[mean]] >= 1 / (error or self._error))

    def stays_below(self, mean: float) -> bool:
        """Return True if the values so far show that the mean of the whole set is below `mean`, otherwise False.

        Args:
            mean: one of the means in `watched`. The probability that the result is ever wrongly True is at most the
                `error_above` of the sequence.
        """
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
_CHANCE = 0.001  # probability that groups of one mean have a spread


def change_points(values: Sequence[float], error: float = 0.05) -> list[int]:
    """Return the change points of the mean of a series, each as the number of values before the change, in order.

    The method is binary segmentation. If the cumulative sums of the series depart from a straight line by more than
    chance explains, the series is divided at the place where two different means fit best. Each part is then tested and
    divided in the same way. At least six values lie between two changes.

    Args:
        values: independent values, in order; shape (n,).
        error: probability of finding any change in a series without changes, between 0 and 1. The test is approximate,
            and conservative for short series.

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
    """Estimate the standard deviation of the true means of groups; 0.0 if it is not significant (p > 0.001).

    The part of the spread that chance within the groups explains is subtracted.

    Args:
        groups: independent values of each group, such as the values of each day. The values are centred: their mean is
            about 0.
        parts: number of means that were subtracted to centre the values, such as one mean per slice;
            at least 1.

    Source: one-way analysis of variance and its F-test, Fisher 1925, Statistical Methods for Research Workers,
        chapter 7.
    """
    counts = np.array([len(group) for group in groups], dtype=np.float64)
    total = float(counts.sum())
    between, within = len(groups) - parts, total - len(groups)
    across = sum(len(group) * float(np.mean(group)) ** 2 for group in groups)
    if between < 1 or within < 1 or across <= _EQUAL:
        return 0.0
    inside = sum(len(group) * float(np.var(group)) for group in groups)
    both = across + inside
    p_value = incomplete_beta(within / 2, between / 2, inside / both, across / both)
    size = (total - float(counts @ counts) / total) / (len(groups) - 1)
    return sqrt((across / between - inside / within) / size) if p_value < _CHANCE else 0.0


_MOST_STAKED = 0.75  # of the capital that the worst value could lose


class DriftDetector:
    """Drift alarm: a sequential test that raises an alarm when the mean falls below the mean of a baseline.

    The method is betting (a Shiryaev–Roberts e-detector). A bettor bets that values are below the baseline, and gains
    in the long run only if this is true. One new bettor starts in every period, such as a day. The alarm is raised when
    the sum of all capital reaches `run_length`. Without drift, this takes at least `run_length` periods on average.

    Args:
        baseline: mapping of each slice to the values of the baseline, in [0, 1]. The name of a single slice may be
            None.
        error: 1 minus the joint confidence level of the intervals of the slice means, between 0 and 1. With k slices,
            the level of each interval is 1 - `error` / k. The lower end of the interval, minus `margin`, is the lowest
            mean of the slice that counts as no drift.
        margin: accepted decrease of the mean, at least 0.
        run_length: least average number of periods until a false alarm, above 1.

    Attributes:
        count: number of values added so far.
        alarm: number of values that had been added when the alarm was raised; None if no alarm was raised.
        change: number of values before the estimated change; None if no alarm was raised.

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
        self._period: Hashable = None
        self._bettors = np.zeros((3, 0))  # logarithm of the capital; sum and squares of the losses so far

    def add(self, value: float, part: Hashable = None, period: Hashable = None) -> bool:
        """Add the next value; return True if the alarm has been raised, now or before.

        Args:
            value: value in [0, 1].
            part: slice of the value; a value of a slice that the baseline lacks is ignored.
            period: period of the value, such as its day. A value with another period than the value before starts a
                new bettor, so add the values of a period one after the other. With None for all values, there is only
                one bettor.

        Raises:
            ValueError: if the value is outside [0, 1].
        """
        if part not in self._lowest:
            return self.alarm is not None
        if not 0 <= value <= 1:
            raise ValueError(f"every value must be in [0, 1]; got {value}")
        if not self._losses or period != self._period:  # a further bettor starts
            self._period = period
            self._bettors = np.append(self._bettors, np.zeros((3, 1)), axis=1)
        lowest = self._lowest[part]
        loss = lowest - value
        capital, sums, squares = self._bettors
        edge = np.maximum(sums, 0.0) / (squares + 0.25)
        capital += np.log1p(np.minimum(edge, _MOST_STAKED / (1 - lowest)) * loss)
        sums += loss
        squares += loss**2
        self._losses.append(loss)
        self.count += 1
        if self.alarm is None and float(np.logaddexp.reduce(capital)) >= self._bound:
            self.alarm = self.count
            # The likeliest place of a change from the lowest mean that the baseline allows to a lower one.
            later, numbers = np.cumsum(self._losses[::-1])[::-1], np.arange(self.count, 0, -1)
            self.change = int(np.argmax(np.maximum(later, 0.0) ** 2 / numbers))
        return self.alarm is not None
