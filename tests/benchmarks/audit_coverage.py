"""Measure the intervals of `report.audit`; prints the table of results/audit_coverage.md.

    python tests/benchmarks/audit_coverage.py                   # print the table, about two minutes
    python tests/benchmarks/audit_coverage.py --write           # replace the table in the document
    python tests/benchmarks/audit_coverage.py --bias            # print the table of biases

The scores are simulated with fixed seeds, so the table is the same on each run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from table_in_document import RESULTS, show_or_write, statement_scores

from langchain_rageval.statistics import prediction_powered_mean

DOCUMENT = RESULTS / "audit_coverage.md"
SIZES = ((100, 10), (300, 30), (1_000, 100), (2_000, 400))
RUNS = 2_000

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Cell:
    """Measurements of one cell.

    Attributes:
        coverage: share of the intervals that contain the strong judge's expected score.
        finite: share of the intervals that contain its mean over all samples of the run.
        width: mean width of the intervals.
        alone: mean width of the intervals from the strong judge's scores alone.
    """

    coverage: float
    finite: float
    width: float
    alone: float


def binary(rng: np.random.Generator, size: int, mean: float) -> Floats:
    """Draw scores of 0 and 1."""
    return (rng.random(size) < mean).astype(np.float64)


STRONG: tuple[tuple[str, float, Callable[[np.random.Generator, int, float], Floats]], ...] = (
    ("statements", 0.8, statement_scores),
    ("statements", 0.95, statement_scores),
    ("binary", 0.5, binary),
    ("binary", 0.9, binary),
    ("binary", 0.97, binary),
    ("binary", 0.99, binary),
)

CHEAP: dict[str, Callable[[np.random.Generator, Floats], Floats]] = {
    "right for 9 of 10": lambda rng, scores: np.where(rng.random(scores.size) < 0.9, scores, rng.random(scores.size)),
    "noise for every second": lambda rng, scores: np.where(
        rng.random(scores.size) < 0.5, scores, rng.random(scores.size)
    ),
    "lenient, +0.7 of what is missing": lambda rng, scores: np.where(rng.random(scores.size) < 0.7, 1.0, scores),
    "strict, -0.2 for 6 of 10": lambda rng, scores: np.clip(scores - 0.2 * (rng.random(scores.size) < 0.6), 0, 1),
    "always 1": lambda rng, scores: np.ones(scores.size),
    "the opposite": lambda rng, scores: 1 - scores,
}


def measure(size: int, audited: int, strong: int, cheap: str, runs: int = RUNS) -> Cell:
    """Simulate audits and count how often the interval contains the strong judge's mean.

    Args:
        size: number of samples.
        audited: number of samples that the strong judge scores.
        strong: number of the distribution of its scores in `STRONG`.
        cheap: name of the cheap judge in `CHEAP`.
        runs: number of audits.
    """
    _, mean, draw = STRONG[strong]
    rng = np.random.default_rng([size, audited, strong, *cheap.encode()])
    coverage = finite = 0
    width = alone = 0.0
    for _ in range(runs):
        scores = draw(rng, size, mean)
        guesses = CHEAP[cheap](rng, scores).tolist()
        found = prediction_powered_mean(scores[:audited].tolist(), guesses[:audited], guesses[audited:])
        coverage += found.low - 1e-9 <= mean <= found.high + 1e-9
        finite += found.low - 1e-9 <= scores.mean() <= found.high + 1e-9
        width += found.high - found.low
        plain = prediction_powered_mean(scores[:audited].tolist(), [0.0] * audited, [])
        alone += plain.high - plain.low
    return Cell(coverage / runs, finite / runs, width / runs, alone / runs)


def table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table: coverage of both means, and width, for each pair of judges and size."""
    yield f"| strong judge | cheap judge | {' | '.join(f'{audited} of {size:,}' for size, audited in SIZES)} |"
    yield f"|---|---|{'---|' * len(SIZES)}"
    for number, (name, mean, _) in enumerate(STRONG):
        for cheap in CHEAP:
            cells = (measure(size, audited, number, cheap, runs) for size, audited in SIZES)
            shown = (f"{c.coverage:.3f}, {c.finite:.3f}; {c.width:.2f} ({c.alone:.2f})" for c in cells)
            yield f"| {name}, mean {mean:g} | {cheap} | {' | '.join(shown)} |"


def bias(mean: float, leniency: float, size: int, audited: int, runs: int) -> tuple[float, float]:
    """Return the mean error of the estimate with a lenient judge, and 1.96 Monte Carlo standard errors.

    Args:
        mean: share of good samples.
        leniency: share of the bad samples that the cheap judge calls good.
        size: number of samples.
        audited: number of samples that the strong judge scores.
        runs: number of audits.
    """
    rng, found = np.random.default_rng(16), []
    for _ in range(runs):
        scores = binary(rng, size, mean)
        cheap = np.where((scores == 0) & (rng.random(size) < leniency), 1.0, scores).tolist()
        found.append(prediction_powered_mean(scores[:audited].tolist(), cheap[:audited], cheap[audited:]).mean - mean)
    return float(np.mean(found)), 1.96 * float(np.std(found)) / runs**0.5


def bias_table(runs: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of biases."""
    yield "| strong mean | leniency | audited | bias |"
    yield "|---|---|---|---|"
    for mean, leniency in ((0.8, 0.7), (0.6, 0.5)):
        for size, audited in ((100, 10), (100, 20), (200, 20), (1_000, 100)):
            found, error = bias(mean, leniency, size, audited, runs)
            yield f"| {mean} | {leniency} | {audited} of {size:,} | {found:+.4f} ± {error:.4f} |"


if __name__ == "__main__":
    if sys.argv[1:] == ["--bias"]:
        sys.exit(print("\n".join(bias_table(20_000))))
    show_or_write(__doc__, lambda runs: "\n".join(table(runs)), DOCUMENT, runs=RUNS, of="audits per cell")
