"""Histogram of the values of a metric, for the HTML page and the plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_BINS = 10


@dataclass(frozen=True)
class Histogram:
    """Counts of values in ten bins of equal width.

    Attributes:
        edges: the 11 edges of the bins in order, from 0 to 1 unless a value lies outside.
        counts: number of values in each bin; a bin contains its lower edge, and the last one also its upper edge.
    """

    edges: Sequence[float]
    counts: Sequence[int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Histogram:
        """Build the histogram of values; at least one value is required, and all must be finite."""
        low, high = min(0.0, min(values)), max(1.0, max(values))
        counts, edges = np.histogram(np.asarray(values, dtype=np.float64), bins=_BINS, range=(low, high))
        return cls([float(edge) for edge in edges], [int(count) for count in counts])

    @property
    def heights(self) -> list[float]:
        """Heights of the bars, from 0 to 1: each count divided by the greatest count."""
        most = max(self.counts)
        return [count / most for count in self.counts]

    def __str__(self) -> str:
        """Return the histogram as text: the bins that are not empty, such as "0.9–1: 12"."""
        bins = zip(self.edges, self.edges[1:], self.counts, strict=False)
        return ", ".join(f"{low:.3g}–{high:.3g}: {count}" for low, high, count in bins if count)
