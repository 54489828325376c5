"""Intervals of means: Student's t, corrected predictions, and how often they hold what they promise."""

import random
import re
from math import inf, sqrt
from statistics import fmean, variance

import numpy as np
import pytest
from helpers.each import each
from helpers.manual import load_benchmark
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import binomtest, norm

from langchain_rageval.statistics import bounded_mean_interval, prediction_powered_mean, student_t_p, student_t_quantile

values = st.lists(st.floats(0, 1), min_size=1, max_size=60)


@given(values, st.floats(0.5, 0.999))
def test_the_interval_holds_the_mean_and_stays_between_0_and_1(values, level):
    low, high = bounded_mean_interval(values, level)
    assert 0 <= low <= fmean(values) + 1e-12
    assert fmean(values) - 1e-12 <= high <= 1


@given(st.integers(1, 300), st.data(), st.sampled_from([0.8, 0.95, 0.99]))
def test_on_yes_or_no_values_it_is_wilsons_interval(size, data, level):
    hits = data.draw(st.integers(0, size))
    wilson = binomtest(hits, size).proportion_ci(level, method="wilson")
    assert bounded_mean_interval([1.0] * hits + [0.0] * (size - hits), level) == pytest.approx(tuple(wilson), abs=1e-12)


DRAWS = [
    lambda rng, n: (rng.random(n) < 0.5).astype(float),
    lambda rng, n: (rng.random(n) < 0.9).astype(float),
    lambda rng, n: (rng.random(n) < 0.97).astype(float),
    lambda rng, n: rng.binomial(m := rng.integers(1, 9, n), 0.9) / m,
    lambda rng, n: np.where(rng.random(n) < 0.7, 1.0, rng.beta(2, 2, n)),
]


@each("draw", DRAWS, ids=["p=.5", "p=.9", "p=.97", "shares", "mixture"])
@each("size", [10, 200])
@pytest.mark.gate
def test_it_holds_the_true_mean_as_often_as_it_promises(draw, size):
    rng = np.random.default_rng(size)
    truth = draw(rng, 1_000_000).mean()
    intervals = [bounded_mean_interval(draw(rng, size).tolist()) for _ in range(1000)]
    assert np.mean([low <= truth <= high for low, high in intervals]) >= 0.91  # 92% less the noise of 1000 samples


