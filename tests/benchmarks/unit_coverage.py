"""Measure what units are worth where samples depend on each other; prints the table of results/unit_coverage.md.

    python tests/benchmarks/unit_coverage.py                   # print the table, about three minutes
    python tests/benchmarks/unit_coverage.py --write           # replace the table in the document

The scores are simulated with fixed seeds, so the table is the same on each run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from table_in_document import RESULTS, show_or_write

from langchain_rageval import Report, Row, Sample, Score, leaderboard

DOCUMENT = RESULTS / "unit_coverage.md"
MEAN, RUNS = 0.8, 1_000

KINDS: tuple[tuple[str, int, int, float, Callable[[int], dict[str, Any]]], ...] = (
    ("20 questions asked 5 times", 20, 5, 0.6, lambda unit: {"id": f"q{unit}", "question": f"Question {unit}?"}),
    ("25 trees of 4 evolutions", 25, 4, 0.5, lambda unit: {"metadata": {"tree_id": f"t{unit}"}}),
    ("25 chats of 6 turns", 25, 6, 0.6, lambda unit: {"metadata": {"conversation": f"c{unit}"}}),
    ("100 samples, independent", 100, 1, 0.5, lambda unit: {}),
)


def report(
    rng: np.random.Generator, units: int, size: int, icc: float, fields: Callable[[int], dict[str, Any]]
) -> Report:
    """Return a report of 0/1 scores whose units share a probability of success."""
    a = MEAN * (1 - icc) / icc
    chances = np.repeat(rng.beta(a, a * (1 - MEAN) / MEAN, units), size)
    rows = [
        Row(
            index=place,
            sample=Sample(**{"id": f"s{place}", "question": f"Q {place}?", **fields(place // size)}),
            scores={"m": Score(metric="m", aspect="answer", value=float(rng.random() < chance))},
        )
        for place, chance in enumerate(chances)
    ]
    return Report(rows)


def boards(one: Report, other: Report) -> Report:
    """Return the answers of two models in one report."""
    rows = []
    for model, own in (("a", one), ("b", other)):
        for row in own.rows:
            metadata = {**row.sample.metadata, "model": model}
            sample = row.sample.model_copy(update={"id": f"{row.sample.id}@{model}", "metadata": metadata})
            rows.append(row.model_copy(update={"index": len(rows), "sample": sample}))
    return Report(rows)


def measure(number: int, runs: int) -> tuple[float, float, float, float, float]:
    """Return coverage by rows and by default, and how often equal systems differ by both and on the leaderboard."""
    _, units, size, icc, fields = KINDS[number]
    rng, counts = np.random.default_rng([5, number]), np.zeros(5)
    for _ in range(runs):
        one, other = (report(rng, units, size, icc, fields) for _ in range(2))
        rows, default = one.summary(cluster=None)["m"], one.summary()["m"]
        counts[:2] += [(found.low or 0.0) <= MEAN <= (found.high or 0.0) for found in (rows, default)]
        compared = [one.compare(other, cluster=None)["m"], one.compare(other)["m"]]
        counts[2:4] += [found.p_value is not None and found.p_value < 0.05 for found in compared]
        counts[4] += not leaderboard(boards(one, other), "m").rows[1].tied
    return tuple(counts / runs)  # type: ignore[return-value]


def table(runs: int) -> Iterator[str]:
    """Yield the lines of a Markdown table with 1.96 Monte Carlo standard errors."""
    yield "| data | mean covered, rows | by default | `compare` differs, rows | by default | `leaderboard` differs |"
    yield "|---|---|---|---|---|---|"
    for number, (name, *_) in enumerate(KINDS):
        shares = measure(number, runs)
        errors = (1.96 * (max(share * (1 - share), 0.5 / runs) / runs) ** 0.5 for share in shares)
        cells = (f"{share:.3f} ± {error:.3f}" for share, error in zip(shares, errors, strict=True))
        yield f"| {name} | {' | '.join(cells)} |"


if __name__ == "__main__":
    show_or_write(__doc__, lambda runs: "\n".join(table(runs)), DOCUMENT, runs=RUNS, of="runs per row")
