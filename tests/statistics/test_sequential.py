"""Means over time: confidence sequences at any stopping time, alarms about drift, and places of changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import f, kstwobign

from langchain_rageval.statistics import bounded_mean_interval
from langchain_rageval.statistics.sequential import ConfidenceSequence, DriftDetector, change_points, spread_of_groups


def scores_like_faithfulness(rng, size, mean):
    """Return values of which many are exactly 1, the others shares of up to five statements."""
    ones = (mean - 0.4) / 0.6
    counts = rng.integers(1, 6, size=size)
    return np.where(rng.random(size) < ones, 1.0, rng.binomial(counts, 0.4) / counts)


def stop_at(values, threshold, error=0.05):
    """Return the number of values after which a threshold is decided, and whether the mean exceeds it."""
    sequence = ConfidenceSequence(len(values), error, watched=[threshold])
    for value in values:
        sequence.add(value)
        if sequence.exceeds(threshold) or sequence.stays_below(threshold):
            break
    return sequence.count, sequence.exceeds(threshold)


def decided_after(values, candidate, error):
    """Return after how many values the bettors of one side have 1 / error times their first capital, one by one.

    They bet on higher and on lower values than the candidate mean would leave, each with a share of its capital.
    """
    size, total = len(values), 0.0
    shares = (0.8, 0.4, 0.2) if size <= 300 else (0.8, 0.4, 0.2, 0.1)
    higher, lower = [1.0] * len(shares), [1.0] * len(shares)
    for count, value in enumerate(values, 1):
        rest = (size * candidate - total) / (size - count + 1)
        if not 0 <= rest <= 1:
            return count - 1
        for number, share in enumerate(shares):
            higher[number] *= 1 + share / rest * (value - rest) if rest else 1
            lower[number] *= 1 - share / (1 - rest) * (value - rest) if rest < 1 else 1
        total += value
        if max(sum(higher), sum(lower)) / len(shares) >= 1 / error:
            return count
    return size


@pytest.mark.parametrize("error", [0.05, 0.01, 0.2])
@pytest.mark.parametrize("threshold", [0.2, 0.45, 0.71, 0.9, 0.97])
def test_a_candidate_is_ruled_out_when_one_side_has_multiplied_its_capital_by_one_over_the_error(error, threshold):
    values = np.random.default_rng(5).permutation(scores_like_faithfulness(np.random.default_rng(4), 300, 0.7))
    assert stop_at(values, threshold, error)[0] == decided_after(values.tolist(), threshold, error)


def test_the_interval_ends_within_a_thousandth_beyond_what_the_bettors_have_ruled_out():
    values = np.random.default_rng(5).permutation(scores_like_faithfulness(np.random.default_rng(4), 300, 0.7)).tolist()
    sequence = ConfidenceSequence(300)
    for value in values[:120]:
        sequence.add(value)
        if sequence.count % 15 == 0:
            low, high = sequence.interval
            for outside, inside in ((low - 1e-6, low + 0.0011), (high + 1e-6, high - 0.0011)):
                assert not 0 <= outside <= 1 or decided_after(values, outside, 0.05) <= sequence.count
                assert decided_after(values, inside, 0.05) > sequence.count


@pytest.mark.parametrize("threshold", [0.6, 0.66, 0.74])
def test_more_bettors_with_smaller_shares_judge_a_larger_set(threshold, monkeypatch):
    monkeypatch.setattr("langchain_rageval.statistics.sequential._GRID", 2)
    values = scores_like_faithfulness(np.random.default_rng(4), 1000, 0.7)
    assert stop_at(values, threshold)[0] == decided_after(values.tolist(), threshold, 0.05)


@pytest.mark.parametrize("threshold", [0.5, 0.62])
def test_values_on_another_scale_have_the_same_interval_there(threshold):
    values = scores_like_faithfulness(np.random.default_rng(4), 90, 0.7)
    plain = ConfidenceSequence(100, 0.2, watched=[threshold])
    scaled = ConfidenceSequence(100, 0.2, low=-1.0, high=3.0, watched=[4 * threshold - 1])
    for value in values:
        plain.add(value)
        scaled.add(4 * value - 1)
        assert scaled.interval == pytest.approx([4 * end - 1 for end in plain.interval])
        assert scaled.mean == pytest.approx(4 * plain.mean - 1)
        assert scaled.exceeds(4 * threshold - 1) == plain.exceeds(threshold)
        assert scaled.stays_below(4 * threshold - 1) == plain.stays_below(threshold)
    assert plain.exceeds(threshold)


def test_the_two_ends_have_errors_of_their_own():
    for value, error, error_above in ((1.0, 0.05, 0.001), (0.0, 0.001, 0.05)):
        sequence = ConfidenceSequence(1000, error, error_above, watched=[0.5])
        for _ in range(8):
            sequence.add(value)
        assert sequence.exceeds(0.5) == (value == 1.0)
        assert sequence.stays_below(0.5) == (value == 0.0)
        assert not sequence.exceeds(0.5, 0.001)
        opposite = ConfidenceSequence(1000, error_above, error, watched=[0.5])
        for _ in range(8):
            opposite.add(value)
        assert not opposite.exceeds(0.5)
        assert not opposite.stays_below(0.5)


@pytest.mark.parametrize("unscored", [0.0, 0.2])
def test_the_interval_holds_the_mean_of_all_scored_values_at_every_time(unscored):
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(60):
        values = rng.permutation(scores_like_faithfulness(rng, 200, 0.7))
        scored = rng.random(len(values)) >= unscored
        truth, sequence, outside = values[scored].mean(), ConfidenceSequence(len(values)), False
        for value, has_score in zip(values, scored, strict=True):
            sequence.add(value) if has_score else sequence.skip()
            low, high = sequence.interval
            outside = outside or not low - 1e-9 <= truth <= high + 1e-9
        missed += outside
    assert missed <= 6


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_after_all_values_the_interval_is_their_mean(values):
    sequence = ConfidenceSequence(len(values))
    for value in values:
        sequence.add(value)
    mean = sum(values) / len(values)
    assert sequence.interval == pytest.approx((mean, mean), abs=2e-9)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=40), st.integers(0, 60))
def test_the_interval_only_narrows_and_stays_within_what_the_rest_may_be(values, more):
    sequence = ConfidenceSequence(len(values) + more, low=-1, high=1)
    before = sequence.interval
    assert before == (-1.0, 1.0)
    for value in values:
        sequence.add(value)
        low, high = sequence.interval
        assert before[0] - 1e-9 <= low <= high <= before[1] + 1e-9
        before = low, high
    assert (sum(values) - more) / (len(values) + more) <= low + 1e-9


def test_twelve_of_twenty_zeros_decide_a_gate_by_arithmetic_alone():
    """With 8 values left, the mean of 20 is at most .4."""
    sequence = ConfidenceSequence(20, error=1e-6, watched=[0.41])
    for _ in range(12):
        sequence.add(0.0)
    assert sequence.stays_below(0.41)


@pytest.mark.parametrize("threshold", [0.25, 0.5, 0.75])
def test_a_gate_on_the_mean_itself_is_decided_in_its_favour_when_all_values_are_known(threshold):
    sequence = ConfidenceSequence(5, error=1e-6, watched=[threshold])
    for value in [threshold] * 4:
        sequence.add(value)
    assert not sequence.exceeds(threshold)
    sequence.skip()  # the fifth has no value
    assert sequence.exceeds(threshold)
    assert not sequence.stays_below(threshold)


@pytest.mark.parametrize("value", [1.0, 0.0])
def test_the_interval_excludes_the_watched_means_that_are_ruled_out(value):
    watched = np.linspace(0.3, 0.7, 2001).tolist()
    sequence = ConfidenceSequence(1000, watched=watched)
    for _ in range(9):
        sequence.add(value)
        low, high = sequence.interval
        assert low >= max(filter(sequence.exceeds, watched), default=0.0)
        assert high <= min(filter(sequence.stays_below, watched), default=1.0)


def test_an_item_without_a_value_that_ends_the_set_settles_what_was_watched():
    told = ConfidenceSequence(3, watched=[0.5])
    told.add(1.0)
    told.add(0.5)
    assert not told.exceeds(0.5)
    told.skip()
    assert (told.exceeds(0.5), told.interval) == (True, (0.75, 0.75))


def shares(rng, size, mean):
    """Return values like shares of supported statements: 1, or a multiple of a quarter."""
    return np.where(rng.random(size) < 2 * mean - 1, 1.0, rng.integers(0, 5, size) / 4)


def alarm_of(baseline, values, per_day=100, **options):
    detector = DriftDetector({None: list(baseline)}, **options)
    for number, value in enumerate(values):
        if detector.add(float(value), period=number // per_day):
            break
    return detector


def test_a_stable_stream_raises_one_alarm_in_a_year_of_days_at_the_most():
    """The baseline's mean is known nearly exactly here, so that its uncertainty does not hide alarms."""
    rng = np.random.default_rng(1)
    days = 20
    alarms = [alarm_of(shares(rng, 20_000, 0.85), shares(rng, 10 * days, 0.85), per_day=10).alarm for _ in range(60)]
    assert sum(alarm is not None for alarm in alarms) <= 60 * days / 365 + 2 * (60 * days / 365) ** 0.5


