"""Agreement with labels: equal to scikit-learn, scipy and krippendorff, never NaN, and as sure as it says."""

import itertools
import math

import krippendorff
import numpy as np
import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from langchain_rageval.statistics import krippendorff_alpha
from langchain_rageval.statistics.agreement import STATISTICS, Estimate, Tables, estimates, share, statistic

GRADES = st.integers(0, 3).map(float)
WITH_TIES = st.one_of(GRADES, st.floats(-5, 5).map(lambda value: round(value, 2)))
GRADED = st.lists(st.tuples(GRADES, GRADES), min_size=1, max_size=40)
SCORED = st.lists(st.tuples(WITH_TIES, WITH_TIES), min_size=2, max_size=40)
ANSWERED = st.lists(st.tuples(WITH_TIES, st.booleans().map(float)), min_size=1, max_size=40)
RATERS = st.integers(2, 4).flatmap(
    lambda raters: st.lists(
        st.lists(st.one_of(GRADES, st.none()), min_size=raters, max_size=raters), min_size=1, max_size=20
    )
)


def columns(pairs):
    return [score for score, _ in pairs], [label for _, label in pairs]


def constant(values):
    return len(set(values)) == 1


@pytest.mark.gate
@given(GRADED, ANSWERED)
def test_kappa_and_auc_are_those_of_scikit_learn(pairs, answered):
    sklearn = pytest.importorskip("sklearn.metrics")
    scores, labels = columns(pairs)
    plain = weighted = None
    if not constant([*scores, *labels]):
        plain = sklearn.cohen_kappa_score(scores, labels)
        weighted = sklearn.cohen_kappa_score(scores, labels, weights="quadratic", labels=[0.0, 1.0, 2.0, 3.0])
    assert near(statistic("kappa", scores, labels), plain)
    assert near(statistic("weighted_kappa", scores, labels), weighted)
    scores, labels = columns(answered)
    area = None if constant(labels) else sklearn.roc_auc_score(labels, scores)
    assert near(statistic("auc", scores, labels), area)


def near(found, expected):
    return found is expected if expected is None else found == pytest.approx(expected, abs=1e-9)


@given(SCORED)
def test_correlations_are_those_of_scipy(pairs):
    scores, labels = columns(pairs)
    known = not (constant(scores) or constant(labels))
    for name, reference in (("spearman", stats.spearmanr), ("kendall", stats.kendalltau), ("pearson", stats.pearsonr)):
        expected = pytest.approx(reference(scores, labels).statistic, abs=1e-6) if known else None
        assert statistic(name, scores, labels) == expected, name


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
@given(units=RATERS)
def test_alpha_is_that_of_krippendorff_for_any_number_of_raters(level, units):
    ratings = list(zip(*units, strict=True))
    met = [value for unit in units if sum(v is not None for v in unit) > 1 for value in unit if value is not None]
    if len(set(met)) < 2:
        assert krippendorff_alpha(ratings, level) is None
        return
    table = [[math.nan if value is None else value for value in rater] for rater in ratings]
    expected = pytest.approx(krippendorff.alpha(table, level_of_measurement=level), abs=1e-9)
    assert krippendorff_alpha(ratings, level) == expected


@given(GRADED)
def test_alpha_of_a_table_is_that_of_its_raters(pairs):
    scores, labels = columns(pairs)
    found = estimates(scores, labels, ("krippendorff", "krippendorff_ordinal"))
    for name, level in (("krippendorff", "nominal"), ("krippendorff_ordinal", "ordinal")):
        alone = krippendorff_alpha([scores, labels], level)
        assert found[name].value == (None if alone is None else pytest.approx(alone, abs=1e-9))


@given(SCORED)
def test_every_value_lies_in_its_interval_and_nothing_is_nan(pairs):
    scores, labels = columns(pairs)
    for name, found in estimates(scores, labels, [*STATISTICS]).items():
        assert (found.value is None) <= bool(found.reason)
        if found.low is not None:
            assert -1 <= found.low <= found.value <= found.high <= 1, name
        assert not any(math.isnan(number) for number in (found.value, found.low, found.high) if number is not None)


UNDEFINED = [
    ("kappa", [1, 1], [1, 1], "all scores and labels are the same value"),
    ("krippendorff", [0, 0], [0, 0], "all scores and labels are the same value"),
    ("spearman", [1, 1], [0, 1], "every score is the same"),
    ("kendall", [0, 1], [1, 1], "every label is the same"),
    ("pearson", [0.2, 0.4, 0.9], [0.1, 0.1, 0.1], "every label is the same"),  # whose mean is not 0.1
    ("pearson", [0.1, 0.1, 0.1], [0.2, 0.4, 0.9], "every score is the same"),
    ("pearson", [0, 0], [1, 1], "every score and every label is the same"),
    ("auc", [0, 1], [1, 1], "every label is the same"),
    ("kappa", [], [], "no sample has both a score and a label"),
]


