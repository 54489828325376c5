"""Agreement with labels in every form, published correlations, and `calibrate`, which estimates the mean label."""

import gzip
import json
import math
import random

import numpy as np
import pandas
import pytest
from helpers.each import each, error_of
from helpers.reports import failed, report_of, row, scored, unscored
from helpers.stored import FIXTURES
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Report, agreement, calibrate
from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.statistics.agreement import Estimate, statistic

BINARY = {"accuracy", "kappa", "krippendorff", "auc", "spearman", "kendall"}
ORDINAL = {"exact", "within_one", "kappa", "weighted_kappa", "krippendorff", "spearman", "kendall", "pearson"}
PAIRWISE = {"exact", "accuracy", "kappa", "weighted_kappa", "krippendorff", "spearman", "kendall"}


@pytest.mark.parametrize(
    ("kind", "names", "values"),
    [("binary", BINARY, [0, 1]), ("ordinal", ORDINAL, [0, 2]), ("pairwise", PAIRWISE, [-1, 1])],
)
def test_each_kind_has_its_statistics_and_says_which_are_of_another_kind(kind, names, values):
    found = agreement(values * 3, values * 3, kind)
    assert set(found) == names
    assert all(isinstance(estimate, Estimate) and estimate.value == 1 for estimate in found.values())
    others = {found[name] for name in (BINARY | ORDINAL | PAIRWISE) - {*names, "pearson"}}
    assert others == {Estimate(None, reason=f"not counted for {kind} labels")}
    with pytest.raises(KeyError):
        found["kapa"]


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0]), st.booleans()), min_size=1, max_size=30))
def test_accuracy_counts_scores_from_the_threshold_on_as_1(pairs):
    scores, labels = zip(*pairs, strict=True)
    right = sum((score >= 0.5) == label for score, label in pairs)
    assert agreement(scores, labels)["accuracy"].value == pytest.approx(right / len(pairs))


def test_another_threshold_moves_accuracy_and_not_auc():
    scores, labels = [0.9, 0.6, 0.6, 0.2], [1, 0, 0, 0]
    low, high = agreement(scores, labels), agreement(scores, labels, threshold=0.7)
    assert (low["accuracy"].value, high["accuracy"].value) == (0.5, 1.0)
    assert low["auc"] == high["auc"]


def test_rounding_errors_do_not_keep_a_score_below_its_threshold():
    assert agreement([0.1 + 0.2, 0.7 + 0.1], [True, True], threshold=0.3)["accuracy"].value == 1.0
    assert agreement([1 - 0.9], [True], threshold=0.1)["accuracy"].value == 1.0


def test_scores_of_a_report_and_labels_are_matched_by_sample_id():
    report = report_of(scored(1.0), scored(0.0), unscored(), failed(), scored(1.0))
    labels = {"q-1": False, "q-0": True, "q-2": True, "q-3": False, "elsewhere": True}
    found = agreement(report.scores("faithfulness"), labels)
    assert (found.pairs, found.unscored, found.unlabelled, found["accuracy"].value) == (2, 2, 1, 1.0)
    notes = ["1 labels have ids without a score: 'elsewhere'.", "Left out: 2 labelled samples without a score."]
    assert found.notes == notes


@each(
    "scores",
    [
        [1.0, None, 0.0],
        [True, None, False],
        [scored(1.0), unscored(), scored(0.0)],
        np.array([1.0, math.nan, 0.0]),
        pandas.Series([1.0, None, 0.0]),
        (score for score in (1, None, 0)),
    ],
)
def test_scores_come_in_every_form(scores):
    found = agreement(scores, [1, 1, 0])
    assert (found.pairs, found.unscored, found["accuracy"].value) == (2, 1, 1.0)


def test_grades_are_compared_with_scores_stretched_to_their_scale():
    scores, labels = [0.0, 0.3, 0.7, 1.0, 0.5], [0, 1, 3, 3, 2]
    found = agreement(scores, labels, "ordinal", scale=(0, 3))
    assert (found["exact"].value, found["within_one"].value) == (0.8, 1.0)
    expected = statistic("weighted_kappa", [0, 1, 2, 3, 2], labels)
    assert found["weighted_kappa"].value == pytest.approx(expected)
    assert found["spearman"] == agreement(scores, labels, "ordinal")["spearman"]


