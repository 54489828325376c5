"""calibrate: the estimate of ppi-python, coverage up to means of 0.99, and input that is refused."""

import numpy as np
import pytest
from helpers.each import each
from helpers.reports import scored, unscored

from langchain_rageval import ConfigError, calibrate
from langchain_rageval.statistics import bounded_mean_interval


def judged(samples=1000, right=0.85, seed=0, share=0.7):
    """What people and a judge say of samples, of which people find a share good."""
    rng = np.random.default_rng(seed)
    human = rng.random(samples) < share
    return human.astype(float), np.where(rng.random(samples) < right, human, ~human).astype(float)


def parted(human, judge, labelled=150):
    return list(zip(human[:labelled].tolist(), judge[:labelled].tolist(), strict=True)), judge[labelled:].tolist()


def test_pairs_may_be_the_rows_of_an_array():
    human, judge = judged()
    pairs, others = parted(human, judge)
    assert calibrate(np.array(pairs), np.array(others)) == calibrate(pairs, others)


@pytest.mark.gate
def test_estimate_and_interval_are_near_those_of_ppi_python_which_has_one_weight_for_all():
    ppi = pytest.importorskip("ppi_py")
    human, judge = judged()
    found = calibrate(*parted(human, judge), level=0.9)
    arrays = human[:150], judge[:150], judge[150:]
    assert found.mean == pytest.approx(ppi.ppi_mean_pointestimate(*arrays)[0], abs=0.002)
    low, high = ppi.ppi_mean_ci(*arrays, alpha=0.1)
    assert (found.low, found.high) == pytest.approx((low[0], high[0]), abs=0.01)
    assert (found.classical_low, found.classical_high) == bounded_mean_interval(human[:150].tolist(), 0.9)
    assert (found.classical_mean, found.judge_mean) == pytest.approx((human[:150].mean(), judge.mean()))
    assert (found.level, found.labelled, found.unlabelled, found.left_out) == (0.9, 150, 850, 0)


def test_a_good_judge_narrows_the_interval_and_a_constant_one_has_no_effect():
    human, judge = judged(right=0.95)
    good, constant = calibrate(*parted(human, judge)), calibrate(*parted(human, np.ones(1000)))
    assert good.high - good.low < 0.75 * (good.classical_high - good.classical_low)
    assert constant.mean == pytest.approx(constant.classical_mean)
    assert (constant.low, constant.high) == pytest.approx((constant.classical_low, constant.classical_high), abs=0.01)
    assert constant.judge_mean == 1.0


def test_labels_on_another_scale_are_estimated_on_that_scale():
    human, judge = judged(share=0.95)
    expected = calibrate(*parted(human, judge))
    found = calibrate(*parted(1 + 4 * human, 1 + 4 * judge), scale=(1, 5))
    for name in ("mean", "low", "high", "classical_mean", "classical_low", "classical_high", "judge_mean"):
        assert getattr(found, name) == pytest.approx(1 + 4 * getattr(expected, name))


def test_samples_without_a_score_or_a_label_are_counted_and_left_out():
    labelled, unlabelled = parted(*judged())
    scores = [scored(value) for value in unlabelled]
    found = calibrate([*labelled, (1, unscored()), (None, 1.0)], [*scores, unscored()])
    assert (found.labelled, found.unlabelled, found.left_out) == (150, 850, 3)
    assert found.mean == calibrate(labelled, unlabelled).mean
    assert "Left out: 3 samples without a score or a label" in repr(found)


@each(
    ("labelled", "unlabelled", "options", "message"),
    [
        ([(1, 1)] * 19, [1, 0], {}, "at least 20 labelled samples, a random part of all, got 19: label 1 more"),
        ([(1, 1)] * 100, [None, 1], {}, "calibrate takes at least 2 scores of unlabelled samples, got 1"),
        ([1.0] * 100, [1, 0], {}, "labelled must be pairs of a human label and a judge's score, got 1.0"),
        ([(1, 1)] * 100, [1, 0], {"level": 95}, "between 0 and 1, such as 0.95; got 95"),
        (
            [(1, 1)] * 99 + [(4, 1)],
            [1, 0],
            {},
            r"^labels must be from 0 to 1, got 4: pass the lowest and the highest possible label, such as "
            r"scale=\(1, 5\)$",
        ),
        (
            [(1, 1)] * 100,
            [1, 0],
            {"scale": (5, 1)},
            r"^scale is the lowest and the highest possible label, such as \(1, 5\); got \(5, 1\)$",
        ),
    ],
)
def test_input_that_would_mislead_raises(labelled, unlabelled, options, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(labelled, unlabelled, **options)


def test_it_shows_the_labels_alone_beside_both():
    found = calibrate(*parted(*judged()))
    told = repr(found).splitlines()
    assert told[0] == "Estimated mean human label from 150 labels and 850 more scores, 95% intervals"
    assert told[1] == f"labels and judge {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    assert "labels alone" in found._repr_html_()


def test_units_widen_the_intervals_and_missing_values_keep_their_place():
    human, judge = judged(200)
    pairs, others = parted(np.repeat(human, 5), np.repeat(judge, 5))
    units = [n // 5 for n in range(1000)]
    alone, together = calibrate(pairs, others), calibrate(pairs, others, clusters=(units[:150], units[150:]))
    assert together.high - together.low > 1.6 * (alone.high - alone.low)
    assert together.classical_high - together.classical_low > 1.6 * (alone.classical_high - alone.classical_low)
    gaps = calibrate([(None, 1.0), *pairs], [None, *others], clusters=([9999, *units[:150]], [9999, *units[150:]]))
    assert (gaps.mean, gaps.low, gaps.high) == (together.mean, together.low, together.high)
    with pytest.raises(ConfigError, match="one value for each of the 150 labelled and of the 850 other samples"):
        calibrate(pairs, others, clusters=(units, units))
