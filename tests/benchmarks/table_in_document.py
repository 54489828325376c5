"""Tables of a benchmark in a document: printed, or written between two comments."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- tables -->", "<!-- end of the tables -->"


def statement_scores(rng: np.random.Generator, size: int, mean: float) -> NDArray[np.float64]:
    """Draw scores like those of faithfulness: most are 1, the others shares of one to five statements."""
    counts = rng.integers(1, 6, size=size)
    return np.where(rng.random(size) < (mean - 0.4) / 0.6, 1.0, rng.binomial(counts, 0.4) / counts)


def show_or_write(description: str | None, tables: Callable[[int], str], document: Path, *, runs: int, of: str) -> None:
    """Print the tables of a benchmark, or with `--write` replace those in a document.

    Args:
        description: text of the help, the docstring of the script.
        tables: function from the number of runs to the Markdown of the tables.
        document: page that contains them.
        runs: default of `--runs`.
        of: what `--runs` counts.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=runs, help=f"{of} (default: %(default)s)")
    parser.add_argument("--write", action="store_true", help=f"replace the tables in {document.name}")
    options = parser.parse_args()
    markdown = tables(options.runs)
    if not options.write:
        print(markdown)
        return
    write_between(document, BEGIN, END, markdown)


def write_between(document: Path, begin: str, end: str, markdown: str) -> None:
    """Replace what stands between two comments of a page."""
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    _, _, after = rest.partition(end)
    document.write_text(f"{before}{begin}\n\n{markdown}\n\n{end}{after}", encoding="utf-8")
