"""The simulation behind tests/benchmarks/results/stopping.md: its cells have what the document says."""

import re

import pytest
from helpers.manual import load_benchmark


@pytest.fixture(scope="module")
def stopping():
    return load_benchmark("stopping")


def test_a_cell_counts_wrong_gates_and_samples(stopping):
    near, far = (stopping.measure(200, distance, 1, 10) for distance in (0.05, 0.15))
    assert far.mean < near.mean <= 200
    assert far.mean <= far.high
    assert far.wrong == 0


def test_the_document_holds_a_table_without_more_errors_than_promised(stopping):
    _, _, rest = stopping.DOCUMENT.read_text(encoding="utf-8").partition(stopping.BEGIN)
    lines, _, _ = rest.partition(stopping.END)
    shares = [float(share) for share in re.findall(r"([\d.]+)%", lines)]
    rows = len(stopping.DISTANCES) + 2 * len(stopping.DISTANCES_OF_OTHERS)
    assert len(shares) == 2 * rows * len(stopping.SIZES)
    noise = 2 * (0.05 * 0.95 / stopping.RUNS) ** 0.5
    assert max(shares) <= 100 * (0.05 + noise)
