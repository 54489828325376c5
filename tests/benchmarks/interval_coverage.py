"""Measure coverage, level and power of `paired_difference`; prints the tables of results/interval_coverage.md.

    python tests/benchmarks/interval_coverage.py                   # print the tables, about two minutes
    python tests/benchmarks/interval_coverage.py --write           # replace the tables in the document

The samples are simulated with fixed seeds, so the tables are the same on each run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from table_in_document import RESULTS, show_or_write

from langchain_rageval.statistics import paired_difference
from langchain_rageval.statistics.paired import largest_loss

DOCUMENT = RESULTS / "interval_coverage.md"
SIZES = (5, 10, 30, 100, 300, 500)
RUNS = 2_000

Floats = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Floats | tuple[Floats, NDArray[np.intp]]]


@dataclass(frozen=True)
class Kind:
    """Population of differences.

    Attributes:
        name: row of the table.
        mean: true mean difference; 0 for a level, otherwise a power is measured.
        draw: function from a generator and a number of pairs, or of clusters, to differences, or to differences and
            the numbers of their clusters.
    """

    name: str
    mean: float
    draw: Draw


@dataclass(frozen=True)
class Cell:
    """Results of one kind of differences and one number of pairs.

    Attributes:
        coverage: share of the 95% intervals that contain the true mean.
        significant: share of the p-values below 0.05.
        width: mean width of the intervals.
    """

    coverage: float
    significant: float
    width: float


def chosen(values: list[float], chances: list[float]) -> Draw:
    """Return a draw of independent values with the given chances."""
    return lambda rng, size: rng.choice(values, p=chances, size=size)


def normal(mean: float, spread: float, rng: np.random.Generator, size: int) -> Floats:
    """Draw normal differences."""
    return rng.normal(mean, spread, size)


def bimodal(high: float, low: float, rng: np.random.Generator, size: int) -> Floats:
    """Draw differences around two values, each as likely."""
    return np.where(rng.random(size) < 0.5, high, low) + rng.normal(0, 0.05, size)


def shares(candidate: float, baseline: float, rng: np.random.Generator, size: int) -> Floats:
    """Draw differences of two shares of five statements."""
    return (rng.binomial(5, candidate, size) - rng.binomial(5, baseline, size)) / 5


def ties(values: list[float], chances: list[float], rng: np.random.Generator, size: int) -> Floats:
    """Draw differences of which nine in ten are 0."""
    return np.where(rng.random(size) < 0.9, 0.0, rng.choice(values, p=chances, size=size))


def clustered(mean: float, unequal: bool, rng: np.random.Generator, size: int) -> tuple[Floats, NDArray[np.intp]]:
    """Draw clusters of 5 pairs, or of 1 to 14, whose differences are mostly common to the cluster."""
    sizes = rng.integers(1, 15, size) if unequal else np.full(size, 5)
    places = np.repeat(np.arange(size), sizes)
    return rng.normal(mean, 0.2, size)[places] + rng.normal(0, 0.1, places.size), places


RARE = "rare collapse"
KINDS = (
    Kind("binary, 10% better, 10% worse", 0.0, chosen([-1, 0, 1], [0.1, 0.8, 0.1])),
    Kind("binary, 15% better, 5% worse", 0.1, chosen([-1, 0, 1], [0.05, 0.8, 0.15])),
    Kind("binary, 3% better, 3% worse", 0.0, chosen([-1, 0, 1], [0.03, 0.94, 0.03])),
    Kind("bimodal, around +0.25 and -0.25", 0.0, partial(bimodal, 0.25, -0.25)),
    Kind("bimodal, around +0.30 and -0.20", 0.05, partial(bimodal, 0.3, -0.2)),
    Kind("continuous, deviation 0.2", 0.0, partial(normal, 0.0, 0.2)),
    Kind("continuous, deviation 0.05", 0.04, partial(normal, 0.04, 0.05)),
    Kind("shares of 5 statements", 0.0, partial(shares, 0.8, 0.8)),
    Kind("shares of 5 statements, 0.8 after 0.7", 0.1, partial(shares, 0.8, 0.7)),
    Kind("mostly ties", 0.0, partial(ties, [-0.5, -0.25, 0.25, 0.5], [0.25] * 4)),
    Kind("mostly ties, more gains", 0.025, partial(ties, [-0.25, 0.25, 0.5], [0.25, 0.25, 0.5])),
    Kind("clusters of 5 pairs", 0.0, partial(clustered, 0.0, False)),
    Kind("clusters of 5 pairs, +0.1", 0.1, partial(clustered, 0.1, False)),
    Kind("clusters of 1 to 14 pairs", 0.0, partial(clustered, 0.0, True)),
    Kind("clusters of 1 to 14 pairs, +0.1", 0.1, partial(clustered, 0.1, True)),
    Kind(f"{RARE}: 95% +0.05, 5% -0.95", 0.0, chosen([0.05, -0.95], [0.95, 0.05])),
    Kind(f"{RARE}: 98% +0.02, 2% -0.98", 0.0, chosen([0.02, -0.98], [0.98, 0.02])),
)


def measure(kind: Kind, size: int, *, rare_losses: bool, runs: int = RUNS) -> Cell:
    """Simulate comparisons and count how often the interval contains the true mean, and the p-value is below 0.05.

    Args:
        kind: population of the differences.
        size: number of pairs, or of clusters.
        rare_losses: option of `paired_difference`.
        runs: number of comparisons.
    """
    rng = np.random.default_rng([size, *kind.name.encode()])
    covered, significant, width = 0, 0, 0.0
    for _ in range(runs):
        drawn = kind.draw(rng, size)
        differences, clusters = drawn if isinstance(drawn, tuple) else (drawn, None)
        labels = None if clusters is None else clusters.tolist()
        found = paired_difference(differences.tolist(), labels, rare_losses=rare_losses)
        covered += found.low - 1e-12 <= kind.mean <= found.high + 1e-12
        significant += found.p_value < 0.05
        width += found.high - found.low
    return Cell(covered / runs, significant / runs, width / runs)


def table(rare_losses: bool, runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table: coverage, level or power, and width for each kind and number of pairs."""
    yield f"| differences | true mean | {' | '.join(f'n = {size}' for size in SIZES)} |"
    yield f"|---|---|{'---|' * len(SIZES)}"
    for kind in KINDS:
        cells = (measure(kind, size, rare_losses=rare_losses, runs=runs) for size in SIZES)
        shown = (f"{cell.coverage:.3f} / {cell.significant:.3f} / {cell.width:.2f}" for cell in cells)
        yield f"| {kind.name} | {kind.mean:g} | {' | '.join(shown)} |"