@each(("scores", "labels"), [([0.1, 0.6, 0.9], [0, 1, 3]), ([0, 1, 1], [0, 3, 3])])
def test_scores_on_another_scale_than_the_grades_are_ranked_and_not_matched(scores, labels):
    """Of scores from 0 to 1, 1 is the highest score, not the grade 1."""
    found = agreement(scores, labels, "ordinal")
    assert found["spearman"].value == pytest.approx(1.0)
    remedy = "pass scale=(0, 3) with the lowest and highest grade"
    unmatched = Estimate(None, reason=f"scores and labels are not whole grades on one scale: {remedy}")
    assert {found[name] for name in ("exact", "within_one", "weighted_kappa", "krippendorff")} == {unmatched}


def test_raw_grades_are_compared_as_they_are():
    grades = [3, 2, 1, 0] * 8
    found = agreement(grades, grades, "ordinal", scale=(0, 3), raw_grades=True)
    assert found["exact"].value == found["weighted_kappa"].value == 1.0
    assert found["spearman"].value == pytest.approx(1.0)
    assert found.estimates == agreement(grades, grades, "ordinal").estimates
    means = agreement([2.6, 1.4, 0.2], [3, 1, 1], "ordinal", scale=(0, 4), raw_grades=True)
    assert (means["exact"].value, means["within_one"].value) == (pytest.approx(2 / 3), 1.0)


def test_a_scale_says_whether_1_is_the_highest_score_or_a_grade():
    grades = [0, 1, 1], [0, 3, 3], "ordinal"
    assert agreement(*grades, scale=(0, 3))["exact"].value == 1.0
    assert agreement(*grades, scale=(0, 3), raw_grades=True)["exact"].value == pytest.approx(1 / 3)


@each(
    ("scores", "labels", "raw", "what", "remedy"),
    [
        ([3, 2, 1, 0], [3, 2, 1, 0], False, "scores that scale maps to grades must be from 0 to 1, got 3", "raw"),
        ([-0.5, 1], [0, 3], False, "scores that scale maps to grades must be from 0 to 1, got -0.5", "raw"),
        ([4, 1], [3, 1], True, "raw grades must be from 0 to 3, got 4", "grade"),
        ([1, 0.5], [5, 2], False, "labels must be from 0 to 3, got 5", "grade of the labels"),
    ],
)
def test_values_outside_their_scale_are_refused(scores, labels, raw, what, remedy):
    remedies = {"raw": "pass raw_grades=True if the scores are grades from 0 to 3"}
    remedies |= {end: f"pass the lowest and the highest {end} as scale" for end in ("grade", "grade of the labels")}
    error = error_of(ConfigError, agreement, scores, labels, "ordinal", scale=(0, 3), raw_grades=raw)
    assert str(error) == f"{what}: {remedies[remedy]}"


def test_a_score_of_zero_is_half_right_where_the_label_is_not_zero():
    found = agreement([1, 0, -1, 0], [1, 1, 1, 0], "pairwise")
    assert (found["accuracy"].value, found["exact"].value) == (0.5, 0.5)
    assert agreement([1, 0], [0, 0], "pairwise")["accuracy"] == Estimate(None, reason="every label is a tie")


def test_without_a_pair_every_statistic_says_so():
    for kind in ("binary", "ordinal", "pairwise"):
        reasons = {estimate.reason for estimate in agreement([None], [1], kind).values()}
        assert reasons == {"no sample has both a score and a label"}


NO_SCALE = "needs the scale of the grades"


@each(
    ("arguments", "options", "message"),
    [
        (([1], [1, 0]), {}, "of the same samples, got 1 and 2 values: pass both by sample id"),
        (([1], [2]), {}, "a binary label is 0 or 1, True or False, got 2: pass kind='ordinal' for grades"),
        (([0.5], [1], "pairwise"), {}, "a preference is -1, 0 or 1, got 0.5: take the sign of a difference"),
        (([1], [1], "nominal"), {}, "kind must be one of binary, ordinal, pairwise, got 'nominal'"),
        (([1], ["да"]), {}, "numbers, True or False, got 'да': load_labels converts words"),
        (([math.inf], [1]), {}, "finite numbers, got inf"),
        (({"a": 1}, [1]), {}, "both by sample id, or both in order"),
        (({"a": 1}, {"b": 1}), {}, "no id is in both scores and labels; scores have 'a', labels 'b'"),
        (([1], [1], "ordinal"), {"scale": (3, 0)}, r"such as \(0, 3\), got \(3, 0\)"),
        (([1], [1]), {"scale": (0, 3)}, "of ordinal grades"),
        (([1], [1]), {"threshold": math.nan}, "threshold is a number, got nan"),
        (([1], [1], "ordinal"), {"raw_grades": True}, rf"^raw_grades {NO_SCALE}: pass scale=\(0, 3\)"),
    ],
)
def test_input_that_cannot_be_compared_raises(arguments, options, message):
    with pytest.raises(ConfigError, match=message):
        agreement(*arguments, **options)


