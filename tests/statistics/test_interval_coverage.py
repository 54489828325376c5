"""Coverage and level of the paired comparison, by the benchmark that writes the tables of the documentation."""

import pytest
from helpers.each import each
from helpers.manual import load_benchmark

benchmark = load_benchmark("interval_coverage")
KINDS = {kind.name: kind for kind in benchmark.KINDS}
RARE = [name for name in KINDS if name.startswith(benchmark.RARE)]
MOSTLY_TIED = {"binary, 15% better, 5% worse": 10, "mostly ties, more gains": 30}
"""Rows with few differing pairs, mostly gains, to the number of pairs at which coverage is lower, as documented."""


@pytest.mark.gate
@each("size", [10, 30, 100])
@each("name", [name for name in KINDS if name not in RARE])
def test_intervals_contain_the_true_mean_and_equal_systems_are_rarely_called_different(name, size):
    cell = benchmark.measure(KINDS[name], size, rare_losses=False, runs=1000)
    assert cell.coverage >= (0.86 if MOSTLY_TIED.get(name) == size else 0.93)
    if KINDS[name].mean == 0:
        assert cell.significant <= 0.055 + 0.01  # noise of 1,000 runs


@each("size", benchmark.SIZES)
@each("name", RARE)
def test_with_rare_losses_the_level_holds_where_a_few_samples_lose_nearly_everything(name, size):
    cell = benchmark.measure(KINDS[name], size, rare_losses=True, runs=500)
    assert cell.coverage >= 0.93
    assert cell.significant <= 0.07


def test_without_the_option_rare_losses_are_found_different_far_too_often():
    """The documentation says so; if this changes, the option is no longer needed."""
    assert benchmark.measure(KINDS[RARE[0]], 30, rare_losses=False, runs=300).significant > 0.1


@each("broken", benchmark.LOSSES)
@each("size", [30, 100, 400])
def test_no_worse_is_rarely_said_of_a_system_that_breaks_more_than_the_margin(broken, size):
    assert benchmark.wrong_no_worse(size, broken, 0.0, 4000) <= 0.025 + 0.005  # noise of 4,000 runs


def test_a_small_steady_gain_is_found_from_30_pairs_on():
    kind = KINDS["continuous, deviation 0.05"]
    assert benchmark.measure(kind, 30, rare_losses=False, runs=300).significant > 0.9


def test_the_tables_of_the_documentation_are_those_of_the_benchmark():
    text = benchmark.DOCUMENT.read_text(encoding="utf-8")
    for rare_losses, part in zip((False, True), text.split("### ")[1:3], strict=True):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")][2:]
        assert [row[0] for row in rows] == list(KINDS)
        for row in rows[::5]:
            cell = benchmark.measure(KINDS[row[0]], 10, rare_losses=rare_losses)
            assert row[3] == f"{cell.coverage:.3f} / {cell.significant:.3f} / {cell.width:.2f}"