@each(("name", "scores", "labels", "reason"), UNDEFINED)
def test_what_is_not_defined_has_no_value_and_says_why(name, scores, labels, reason):
    assert estimates(scores, labels, [name]) == {name: Estimate(None, reason=reason)}


def test_the_interval_is_the_same_each_time_and_another_with_another_seed():
    scores, labels = [0, 1, 2, 3, 3, 1], [0, 1, 1, 3, 2, 2]
    first = estimates(scores, labels, ["kendall"])
    assert estimates(scores, labels, ["kendall"]) == first
    assert estimates(scores, labels, ["kendall"], seed=1) != first


def test_the_interval_of_a_share_is_wilsons():
    expected = stats.binomtest(7, 9).proportion_ci(method="wilson")
    found = share([1.0] * 7 + [0.0] * 2)
    assert (found.value, found.low, found.high) == pytest.approx((7 / 9, expected.low, expected.high))


def test_values_that_are_too_many_for_a_table_are_put_together_at_next_to_no_loss():
    rng = np.random.default_rng(4)
    scores = rng.normal(size=3000)
    labels = scores + rng.normal(size=3000)
    for name, reference in (("kendall", stats.kendalltau), ("pearson", stats.pearsonr)):
        expected = pytest.approx(reference(scores, labels).statistic, abs=1e-3)
        assert statistic(name, scores.tolist(), labels.tolist()) == expected, name
    kept = Tables.of(scores.tolist(), labels.tolist())
    assert (kept.size, kept.counts.shape) == (3000, (1, 2000, 2000))


@pytest.mark.gate
def test_many_different_values_are_put_together_for_the_interval_alone():
    rng = np.random.default_rng(3)
    scores = rng.normal(size=1000)
    labels = scores + 0.3 * rng.normal(size=1000)
    found = estimates(scores.tolist(), labels.tolist(), ["spearman", "pearson"])
    assert found["spearman"].value == pytest.approx(stats.spearmanr(scores, labels).statistic)
    tau = estimates(scores.tolist(), labels.tolist(), ["kendall"])["kendall"]
    assert tau.value - tau.low == pytest.approx(tau.high - tau.value, abs=0.01)
    interval = stats.pearsonr(scores, labels).confidence_interval()
    assert (found["pearson"].low, found["pearson"].high) == pytest.approx((interval.low, interval.high), abs=0.006)


def test_the_intervals_hold_the_truth_as_often_as_they_say():
    """Four grades, of which the score follows the label in four of five."""
    rng = np.random.default_rng(5)
    labels = rng.integers(0, 4, (120, 40))
    scores = np.where(rng.random(labels.shape) < 0.8, labels, rng.integers(0, 4, labels.shape))
    held = [
        estimates(score.tolist(), label.tolist(), ["weighted_kappa"])["weighted_kappa"]
        for score, label in zip(scores.astype(float), labels.astype(float), strict=True)
    ]
    assert sum(found.low <= 0.8 <= found.high for found in held) >= 0.9 * len(held)


def drawn(name, scores, labels):
    """Return the values of a statistic in all possible resamples with two added pairs, and their probabilities."""
    rows, columns = sorted(set(scores)), sorted(set(labels))
    if "kappa" in name or "krippendorff" in name:
        rows = columns = sorted({*scores, *labels})
    cells, size, pairs = list(itertools.product(rows, columns)), len(scores), list(zip(scores, labels, strict=True))
    chances = [(pairs.count(cell) + 2 / len(cells)) / (size + 2) for cell in cells]
    draws = itertools.combinations_with_replacement(range(len(cells)), size)
    counts = np.array([np.bincount(draw, minlength=len(cells)) for draw in draws])
    tables = Tables(counts.reshape(-1, len(rows), len(columns)).astype(float), np.array(rows), np.array(columns))
    return STATISTICS[name](tables), stats.multinomial.pmf(counts, size, chances)


RESAMPLED = [
    ("kendall", [0, 1], [0, 1]),  # 31% of the resamples are defined
    ("kappa", [0], [1]),
    ("pearson", [0.1, 0.1, 0.7], [0.1, 0.1, 0.3]),  # 59%
    ("pearson", [0.1, 0.7, 0.7], [0.1, 0.1, 0.3]),  # 52%
    ("pearson", [0.3, 0.1, 0.9, 0.3, 0.1], [0.1, 0.1, 0.7, 0.7, 0.1]),
    ("weighted_kappa", [0, 1, 4, 0], [0, 0, 4, 1]),
    ("spearman", [1, 2, 7, 2, 1], [0.1, 0.3, 0.3, 0.3, 0.1]),
    ("auc", [0.2, 0.2, 0.9, 0.7, 0.2, 0.7], [0, 0, 1, 1, 0, 0]),
    ("krippendorff_ordinal", [0, 1, 3, 0], [0, 1, 3, 0]),
    ("kappa", [0, 1] * 5, [0, 1] * 5),  # full agreement in few pairs is not certain
    ("kendall", [1, 2, 7, 2, 1, 1], [0.1, 0.3, 0.1, 0.3, 0.1, 0.3]),
]