def test_it_shows_each_statistic_with_its_interval():
    found = agreement([1, 0, None], [1, 1, 1])
    assert repr(found).splitlines()[:2] == ["Agreement with binary labels on 2 pairs", f"accuracy {found['accuracy']}"]
    assert repr(found).splitlines()[-1] == "Note: Left out: 1 labelled sample without a score."
    assert "<td>auc</td><td>–</td><td>–</td><td>every label is the same</td>" in found._repr_html_()


# RAGChecker's meta-evaluation: 86 of its 280 pairs, each judged by two people


def ragchecker(aspect):
    """Difference of RAGChecker's scores, and what each annotator preferred, over both annotators."""
    lines = gzip.decompress((FIXTURES / "ragchecker" / "pairs.jsonl.gz").read_bytes()).decode().splitlines()
    pairs = [json.loads(line) for line in lines]
    name = f"{aspect}_label"
    judged = [pair["ragchecker_2"][name] - pair["ragchecker_1"][name] for pair in pairs for _ in range(2)]
    return judged, [label for pair in pairs for label in pair[f"human_{aspect}"]]


@pytest.mark.parametrize(
    ("aspect", "pearson", "spearman"),
    [("correctness", 40.7, 38.7), ("completeness", 52.1, 55.0), ("overall", 56.2, 54.4)],
)
def test_published_correlations_of_ragchecker_with_people_are_reproduced(aspect, pearson, spearman):
    found = agreement(*ragchecker(aspect), kind="ordinal")
    assert found.pairs == 172
    assert [round(100 * found[name].value, 1) for name in ("pearson", "spearman")] == [pearson, spearman]
    assert found["pearson"].low > 0.2


