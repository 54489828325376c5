"""Measure when `until=Decided(...)` stops, and how often it is wrong; prints the table of results/stopping.md.

    python tests/benchmarks/stopping.py                   # print the table, a few minutes
    python tests/benchmarks/stopping.py --write           # replace the table in the document

The scores are simulated with fixed seeds: some are exactly 1, the others shares of one to five statements; in rows of 0
or 1, each is one of these. The table is the same on each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from table_in_document import RESULTS, show_or_write, statement_scores

from langchain_rageval.statistics import sequential
from langchain_rageval.statistics.sequential import ConfidenceSequence

DOCUMENT = RESULTS / "stopping.md"
SIZES = (200, 1_000, 5_000)
NOTHING = 1e-6  # from a mean to a threshold that it just reaches, or just misses
DISTANCES = (0.15, 0.10, 0.05, NOTHING, -NOTHING)
DISTANCES_OF_OTHERS = (0.10, -NOTHING)
FAR = 0.15
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
    return rng.permutation(statement_scores(rng, size, mean))


def conversations(rng: np.random.Generator, size: int, turns: int = 5) -> NDArray[np.float64]:
    """Return simulated scores of conversations in random order; half of the turns repeat the score of the first one."""
    first = np.repeat(scores(rng, -(-size // turns)), turns)[:size]
    return rng.permutation(np.where(rng.random(size) < 0.5, first, scores(rng, size)))


def yes_or_no(rng: np.random.Generator, size: int) -> NDArray[np.float64]:
    """Return simulated scores that are 0 or 1."""
    return (rng.random(size) < 0.8).astype(float)


def measure(size: int, distance: float, gates: int, runs: int, draw: Draw = scores) -> Cell:
    """Measure runs of several gates whose thresholds lie `distance` below their means.

    If the distance is negative, one gate has it and the others lie far below: the run is wrong if all pass. Else it is
    wrong if any fails.
    """
    rng = np.random.default_rng([size, round(1000 * abs(distance)), gates, distance < 0])
    stops, wrong = [], 0
    for _ in range(runs):
        distances = [distance] + [FAR if distance < 0 else distance] * (gates - 1)
        found = [_decide(draw(rng, size), one, gates) for one in distances]
        stops.append(max(count for count, _ in found))
        wrong += all(passed for _, passed in found) == (distance < 0)
    return Cell(float(np.mean(stops)), float(np.quantile(stops, 0.9)), wrong / runs)


def _decide(values: NDArray[np.float64], distance: float, gates: int) -> tuple[int, bool]:
    threshold = float(values.mean()) - distance
    sequence = ConfidenceSequence(len(values), ERROR, ERROR / gates, watched=[threshold])
    for value in values:
        sequence.add(float(value))
        if sequence.exceeds(threshold) or sequence.stays_below(threshold):
            break
    return sequence.count, sequence.exceeds(threshold)


def table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield f"| gates | mean above the threshold by | {' | '.join(f'N = {size:,}' for size in SIZES)} |"
    yield f"|---|---|{'---|' * len(SIZES)}"
    named = (("", scores, DISTANCES), (", 0 or 1", yes_or_no, DISTANCES_OF_OTHERS))
    for name, draw, distances in (*named, (", turns of chats", conversations, DISTANCES_OF_OTHERS)):
        for gates in (1, 6):
            for distance in distances:
                found = " | ".join(cells(distance, gates, runs, draw))
                yield f"| {gates}{name} | {_NAMES.get(distance, f'{distance:.2f}')} | {found} |"


_NAMES = {NOTHING: "0.00, reached", -NOTHING: "0.00, one missed"}


def cells(distance: float, gates: int, runs: int, draw: Draw) -> Iterator[str]:
    """Yield the cells of a row as text."""
    for cell in (measure(size, distance, gates, runs, draw) for size in SIZES):
        yield f"{cell.mean:,.0f} ({cell.high:,.0f}), {cell.wrong:.1%}"


if __name__ == "__main__":
    sequential._GRID = 2  # no interval is printed
    show_or_write(__doc__, lambda runs: "\n".join(table(runs)), DOCUMENT, runs=RUNS, of="runs per cell")