def test_each_slice_has_a_baseline_of_its_own_and_unknown_slices_are_ignored():
    rng = np.random.default_rng(4)
    detector = DriftDetector({"easy": list(shares(rng, 200, 0.95)), "hard": list(shares(rng, 200, 0.6))})
    for value in shares(rng, 600, 0.6):
        assert not detector.add(float(value), "hard")
    assert not detector.add(0.0, "new")
    assert detector.count == 600


def binary(rng, *parts):
    return np.concatenate([rng.random(size) < mean for size, mean in parts]).astype(float)


@pytest.mark.parametrize("size", [20, 200, 2000])
def test_about_one_of_twenty_series_without_a_change_has_one(size):
    rng = np.random.default_rng(1)
    assert (
        sum(bool(change_points(binary(rng, (size, 0.9)))) for _ in range(400)) <= 28
    )  # 20 are expected, and 28 are two standard deviations more


def capitals(values, lowest, per_day):
    """Return the sum of the capital of all bettors after each value, each bettor by itself.

    One starts on every day, bets by mean and square of its own losses so far, half a value and a quarter of a square
    added as in the paper, and stakes at most what loses 3/4 of its capital on the best value.
    """
    for end in range(1, len(values) + 1):
        total = 0.0
        for start in range(0, end, per_day):
            capital, losses = 1.0, []
            for value in values[start:end]:
                mean = sum(losses) / (len(losses) + 1)
                spread = (sum(loss**2 for loss in losses) + 0.25) / (len(losses) + 1)
                stake = min(max(mean, 0.0) / spread, 0.75 / (1 - lowest))
                losses.append(lowest - value)
                capital *= 1 + stake * losses[-1]
            total += capital
        yield total


