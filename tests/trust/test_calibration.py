"""calibrate: equal to ppi-python, honest when the judge is not, and refused when too little is labelled."""

import sys

import numpy as np
import pytest
from helpers.reports import scored, unscored
from ppi_py import classical_mean_ci, ppi_mean_ci, ppi_mean_pointestimate

from langchain_rageval import ConfigError, calibrate


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


def test_the_interval_is_that_of_ppi_python():
    human, judge = judged()
    found = calibrate(*parted(human, judge), level=0.9)
    arrays = human[:150], judge[:150], judge[150:]
    low, high = ppi_mean_ci(*arrays, alpha=0.1)
    assert (found.mean, found.low, found.high) == pytest.approx((ppi_mean_pointestimate(*arrays)[0], low[0], high[0]))
    alone = classical_mean_ci(human[:150], alpha=0.1)
    assert (found.classical_low, found.classical_high) == pytest.approx(alone)
    assert (found.classical_mean, found.judge_mean) == pytest.approx((human[:150].mean(), judge.mean()))
    assert (found.level, found.labelled, found.unlabelled, found.left_out) == (0.9, 150, 850, 0)


def test_a_good_judge_narrows_the_interval_and_a_constant_one_changes_nothing():
    human, judge = judged(right=0.95)
    good, blind = calibrate(*parted(human, judge)), calibrate(*parted(human, np.ones(1000)))
    assert good.high - good.low < 0.75 * (good.classical_high - good.classical_low)
    assert (blind.mean, blind.low, blind.high) == (blind.classical_mean, blind.classical_low, blind.classical_high)
    assert blind.judge_mean == 1.0


def test_the_interval_contains_the_true_mean_even_with_a_biased_judge():
    """A judge that calls half of the bad answers good, 200 times anew."""
    held = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        human = (rng.random(1000) < 0.6).astype(float)
        judge = np.where(rng.random(1000) < 0.5, 1.0, human)
        found = calibrate(*parted(human, judge, 120))
        held.append(found.low <= 0.6 <= found.high)
        assert found.judge_mean > 0.7
    assert 0.9 <= np.mean(held) <= 0.995


def test_samples_without_a_score_or_a_label_are_counted_and_left_out():
    labelled, unlabelled = parted(*judged())
    scores = [scored(value) for value in unlabelled]
    found = calibrate([*labelled, (1, unscored()), (None, 1.0)], [*scores, unscored()])
    assert (found.labelled, found.unlabelled, found.left_out) == (150, 850, 3)
    assert found.mean == calibrate(labelled, unlabelled).mean
    assert "3 samples without a score or a label are left out" in repr(found)


@pytest.mark.parametrize(
    ("labelled", "unlabelled", "options", "message"),
    [
        ([(1, 1)] * 99, [1, 0], {}, "at least 100 labelled samples, a random part of all, got 99: label 1 more"),
        ([(1, 1)] * 100, [None, 1], {}, "calibrate takes at least 2 scores of unlabelled samples, got 1"),
        ([1.0] * 100, [1, 0], {}, "labelled must be pairs of a human label and a judge's score, got 1.0"),
        ([(1, 1)] * 100, [1, 0], {"level": 95}, "between 0 and 1, such as 0.95; got 95"),
    ],
)
def test_input_that_would_mislead_raises(labelled, unlabelled, options, message):
    with pytest.raises(ConfigError, match=message):
        calibrate(labelled, unlabelled, **options)


def test_without_ppi_python_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ppi_py", None)
    with pytest.raises(ConfigError, match=r'pip install "langchain-rageval\[stats\]"'):
        calibrate(*parted(*judged()))


def test_it_shows_the_labels_alone_beside_both():
    found = calibrate(*parted(*judged()))
    told = repr(found).splitlines()
    assert told[0] == "Estimated mean human label from 150 labels and 850 more scores, 95% intervals"
    assert told[1] == f"labels and judge {found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
    assert "labels alone" in found._repr_html_()