@each("size", [2, 5])
def test_values_that_say_the_same_within_a_cluster_count_once(size):
    once = [1.0] * 15 + [0.0] * 5
    repeated = [value for value in once for _ in range(size)]
    clusters = [place // size for place in range(len(repeated))]
    plain, clustered = bounded_mean_interval(repeated), bounded_mean_interval(repeated, clusters=clusters)
    assert clustered == pytest.approx(bounded_mean_interval(once, clusters=range(20)))
    assert plain[1] - plain[0] < clustered[1] - clustered[0]
    assert bounded_mean_interval([0.2, 0.4, 0.6], clusters=["d", "d", "d"]) == (0.0, 1.0)  # one tells nothing


def test_the_t_of_19_degrees_of_freedom_is_in_a_clustered_interval():
    """Wilson's interval for 15 of 20 with 2.093, worked out by hand, in place of 1.960."""
    expected = tuple(binomtest(15, 20).proportion_ci(2 * norm.cdf(stats.t.ppf(0.975, 19)) - 1, method="wilson"))
    given = bounded_mean_interval([1.0] * 15 + [0.0] * 5, clusters=range(20))
    assert given == pytest.approx(expected, abs=1e-3)


@each(("agreement", "clusters", "sizes"), [(0.3, 10, "equal"), (0.0, 20, "mixed"), (0.3, 50, "mixed")])
def test_a_clustered_interval_holds_the_true_mean_as_often_as_it_promises(agreement, clusters, sizes):
    rng = np.random.default_rng(clusters)
    held = []
    for _ in range(500):
        many = np.full(clusters, 5) if sizes == "equal" else rng.geometric(0.2, clusters)
        rates = rng.beta(0.9 * 7 / 3, 0.1 * 7 / 3, clusters) if agreement else np.full(clusters, 0.9)
        values = rng.random(many.sum()) < np.repeat(rates, many)
        low, high = bounded_mean_interval(values.astype(float).tolist(), clusters=np.repeat(range(clusters), many))
        held.append(low <= 0.9 <= high)
    assert np.mean(held) >= 0.91


def test_a_rounding_error_beyond_1_is_forgiven():
    assert bounded_mean_interval([1 + 1e-10, 1.0])[1] == 1.0


# Student's t: equal to SciPy, from half a degree of freedom to a hundred thousand.


@given(st.floats(0, 1e3), st.floats(0.5, 1e5))
@example(0.0, 1.0)
@example(1e-9, 79.0)
@example(40.0, 3.0)
def test_the_tail_is_that_of_scipy(t, freedom):
    expected = 2 * stats.t.sf(t, freedom)
    assert student_t_p(t, freedom) == pytest.approx(expected, rel=1e-7, abs=1e-300)
    assert student_t_p(-t, freedom) == student_t_p(t, freedom)
    assert student_t_p(inf, freedom) == student_t_p(-inf, freedom) == 0.0


@given(st.floats(0.01, 0.999), st.floats(0.5, 1e5))
@example(0.95, 1.0)
@example(0.95, 31.0)
def test_the_quantile_is_that_of_scipy_and_the_inverse_of_the_tail(level, freedom):
    quantile = student_t_quantile(level, freedom)
    assert quantile == pytest.approx(stats.t.ppf((1 + level) / 2, freedom), rel=1e-7)
    assert student_t_p(quantile, freedom) == pytest.approx(1 - level, rel=1e-9)


# Prediction-powered means: few labels, corrected predictions for all


DRAW = random.Random(0)
LABELS = [DRAW.choice([0.0, 0.5, 1.0, 1.0]) for _ in range(1000)]


USELESS = [
    ([0.7] * 50, [0.7] * 950),
    ([1 - label for label in LABELS[:50]], LABELS[50:]),
    (LABELS[:50], []),
    (LABELS[:50], [0.5]),
]


@pytest.mark.parametrize(("predictions", "others"), USELESS, ids=["equal", "opposite", "no others", "one other"])
def test_useless_or_too_few_predictions_have_no_weight(predictions, others):
    found = prediction_powered_mean(LABELS[:50], predictions, others)
    assert (found.weight, found.mean) == (0.0, fmean(LABELS[:50]))
    assert 0 <= found.low < found.mean < found.high <= 1


def test_one_label_and_equal_labels_do_not_seem_certain():
    one = prediction_powered_mean([1.0], [1.0], [1.0, 0.0])
    assert (one.mean, one.low, one.high) == (pytest.approx(one.mean), 0.0, 1.0)
    equal = prediction_powered_mean([1.0] * 50, [1.0] * 50, [1.0] * 500)
    assert (equal.mean, equal.high) == (1.0, 1.0)
    assert 0.9 < equal.low < 0.99


PREDICTIONS = [
    ([0.2, 0.9, 0.4, 0.7], [0.1, 0.8, 0.6, 0.9, 0.3, 0.5]),
    ([0.2, 0.9, 0.4, 0.7], [0.1, 0.8]),  # the least number of others
    ([0.0, 0.9, 0.4, 0.7], [0.0, 0.8, 0.2]),  # scores may be up to 1, though none is
    ([0.2, 1.0, 0.4, 0.7], [0.1, 0.8, 1.0]),
    ([0.2, 1.5, 0.4, 0.9], [0.0, 0.8, 1.2]),  # beyond [0, 1], they are those observed
    ([-0.2, 0.9, 0.4, 0.7], [0.1, 0.8, 0.5]),
]


@pytest.mark.parametrize(("judge", "others"), PREDICTIONS)
def test_numbers_worked_out_step_by_step(judge, others):
    human = [0.0, 1.0, 0.5, 1.0]
    found = prediction_powered_mean(human, judge, others, level=0.5)
    weights = []
    for place in range(4):  # each weight by the other three labels
        hs, js = human[:place] + human[place + 1 :], judge[:place] + judge[place + 1 :]
        covariance = fmean([h * j for h, j in zip(hs, js, strict=True)]) - fmean(hs) * fmean(js)
        weights.append(min(max(covariance / variance([*judge, *others]) / (1 + 4 / len(others)), 0), 1))
    weight, middle, scores = fmean(weights), fmean(others), [*judge, *others]
    least, greatest = (0, 1) if min(scores) >= 0 and max(scores) <= 1 else (min(scores), max(scores))
    corrections = [h - w * (j - middle) for h, j, w in zip(human, judge, weights, strict=True)]
    invented = [1 - weight * (least - middle), -weight * (greatest - middle)]  # the greatest and the least possible
    extended = [*corrections, *invented]
    half = stats.t.ppf(0.75, 5) * sqrt(variance(extended) / 6 + weight**2 * variance(others) / len(others))
    centre = fmean(extended)
    assert found.weight == pytest.approx(weight)
    assert weight > 0.1
    assert found.mean == pytest.approx(fmean(corrections))
    assert (found.low, found.high) == pytest.approx((centre - half, max(centre + half, found.mean)))
    assert 0 < found.low < found.high < 1


def test_the_degrees_of_freedom_of_clusters_are_their_number_and_one_for_two_invented_ones():
    """With predictions of no weight and no others, the variance is that of the labels, clusters in place of items."""
    labels, clusters = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0], ["a", "a", "b", "b", "c", "c"]
    found = prediction_powered_mean(labels, [0.5] * 6, [0.5] * 4, level=0.3, clusters=(clusters, list("defg")))
    extended = [*labels, 1.0, 0.0]
    residuals = [(value - fmean(extended)) / 8 for value in extended]
    sums = [sum(residuals[:2]), sum(residuals[2:4]), sum(residuals[4:6]), residuals[6], residuals[7], 0, 0, 0, 0]
    half = stats.t.ppf(0.65, 4) * sqrt(sum(part**2 for part in sums) * 9 / 8)
    assert (found.low, found.high) == pytest.approx((fmean(extended) - half, fmean(extended) + half))