LOSSES = (0.0102, 0.0204, 0.051, 0.0816)
"""Shares of questions that break, each 2% greater than the margin of its comparison."""
LOSS_SIZES = (30, 50, 100, 200, 400, 1000)


def wrong_no_worse(size: int, broken: float, mixed: float, runs: int) -> float:
    """Return the share of comparisons that are "no worse" within 98% of the share that breaks.

    Args:
        size: number of pairs.
        broken: share of the questions that break more than are repaired.
        mixed: share of the questions that are repaired, and of as many more that break.
        runs: number of comparisons.
    """
    rng = np.random.default_rng([size, round(10_000 * broken), round(100 * mixed)])
    counts = rng.multinomial(size, [broken + mixed, mixed, 1 - broken - 2 * mixed], size=runs)
    found = Counter(map(tuple, counts.tolist()))
    return (
        sum(
            times
            for (lost, gained, equal), times in found.items()
            if largest_loss([-1.0] * lost + [1.0] * gained + [0.0] * equal) <= broken / 1.02 + 1e-12
        )
        / runs
    )


def no_worse_table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table: how often "no worse" is wrong for each share of broken questions."""
    yield f"| broken, margin | also repaired | {' | '.join(f'n = {size}' for size in LOSS_SIZES)} |"
    yield f"|---|---|{'---|' * len(LOSS_SIZES)}"
    for broken in LOSSES:
        for mixed in (0.0, 0.05):
            cells = (f"{wrong_no_worse(size, broken, mixed, 2 * runs):.4f}" for size in LOSS_SIZES)
            yield f"| {broken:.2%}, {broken / 1.02:.0%} | {mixed:.0%} | {' | '.join(cells)} |"


def tables(runs: int) -> str:
    """Return all tables as Markdown."""
    parts = []
    for rare_losses in (False, True):
        parts.append("\n".join([f"### `rare_losses={rare_losses}`", "", *table(rare_losses, runs)]))
    parts.append("\n".join(['### `largest_loss`: how often "no worse" is wrong', "", *no_worse_table(runs)]))
    return "\n\n".join(parts)


if __name__ == "__main__":
    show_or_write(__doc__, tables, DOCUMENT, runs=RUNS, of="comparisons per cell")