@pytest.mark.parametrize(
    ("kind", "fall", "margin"),
    [((8, 1), 0.0, 0.0), ((8, 1), 0.6, 0.0), ((8, 1), 0.35, 0.1), ((8, 1), 0.9, 0.02), ((9, 14), 0.4, 0.0)],
)
def test_the_alarm_comes_when_the_bettors_together_have_the_run_length(kind, fall, margin):
    """The two slices share the error; with the low mean of the last case, a bettor wants to stake more than is left."""
    rng = np.random.default_rng(7)
    baseline = rng.beta(*kind, size=200).tolist()
    values = np.concatenate([rng.beta(*kind, size=35), np.maximum(rng.beta(*kind, size=25) - fall, 0.0)]).tolist()
    lowest = bounded_mean_interval(baseline, 0.975)[0] - margin
    expected = np.array(list(capitals(values, lowest, 8)))
    for highest in sorted(set(np.maximum.accumulate(expected)))[1::4]:
        for run_length in (highest * (1 - 1e-9), highest * (1 + 1e-9)):
            slices = {None: baseline, "other": [0.5]}
            detector = DriftDetector(slices, 0.05, margin=margin, run_length=run_length)
            for number, value in enumerate(values):
                detector.add(value, period=number // 8)
            reached = np.flatnonzero(expected >= run_length)
            assert detector.alarm == (reached[0] + 1 if reached.size else None)


def test_the_estimated_change_is_where_two_means_fit_best():
    """The earlier mean is the lowest of the baseline, the later mean is lower: least squares over all places."""
    rng, baseline = np.random.default_rng(2), [0.9] * 300
    lowest = bounded_mean_interval(baseline, 0.95)[0]
    for _ in range(20):
        values = np.clip(np.concatenate([rng.normal(0.8, 0.3, 30), rng.normal(0.5, 0.3, 60)]), 0, 1)
        detector = alarm_of(baseline, values)
        seen = values[: detector.alarm]
        errors = []
        for place in range(len(seen)):
            before, after = seen[:place], seen[place:]
            errors.append(((before - lowest) ** 2).sum() + ((after - min(after.mean(), lowest)) ** 2).sum())
        assert detector.change == np.argmin(errors)


@pytest.mark.parametrize("sizes", [(1, 2), (2, 1, 1), (2, 2), (3, 4, 5), (1, 30), (40,) * 8, (1,) * 9 + (2,)])
def test_groups_have_a_spread_if_the_f_test_rejects_at_one_in_a_thousand(sizes):
    rng = np.random.default_rng(len(sizes))
    within = [rng.normal(size=size) for size in sizes]
    within = [group - group.mean() for group in within]
    means = rng.normal(size=len(sizes))
    means -= np.average(means, weights=sizes)
    freedom = len(sizes) - 1, sum(sizes) - len(sizes)
    ratio = (sizes @ means**2 / freedom[0]) / (sum(group @ group for group in within) / freedom[1])
    for chance, is_found in ((0.00102, False), (0.00098, True)):
        factor = np.sqrt(f.isf(chance, *freedom) / ratio)
        groups = [group + factor * mean for group, mean in zip(within, means, strict=True)]
        assert (spread_of_groups(groups) > 0) == is_found


def test_the_spread_of_equal_groups_is_what_their_means_vary_beyond_chance():
    rng = np.random.default_rng(9)
    groups = rng.normal(rng.normal(size=(12, 1)), 0.5, size=(12, 10))
    groups -= groups.mean()
    expected = groups.mean(axis=1).var(ddof=1) - groups.var(axis=1, ddof=1).mean() / 10
    assert spread_of_groups(groups) ** 2 == pytest.approx(expected)


@pytest.mark.parametrize("groups", [[], [[0.5, 0.5]], [[0.1], [0.9]], [[0.1 + 0.2 - 0.3] * 3] * 4, [[0.0] * 5] * 2])
def test_groups_too_few_or_equal_have_no_spread(groups):
    assert spread_of_groups(groups) == 0.0


def test_the_degrees_of_freedom_lost_by_centring_are_subtracted():
    assert spread_of_groups([[-1.0, -1.1], [1.0, 1.1]] * 2, parts=3) > 0
    assert spread_of_groups([[-1.0, -1.1], [1.0, 1.1]] * 2, parts=4) == 0.0


# Change points: false alarms, place, several changes, and series that have none.


@pytest.mark.parametrize("values", [[], [0.5], [1.0] * 1000, [1.0, 0.0] * 5, [0.1 + 0.2, 0.3] * 50])
def test_short_and_constant_series_have_no_change(values):
    assert change_points(values) == []


def test_a_series_of_twice_the_shortest_part_may_have_a_change_in_its_middle():
    assert change_points([0.9] * 6 + [0.1] * 6) == [6]
    assert change_points([0.9] * 6 + [0.1] * 5) == []


def test_a_change_is_found_if_kolmogorovs_statistic_rejects_and_lies_where_two_means_fit_best():
    rng = np.random.default_rng(11)
    for size in (12, 13, 30, 75, 80, 85, 90, 95):
        values = rng.normal(size=size) + np.where(np.arange(size) < max(6, size // 3), 0.0, max(30 / size, 0.9))
        bridge = np.cumsum(values - values.mean())
        chance = kstwobign.sf(np.abs(bridge).max() / (values.std() * np.sqrt(size)))
        assert change_points(values, chance * 0.999) == []
        errors = {
            place: size * values.var()
            - place * (size - place) / size * (values[:place].mean() - values[place:].mean()) ** 2
            for place in range(6, size - 5)
        }
        assert min(errors, key=errors.get) in change_points(values, chance * 1.001)