# Coverage and level, by the benchmarks that write the tables of the documentation


benchmark, coverage = load_benchmark("interval_coverage"), load_benchmark("audit_coverage")
cost, stopping = load_benchmark("decision_cost"), load_benchmark("stopping")
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


def test_the_tables_of_the_documentation_are_those_of_the_benchmark():
    text = benchmark.DOCUMENT.read_text(encoding="utf-8")
    for rare_losses, part in zip((False, True), text.split("### ")[1:3], strict=True):
        rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")][2:]
        assert [row[0] for row in rows] == list(KINDS)
        for row in rows[::5]:
            cell = benchmark.measure(KINDS[row[0]], 10, rare_losses=rare_losses)
            assert row[3] == f"{cell.coverage:.3f} / {cell.significant:.3f} / {cell.width:.2f}"


# The simulations behind tests/benchmarks/results: cells of audits and costs of a decision are as stored.


def lines_of(module):
    _, _, rest = module.DOCUMENT.read_text(encoding="utf-8").partition("<!-- tables -->")
    lines, _, _ = rest.partition("<!-- end of the tables -->")
    return [line for line in lines.splitlines() if line.startswith("| ")][1:]


def test_a_good_cheap_judge_narrows_the_interval_and_a_useless_one_does_not_widen_it():
    good, useless = (coverage.measure(1_000, 100, 3, cheap, 100) for cheap in ("right for 9 of 10", "always 1"))
    assert good.width < 0.85 * good.alone
    assert useless.width == pytest.approx(useless.alone)


@pytest.mark.gate
@pytest.mark.parametrize("cheap", ["lenient, +0.7 of what is missing", "strict, -0.2 for 6 of 10", "the opposite"])
@pytest.mark.parametrize("strong", [1, 4, 5])
def test_the_interval_holds_with_a_biased_judge_and_means_near_one(strong, cheap):
    cell = coverage.measure(1_000, 100, strong, cheap, 400)
    noise = 2 * (0.05 * 0.95 / 400) ** 0.5
    assert min(cell.coverage, cell.finite) >= 0.95 - 0.015 - noise


def test_the_document_holds_a_table_with_the_coverage_that_was_promised():
    lines = lines_of(coverage)
    assert len(lines) == len(coverage.STRONG) * len(coverage.CHEAP)
    shares = [float(share) for line in lines for share in re.findall(r"([01]\.\d{3})[,;]", line)]
    assert len(shares) == 2 * len(coverage.SIZES) * len(lines)
    assert min(shares) >= 0.92


def test_a_decision_costs_less_with_each_way_of_saving():
    alone, audited = cost.simulate(3, None, in_rounds=False), cost.simulate(3, 0.3, in_rounds=True)
    assert alone.own < cost.SAMPLES / 3
    assert (alone.strong, alone.wrong, audited.wrong) == (0, 0, 0)
    assert audited.strong < audited.own <= cost.SAMPLES


def test_the_document_shows_a_decision_for_less_than_a_tenth_of_the_price():
    lines = lines_of(cost)
    costs = [float(re.search(r"([\d.]+)%", line)[1]) for line in lines]
    assert costs[0] == 100
    assert costs[1] == pytest.approx(100 * cost.CALLS_OURS / cost.CALLS_RAGAS, abs=0.1)
    assert max(costs[3:]) < 10
    wrong = [int(re.findall(r"(\d+)% \|", line)[-2]) for line in lines]
    assert max(wrong) <= 5


# The simulation behind tests/benchmarks/results/stopping.md: its cells have what the document says.


def test_a_cell_counts_wrong_gates_and_samples():
    near, far = (stopping.measure(200, distance, 1, 10) for distance in (0.05, 0.15))
    assert far.mean < near.mean <= 200
    assert far.mean <= far.high
    assert far.wrong == 0


def test_the_document_holds_a_table_without_more_errors_than_promised():
    shares = [float(share) for line in lines_of(stopping) for share in re.findall(r"([\d.]+)%", line)]
    rows = len(stopping.DISTANCES) + 2 * len(stopping.DISTANCES_OF_OTHERS)
    assert len(shares) == 2 * rows * len(stopping.SIZES)
    noise = 2 * (0.05 * 0.95 / stopping.RUNS) ** 0.5
    assert max(shares) <= 100 * (0.05 + noise)
