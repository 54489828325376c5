"""The simulations behind tests/benchmarks/results: cells of audits and costs of a decision are as stored."""

import re

import pytest
from helpers.manual import load_benchmark


@pytest.fixture(scope="module")
def coverage():
    return load_benchmark("audit_coverage")


@pytest.fixture(scope="module")
def cost():
    return load_benchmark("decision_cost")


def lines_of(module):
    _, _, rest = module.DOCUMENT.read_text(encoding="utf-8").partition(module.BEGIN)
    lines, _, _ = rest.partition(module.END)
    return [line for line in lines.splitlines() if line.startswith("| ")][1:]


def test_a_good_cheap_judge_narrows_the_interval_and_a_useless_one_does_not_widen_it(coverage):
    good, useless = (coverage.measure(1_000, 100, 3, cheap, 100) for cheap in ("right for 9 of 10", "always 1"))
    assert good.width < 0.85 * good.alone
    assert useless.width == pytest.approx(useless.alone)


@pytest.mark.gate
@pytest.mark.parametrize("cheap", ["lenient, +0.7 of what is missing", "strict, -0.2 for 6 of 10", "the opposite"])
@pytest.mark.parametrize("strong", [1, 4, 5])
def test_the_interval_holds_with_a_biased_judge_and_means_near_one(coverage, strong, cheap):
    cell = coverage.measure(1_000, 100, strong, cheap, 400)
    noise = 2 * (0.05 * 0.95 / 400) ** 0.5
    assert min(cell.coverage, cell.finite) >= 0.95 - 0.015 - noise


def test_the_document_holds_a_table_with_the_coverage_that_was_promised(coverage):
    lines = lines_of(coverage)
    assert len(lines) == len(coverage.STRONG) * len(coverage.CHEAP)
    shares = [float(share) for line in lines for share in re.findall(r"([01]\.\d{3})[,;]", line)]
    assert len(shares) == 2 * len(coverage.SIZES) * len(lines)
    assert min(shares) >= 0.92


def test_a_decision_costs_less_with_each_way_of_saving(cost):
    alone, audited = cost.simulate(3, None, in_rounds=False), cost.simulate(3, 0.3, in_rounds=True)
    assert alone.own < cost.SAMPLES / 3
    assert (alone.strong, alone.wrong, audited.wrong) == (0, 0, 0)
    assert audited.strong < audited.own <= cost.SAMPLES


def test_the_document_shows_a_decision_for_less_than_a_tenth_of_the_price(cost):
    lines = lines_of(cost)
    costs = [float(re.search(r"([\d.]+)%", line)[1]) for line in lines]
    assert costs[0] == 100
    assert costs[1] == pytest.approx(100 * cost.CALLS_OURS / cost.CALLS_RAGAS, abs=0.1)
    assert max(costs[3:]) < 10
    wrong = [int(re.findall(r"(\d+)% \|", line)[-2]) for line in lines]
    assert max(wrong) <= 5
