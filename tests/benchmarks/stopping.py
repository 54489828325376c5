"""Measure when `until=Decided(...)` stops, and how often it is wrong; prints the table of docs/explanation/stopping.md.

    python tests/benchmarks/stopping.py                   # print the table, a few minutes
    python tests/benchmarks/stopping.py --write           # replace the table in the document

The scores are simulated with fixed seeds: some are exactly 1, the others shares of one to five statements. The table is
the same on each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from table_in_document import EXPLANATIONS, show_or_write

from langchain_rageval.statistics.confidence_sequence import ConfidenceSequence

DOCUMENT = EXPLANATIONS / "stopping.md"
BEGIN, END = "<!-- table of tests/benchmarks/stopping.py -->", "<!-- end of the table -->"
SIZES = (200, 1_000, 5_000)
DISTANCES = (0.15, 0.10, 0.05, 0.0)
DISTANCES_OF_CHATS = (0.10, 0.0)
RUNS = 100
Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
ERROR = 0.05


@dataclass(frozen=True)
class Cell:
    """Measurements of one cell: mean and 90% quantile of the number of samples, and share of runs with a wrong gate."""

    mean: float
    high: float
    wrong: float


def scores(rng: np.random.Generator, size: int, mean: float = 0.8) -> NDArray[np.float64]:
    """Return simulated scores in random order whose expected value is `mean`."""
    counts = rng.integers(1, 6, size=size)
    values = np.where(rng.random(size) < (mean - 0.4) / 0.6, 1.0, rng.binomial(counts, 0.4) / counts)
    return rng.permutation(values)


def conversations(rng: np.random.Generator, size: int, turns: int = 5) -> NDArray[np.float64]:
    """Return simulated scores of conversations in random order; half of the turns repeat the score of the first one."""
    first = np.repeat(scores(rng, -(-size // turns)), turns)[:size]
    return rng.permutation(np.where(rng.random(size) < 0.5, first, scores(rng, size)))


def measure(size: int, distance: float, gates: int, runs: int, draw: Draw = scores) -> Cell:
    """Measure runs of several gates whose thresholds lie `distance` below their means; at 0, just above them."""
    rng = np.random.default_rng([size, round(1000 * distance), gates])
    stops, wrong = [], 0
    for _ in range(runs):
        found = [_decide(draw(rng, size), distance, ERROR / gates) for _ in range(gates)]
        stops.append(max(count for count, _ in found))
        wrong += any(passed != (distance > 0) for _, passed in found)
    return Cell(float(np.mean(stops)), float(np.quantile(stops, 0.9)), wrong / runs)


def _decide(values: NDArray[np.float64], distance: float, error: float) -> tuple[int, bool]:
    threshold = float(values.mean()) - (distance or -1e-6)
    sequence = ConfidenceSequence(len(values), error, watched=[threshold])
    for value in values:
        sequence.add(float(value))
        if sequence.exceeds(threshold) or sequence.stays_below(threshold):
            break
    return sequence.count, sequence.exceeds(threshold)


def table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| gates | mean above the threshold by | {' | '.join(f'N = {size:,}' for size in SIZES)} |"
    yield f"|---|---|{'---|' * len(SIZES)}"
    for gates in (1, 6):
        for distance in DISTANCES:
            yield f"| {gates} | {distance:.2f} | {' | '.join(cells(distance, gates, runs, scores))} |"
    for gates in (1, 6):
        for distance in DISTANCES_OF_CHATS:
            found = " | ".join(cells(distance, gates, runs, conversations))
            yield f"| {gates}, turns of chats | {distance:.2f} | {found} |"


def cells(distance: float, gates: int, runs: int, draw: Draw) -> Iterator[str]:
    """Yield the cells of a row as text."""
    for cell in (measure(size, distance, gates, runs, draw) for size in SIZES):
        yield f"{cell.mean:,.0f} ({cell.high:,.0f}), {cell.wrong:.1%}"


if __name__ == "__main__":
    show_or_write(__doc__, lambda runs: "\n".join(table(runs)), DOCUMENT, BEGIN, END, runs=RUNS, of="runs per cell")
