"""Confidence sequence: an interval for a mean that holds after every value, so that one may stop at any of them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, log2

import numpy as np

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
        """Return True if the mean of the set is known to be less than a watched value."""
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