def test_turns_of_conversations_are_no_independent_pairs():
    """Intervals of agreement count the units of `report.scores`, or those that are given."""
    rng, chats = random.Random(3), {True: [], False: []}
    for _ in range(30):
        right, label = rng.random() < 0.7, rng.random() < 0.6
        for turns in chats.values():
            turns += [(float(label == right), float(label))] * 5
    given, labels = zip(*chats[True], strict=True)
    rows = [row(n, scored(own), id=str(n), metadata={"conversation": f"c{n // 5}"}) for n, own in enumerate(given)]
    scores, labels = Report(rows).scores("faithfulness"), {str(n): label for n, label in enumerate(labels)}
    together = agreement(scores, labels)
    alone = agreement(dict(scores), labels)
    assert together["kappa"].value == alone["kappa"].value
    for name in ("accuracy", "kappa", "krippendorff", "spearman", "auc"):
        widths = [found[name].high - found[name].low for found in (together, alone)]
        assert 1.7 < widths[0] / widths[1] < 3  # five equal turns count as one: the root of 5 is 2.2
    assert together.notes == ["150 pairs are of 30 independent units, which the intervals count."]
    values = list(scores.values()), list(labels.values())
    assert dict(agreement(*values, cluster=[n // 5 for n in range(150)])) == dict(together)
    assert dict(agreement(dict(scores), labels, cluster=scores.units)) == dict(together)
    for wrong in ([1, 2], {"0": 1}):
        with pytest.raises(ConfigError, match="pass one cluster for each score"):
            agreement(*values, cluster=wrong)


# calibrate: the estimate of ppi-python, coverage up to means of 0.99, and input that is refused


def judged_samples(samples=1000, right=0.85, seed=0, share=0.7):
    """What people and a judge say of samples, of which people find a share good."""
    rng = np.random.default_rng(seed)
    human = rng.random(samples) < share
    return human.astype(float), np.where(rng.random(samples) < right, human, ~human).astype(float)


def parted(human, judge, labelled=150):
    return list(zip(human[:labelled].tolist(), judge[:labelled].tolist(), strict=True)), judge[labelled:].tolist()


def test_pairs_may_be_the_rows_of_an_array():
    pairs, others = parted(*judged_samples())
    assert calibrate(np.array(pairs), np.array(others)) == calibrate(pairs, others)


@pytest.mark.gate
def test_estimate_and_interval_are_near_those_of_ppi_python_which_has_one_weight_for_all():
    ppi = pytest.importorskip("ppi_py")
    human, judge = judged_samples()
    found = calibrate(*parted(human, judge), level=0.9)
    arrays = human[:150], judge[:150], judge[150:]
    assert found.mean == pytest.approx(ppi.ppi_mean_pointestimate(*arrays)[0], abs=0.002)
    low, high = ppi.ppi_mean_ci(*arrays, alpha=0.1)
    assert (found.low, found.high) == pytest.approx((low[0], high[0]), abs=0.01)
    assert (found.classical_low, found.classical_high) == bounded_mean_interval(human[:150].tolist(), 0.9)
    assert (found.classical_mean, found.judge_mean) == pytest.approx((human[:150].mean(), judge.mean()))
    assert (found.level, found.labelled, found.unlabelled, found.left_out) == (0.9, 150, 850, 0)


def test_a_good_judge_narrows_the_interval_and_a_constant_one_has_no_effect():
    human, judge = judged_samples(right=0.95)
    good, constant = calibrate(*parted(human, judge)), calibrate(*parted(human, np.ones(1000)))
    assert good.high - good.low < 0.75 * (good.classical_high - good.classical_low)
    assert constant.mean == pytest.approx(constant.classical_mean)
    assert (constant.low, constant.high) == pytest.approx((constant.classical_low, constant.classical_high), abs=0.01)
    assert constant.judge_mean == 1.0


def test_labels_on_another_scale_are_estimated_on_that_scale():
    human, judge = judged_samples(share=0.95)
    expected = calibrate(*parted(human, judge))
    found = calibrate(*parted(1 + 4 * human, 1 + 4 * judge), scale=(1, 5))
    for name in ("mean", "low", "high", "classical_mean", "classical_low", "classical_high", "judge_mean"):
        assert getattr(found, name) == pytest.approx(1 + 4 * getattr(expected, name))


def test_samples_without_a_score_or_a_label_are_counted_and_left_out():
    labelled, unlabelled = parted(*judged_samples())
    scores = [scored(value) for value in unlabelled]
    found = calibrate([*labelled, (1, unscored()), (None, 1.0)], [*scores, unscored()])
    assert (found.labelled, found.unlabelled, found.left_out) == (150, 850, 3)
    assert found.mean == calibrate(labelled, unlabelled).mean
    assert "Left out: 3 samples without a score or a label" in repr(found)


ENDS = "the lowest and the highest possible label, such as"


@each(
    ("labelled", "unlabelled", "options", "message"),
    [
        ([(1, 1)] * 19, [1, 0], {}, "at least 20 labelled samples, a random part of all, got 19: label 1 more"),
        ([(1, 1)] * 100, [None, 1], {}, "calibrate takes at least 2 scores of unlabelled samples, got 1"),
        ([1.0] * 100, [1, 0], {}, "labelled must be pairs of a human label and a judge's score, got 1.0"),
        ([(1, 1)] * 100, [1, 0], {"level": 95}, "between 0 and 1, such as 0.95; got 95"),
        ([(1, 1)] * 99 + [(4, 1)], [1, 0], {}, rf"^labels must be from 0 to 1, got 4: pass {ENDS} scale=\(1, 5\)$"),
        ([(1, 1)] * 100, [1, 0], {"scale": (5, 1)}, rf"^scale is {ENDS} \(1, 5\); got \(5, 1\)$"),
    ],
)
def test_input_that_would_mislead_raises(labelled, unlabelled, options, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(labelled, unlabelled, **options)


def test_it_shows_the_labels_alone_beside_both():
    found = calibrate(*parted(*judged_samples()))
    told = repr(found).splitlines()
    assert told[0] == "Estimated mean human label from 150 labels and 850 more scores, 95% intervals"
    assert told[1] == f"labels and judge {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    assert "labels alone" in found._repr_html_()


def test_units_widen_the_intervals_and_missing_values_keep_their_place():
    human, judge = judged_samples(200)
    pairs, others = parted(np.repeat(human, 5), np.repeat(judge, 5))
    units = [n // 5 for n in range(1000)]
    alone, together = calibrate(pairs, others), calibrate(pairs, others, clusters=(units[:150], units[150:]))
    assert together.high - together.low > 1.6 * (alone.high - alone.low)
    assert together.classical_high - together.classical_low > 1.6 * (alone.classical_high - alone.classical_low)
    gaps = calibrate([(None, 1.0), *pairs], [None, *others], clusters=([9999, *units[:150]], [9999, *units[150:]]))
    assert (gaps.mean, gaps.low, gaps.high) == (together.mean, together.low, together.high)
    with pytest.raises(ConfigError, match="one value for each of the 150 labelled and of the 850 other samples"):
        calibrate(pairs, others, clusters=(units, units))