@each(("name", "scores", "labels"), RESAMPLED)
def test_the_interval_holds_95_percent_of_all_possible_resamples(name, scores, labels):
    """Pairs and clusters of one pair have the same resamples; an interval needs half of them, with two values."""
    values, chances = drawn(name, scores, labels)
    known, value = np.isfinite(values), statistic(name, scores, labels)
    numbers, chances, undefined = values[known], chances[known], chances[~known].sum()
    for clusters in (None, range(len(scores))):
        found = estimates(scores, labels, [name], clusters=clusters)[name]
        if undefined > 0.5 or np.ptp(numbers) == 0:
            assert found == Estimate(value, reason="too few different values for an interval")
            continue
        for end, tail in ((found.low, 0.025), (found.high, 0.975)):
            below = chances @ (numbers < end - 1e-9) / chances.sum()
            upto = chances @ (numbers <= end + 1e-9) / chances.sum()
            assert below - 0.01 <= tail <= upto + 0.01 or end == value  # noise of 2,000 resamples


@each("name", ["kappa", "spearman"])
def test_pairs_repeated_within_their_clusters_do_not_narrow_the_interval(name):
    scores, labels = [0, 1, 4, 1, 0, 4, 0], [0, 0, 4, 1, 1, 4, 4]
    once = estimates(scores, labels, [name], clusters=range(7))[name]
    repeated = estimates(scores * 3, labels * 3, [name], clusters=[*range(7)] * 3)[name]
    expected = pytest.approx((once.value, once.low, once.high))
    assert (repeated.value, repeated.low, repeated.high) == expected


def test_statistics_estimated_together_have_the_intervals_of_each_alone():
    scores, labels = [0, 1, 2, 1, 0, 1, 2], [0, 1, 1, 1, 0, 0, 1]
    for names in (("kappa", "weighted_kappa", "krippendorff", "krippendorff_ordinal"), ("auc", "spearman", "kendall")):
        together = estimates(scores, labels, names)
        for name in names:
            assert estimates(scores, labels, [name])[name] == together[name], name


def test_beyond_64_values_the_interval_is_that_of_groups_moved_to_the_exact_value():
    rng = np.random.default_rng(6)
    scores = rng.permutation(128)
    labels = (scores + rng.normal(0, 30, 128) > 64).astype(float).tolist()
    for name in ("auc", "pearson"):
        found = estimates(scores.tolist(), labels, [name])[name]
        grouped = estimates((scores // 2).tolist(), labels, [name])[name]
        moved = found.value - grouped.value
        assert (found.low, found.high) == pytest.approx((grouped.low + moved, grouped.high + moved), abs=1e-12)
        assert abs(moved) > 1e-6


def test_values_that_no_pair_has_change_no_statistic():
    """Resamples lack some of the values; what is constant in them has no correlation, however it is rounded."""
    constant = [([0.1, 0.7, 0.3] * times, [0.1] * 3 * times) for times in range(1, 7)]
    for scores, labels in [*constant, ([0.1], [0.1]), ([0.1, 0.3, 0.3, 0.7], [0.3, 0.3, 0.1, 0.1])]:
        for one, other in ((scores, labels), (labels, scores)):
            exact = Tables.of(one, other)
            more = (sorted({*values.tolist(), 0.2, 0.9}) for values in (exact.scores, exact.labels))
            rows, columns = map(np.array, more)
            counts = np.zeros((1, rows.size, columns.size))
            counts[0][np.ix_(np.isin(rows, exact.scores), np.isin(columns, exact.labels))] = exact.counts[0]
            for name in STATISTICS.keys() - {"auc"}:  # which takes two labels
                found, expected = STATISTICS[name](Tables(counts, rows, columns)), STATISTICS[name](exact)
                assert found == pytest.approx(expected, nan_ok=True), (name, one, other)


@pytest.mark.parametrize("level", ["nominal", "ordinal", "interval"])
def test_alpha_of_equal_ratings_is_not_defined_however_they_are_rounded(level):
    for value, times in itertools.product((0.1, 0.3, 0.7, 2 / 3), range(1, 12)):
        ratings = [[*[value] * times, 0.9], [*[value] * times, None]]  # a single rating does not count
        assert krippendorff_alpha(ratings, level) is None, (value, times)
    assert krippendorff_alpha([], level) is None


def test_an_estimate_reads_as_its_value_and_interval_or_as_why_there_is_none():
    assert str(Estimate(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert str(Estimate(None, reason="every label is the same")) == "(every label is the same)"
