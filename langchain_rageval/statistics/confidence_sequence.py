"""Confidence sequence: an interval for a mean that holds after every value, so that one may stop at any of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log

import numpy as np

_GRID = 1001  # candidate means
_MOST_STAKED = 0.75  # of the capital, in one bet
_ROUNDING = 1e-9


class ConfidenceSequence:
    """Confidence interval for the mean of a finite set of bounded values, drawn in random order without replacement.

    With probability 1 - error the interval contains the mean of the whole set after every draw at once. Looking after
    each value and stopping when one likes the interval does not change that.

    For each candidate mean two bets are made on every next value, one that it is higher than the candidate would have
    it, and one that it is lower. A candidate is ruled out when either capital has grown by 2 / error. Source: Waudby-
    Smith and Ramdas 2024, doi:10.1093/jrsssb/qkad009, sections 4 and 5; bets as in their approximate GRAPA.

    Args:
        size: number of values in the set.
        error: probability that the interval misses the mean at any time, between 0 and 1.
        low: lowest possible value.
        high: highest possible value.
        watched: means that `exceeds` and `stays_below` will be asked about.

    Attributes:
        count: number of values so far.

    Raises:
        ValueError: if an argument is out of range.
    """

    def __init__(
        self, size: int, error: float = 0.05, *, low: float = 0.0, high: float = 1.0, watched: Sequence[float] = ()
    ) -> None:
        if size < 1:
            raise ValueError(f"size must be at least 1, got {size}")
        if not 0 < error < 1:
            raise ValueError(f"error must be between 0 and 1, such as 0.05, got {error}")
        if not (isfinite(low) and isfinite(high) and low < high):
            raise ValueError(f"low and high must be finite bounds, low below high; got {low} and {high}")
        self.count = 0
        self._size = size
        self._bound = log(2 / error)
        self._low, self._width = low, high - low
        self._watched = {mean: place for place, mean in enumerate(dict.fromkeys(watched), _GRID)}
        scaled = [(mean - low) / self._width for mean in self._watched]
        self._means = np.concatenate([np.linspace(0, 1, _GRID), scaled])
        self._rising, self._falling = np.zeros(len(self._means)), np.zeros(len(self._means))  # logarithms of capital
        self._is_low, self._is_high = np.zeros(len(self._means), bool), np.zeros(len(self._means), bool)
        self._sum = self._sum_of_squares = 0.0

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
        rest = self._rest_means()
        inside = (rest > 0) & (rest < 1)
        mean = (0.5 + self._sum) / (self.count + 1)
        squares = self._sum_of_squares - 2 * mean * self._sum + self.count * mean**2
        variance = (0.25 + squares) / (self.count + 1)
        edge = mean - rest
        stake = edge / (variance + edge**2)
        safe = np.where(inside, rest, 0.5)
        gain = np.where(inside, scaled - rest, 0.0)
        self._rising += np.log1p(np.minimum(np.maximum(stake, 0), _MOST_STAKED / safe) * gain)
        self._falling += np.log1p(-np.minimum(np.maximum(-stake, 0), _MOST_STAKED / (1 - safe)) * gain)
        self.count += 1
        self._sum += scaled
        self._sum_of_squares += scaled**2
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
        left = np.flatnonzero(~(self._is_low | self._is_high)[:_GRID])
        if not len(left):  # between two neighbours of the grid
            mean = self._sum / max(self.count, 1)
            return self._unscaled(mean), self._unscaled(mean)
        step = 1 / (_GRID - 1)
        certain_low, certain_high = self._sum / self._size, (self._sum + (self._size - self.count)) / self._size
        low = max(self._means[left[0]] - step, certain_low, 0.0)
        high = min(self._means[left[-1]] + step, certain_high, 1.0)
        too_low = [mean for mean, place in self._watched.items() if self._is_low[place]]
        too_high = [mean for mean, place in self._watched.items() if self._is_high[place]]
        return max([self._unscaled(low), *too_low]), min([self._unscaled(high), *too_high])

    def exceeds(self, mean: float) -> bool:
        """Return True if the mean of the set is known to be at least a watched value."""
        return bool(self._is_low[self._watched[mean]])

    def stays_below(self, mean: float) -> bool:
        """Return True if the mean of the set is known to be less than a watched value."""
        return bool(self._is_high[self._watched[mean]])

    def _rest_means(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return the mean that the values not yet drawn have, for each candidate mean of the whole set."""
        rest: np.ndarray[tuple[int], np.dtype[np.float64]] = (self._size * self._means - self._sum) / (
            self._size - self.count
        )
        return rest

    def _rule_out(self) -> None:
        """Rule out candidates whose bets have won, or that no remaining values could give; they stay ruled out."""
        total = self._size * self._means - self._sum
        self._is_low |= (self._rising >= self._bound) | (total < -_ROUNDING)
        self._is_high |= (self._falling >= self._bound) | (total > self._size - self.count + _ROUNDING)
        if self.count == self._size:
            self._is_low[_GRID:] |= ~self._is_high[_GRID:]  # the mean is known

    def _unscaled(self, mean: float) -> float:
        return float(self._low + self._width * mean)
