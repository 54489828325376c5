"""All statistics: their numbers over one table of samples, and the arguments that they refuse."""

import math
import random
from functools import partial
from itertools import product

import pytest
from helpers.each import each, error_of
from helpers.stored import assert_stored

from langchain_rageval.statistics import detectable_difference, paired_difference, sign_flip_p, student_t_p
from langchain_rageval.statistics.agreement import STATISTICS, Tables, estimates, krippendorff_alpha, share
from langchain_rageval.statistics.intervals import bounded_mean_interval, prediction_powered_mean, student_t_quantile
from langchain_rageval.statistics.paired import Stratum, unpaired_difference
from langchain_rageval.statistics.ranking import average_precision, hit_rate, mrr, ndcg, precision, recall
from langchain_rageval.statistics.sequential import ConfidenceSequence, DriftDetector, change_points

SIZES = (1, 2, 3, 6, 14, 15, 16, 40)


def numbers(size, mean=0.7, seed=0):
    """Return values in [0, 1], of which many are 1."""
    rng = random.Random(size + seed)
    return [min(1.0, round(rng.random() + mean - 0.4, 2)) for _ in range(size)]


def told(name, *values):
    parts = (f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    return f"{name}: {' '.join(parts)}"


def fields(result):
    return [getattr(result, name) for name in type(result).__slots__]


def intervals():
    for t, freedom in product((0.0, 0.3, 1.5, 12.0), (0.5, 1, 2.5, 30, 1e6)):
        yield told(f"p {t} {freedom}", student_t_p(t, freedom))
    for level, freedom in product((0.0, 0.5, 0.95, 0.9999), (0.5, 1, 2.5, 30, 1e6)):
        yield told(f"t {level} {freedom}", student_t_quantile(level, freedom))
    for size in SIZES:
        values, names = numbers(size), [number // 3 for number in range(size)]
        yield told(f"mean of {size}", *bounded_mean_interval(values), *bounded_mean_interval(values, 0.8, names))
    yield told("equal", *bounded_mean_interval([1.0] * 9), *bounded_mean_interval([0.0] * 9))


def paired():
    for size in SIZES:
        values = [one - other for one, other in zip(numbers(size), numbers(size, 0.5, 1), strict=True)]
        names = [number // 2 for number in range(size)]
        for clusters in (None, names):
            known = paired_difference(values, clusters)
            rare = paired_difference(values, clusters, span=2.0, rare_losses=True, level=0.8)
            yield told(f"pairs {size}", *fields(known), *fields(rare), sign_flip_p(values, clusters))
        yield told(f"signs {size}", sign_flip_p([0.5] * size + [-0.5, 0.0]))
        yield told(f"detectable {size}", detectable_difference(0.3, size), detectable_difference(0.0, size, 0.5, 0.2))
        yield told(f"far {size}", detectable_difference(0.3, size, span=3.0, largest_deviation=0.9))
    for size in (999, 1000, 1001, 1200):
        yield told(f"signs {size}", sign_flip_p([0.1 + number % 7 * (-1) ** number for number in range(size)]))


def unpaired():
    for size in SIZES:
        one, other = numbers(size), numbers(size + 1, 0.4)
        halves = [number // 2 for number in range(size + 1)]
        strata = [Stratum(one, other, 0.25), Stratum(other, one, 0.75, halves, halves[:size])]
        for cut in ([Stratum(one, other)], strata):
            yield told(f"unpaired {size}", *fields(unpaired_difference(cut)), *fields(unpaired_difference(cut, 0.8)))
    for size in SIZES:
        labels, others = numbers(size), numbers(2 * size, 0.5, 2)
        close = [max(0.0, label - 0.1 * (place % 3)) for place, label in enumerate(labels)]
        names = ([place // 2 for place in range(size)], [place // 3 for place in range(2 * size)])
        for clusters in (None, names):
            yield told(f"powered {size}", *prediction_powered_mean(labels, close, others, clusters=clusters))
        wide = [5 * value - 1 for value in labels]
        yield told(f"scaled {size}", *prediction_powered_mean(wide, close, others[:3], 0.8, (-1.0, 4.0)))
        yield told(f"equal {size}", *prediction_powered_mean(labels, [1.0] * size, [2.0] * (size - 1)))


def agreement():
    for size in (2, 3, 12, 65, 130):
        exact, coarse = numbers(size), [round(2 * value) / 2 for value in numbers(size, 0.5, 1)]
        for scores, labels in ((exact, coarse), (coarse, [float(value > 0.5) for value in exact])):
            for name, one in estimates(scores, labels, list(STATISTICS)).items():
                yield told(f"{name} {size}", one.value, one.low, one.high, one.reason)
        yield told(f"share {size}", share(exact))
        ratings = [[*coarse, None], [None, *coarse], [*exact[:-1], None, 0.5]]
        for level in ("nominal", "ordinal", "interval"):
            yield told(f"alpha {size} {level}", krippendorff_alpha(ratings, level))
    for size in (1999, 2000, 2001, 2400):
        tables = Tables.of([number / size for number in range(size)], [number * 7 % size for number in range(size)])
        yield told(f"table {size}", tables.counts.shape, float(tables.scores[1]), float(tables.labels[-1]))


def sequences():
    for size, span in product((1, 5, 40, 200), (1.0, 4.0)):
        told_so_far = ConfidenceSequence(size, low=0.0, high=span, watched=[0.5, 0.75, span])
        for number, value in enumerate(numbers(size, 1.2)):
            if number % 10 == 9:
                told_so_far.skip()
            else:
                told_so_far.add(value * span)
            if number % 8 == 3 or number in (0, size - 1):
                watched = [told_so_far.exceeds(0.5), told_so_far.exceeds(0.75), told_so_far.stays_below(span)]
                yield told(f"{size} {number}", told_so_far.mean, *told_so_far.interval, *watched)
    for shift in (0.0, 0.1, 0.3):
        values = [*numbers(60, 0.8), *(max(0.0, value - shift) for value in numbers(90, 0.8, 1))]
        detector = DriftDetector({"a": numbers(50, 0.8, 3), "b": [1.0] * 9}, margin=0.05)
        alarms = [detector.add(value, "ab?"[place % 3]) for place, value in enumerate(values)]
        yield told(f"drift {shift}", sum(alarms), detector.count, detector.alarm, detector.change)
        yield told(f"changes {shift}", change_points(values), change_points(values[54:66]), change_points(values, 0.5))
    for lengths in product((5, 6, 7), (5, 6, 7)):
        steps = [0.1] * lengths[0] + [0.9] * lengths[1]
        yield told(f"changes {lengths}", change_points(steps), change_points([*steps, *([0.5] * 6)], 0.3))


def ranking():
    for grades in ([], [0.0], [3.0, 0.0, 1.0, 2.0], [0.0, 1.0, 0.0, 1.0, 2.0], [501.0, 3.0, 502.0], [-1.0, 0.5, 1.0]):
        for k in (1, 2, None):
            gains = [ndcg(grades, [*grades, 1.0], k), ndcg(grades, k=k, gain="linear")]
            rest = [mrr(grades, k), average_precision(grades, k=k), average_precision(grades, 5, k, 0.5)]
            fixed = [precision(grades, k), hit_rate(grades, k), hit_rate(grades, k, 0.5)] if k else []
            yield told(f"{grades} {k}", *gains, *rest, recall(grades, 5, k), *fixed)


@pytest.mark.parametrize("part", [intervals, paired, unpaired, agreement, sequences, ranking])
def test_each_number_is_as_stored(part):
    assert_stored(f"numbers_of_{part.__name__}.txt", "\n".join(part()) + "\n")


# Arguments that no statistic takes: each is refused with the whole message that says what it takes

MEASURES = (ndcg, mrr, average_precision, precision, hit_rate, partial(recall, relevant=2))
TOO_HIGH = "every value must be in [0, 1]; got {}: divide by the highest grade of the scale"
LEVEL = "level must be between 0 and 1, such as 0.95; got {}"
ERROR = "error must be between 0 and 1, such as 0.05; got {}"
ALL_RELEVANT = "retrieved documents are relevant: count all relevant documents"
full = ConfidenceSequence(1)
full.add(0.5)
ONE_OF_EACH = "pass at least one label, and a prediction for each label"

REFUSED = [
    *((partial(bounded_mean_interval, [0.5, bad]), TOO_HIGH.format(bad)) for bad in (1.1, -0.1, math.nan, math.inf)),
    *((partial(bounded_mean_interval, [0.5], bad), LEVEL.format(bad)) for bad in (0, 1, 95, -0.5, math.nan)),
    (
        partial(bounded_mean_interval, []),
        "an interval needs at least one value; got none: at least one sample must be scored",
    ),
    *((partial(change_points, [0.0] * 20, bad), ERROR.format(bad)) for bad in (0.0, 1.0, math.nan)),
    *((partial(DriftDetector, {"a": [1.0] * 10, "b": [1.0]}, bad), ERROR.format(bad)) for bad in (0.0, 1.0)),
    (partial(DriftDetector({None: [1.0] * 10}).add, 1.5), "every value must be in [0, 1]; got 1.5"),
    (partial(paired_difference, []), "an interval needs at least one difference; got none"),
    (
        partial(paired_difference, [0.0] * 20, span=0.0),
        "span is the largest possible difference of one pair, above 0; got 0.0",
    ),
    (partial(prediction_powered_mean, [], [], [1.0]), f"got 0 labels and 0 predictions: {ONE_OF_EACH}"),
    (partial(prediction_powered_mean, [1.0], [], [1.0]), f"got 1 labels and 0 predictions: {ONE_OF_EACH}"),
    (
        partial(prediction_powered_mean, [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], clusters=(["a"], ["b", "c"])),
        "got 1 and 2 clusters for 2 and 2 items: pass one cluster for each item",
    ),
    (partial(full.add, 0.5), "more than size=1 values were added: size must be the number of all values of the set"),
    (partial(ConfidenceSequence, 0), "size must be at least 1, got 0"),
    *(
        (partial(ConfidenceSequence, 9, *errors), f"error must be between 0 and 1, such as 0.05, got {bad}")
        for bad in (0.0, 1.0, 1.5, math.nan)
        for errors in ((bad,), (bad, 0.05), (0.05, bad))
    ),
    *(
        (
            partial(ConfidenceSequence, 9, low=low, high=high),
            f"low and high must be finite bounds, low below high; got {low} and {high}",
        )
        for low, high in ((1, 0), (1, 1), (-math.inf, 1), (0, math.inf))
    ),
    (partial(ConfidenceSequence(9).add, 1.5), "every value must be in [0, 1], got 1.5"),
    *(
        (partial(measure, [1, 0], k=k), f"k must be a whole number of at least 1, got {k!r}")
        for measure in MEASURES
        for k in (0, -1, 1.5, True)
    ),
    *(
        (partial(measure, [1, bad], k=2), "grades must be finite numbers, got NaN or infinity")
        for measure in MEASURES
        for bad in (math.nan, math.inf, -math.inf)
    ),
    (partial(recall, [1, 1], 1), f"relevant is 1, but 2 {ALL_RELEVANT}"),
    (partial(average_precision, [1], 0), f"relevant is 0, but 1 {ALL_RELEVANT}"),
    (partial(ndcg, [3], [1]), "ideal lacks grades of retrieved documents: pass the grades of all judged documents"),
    (partial(ndcg, [1], gain="log"), 'gain must be "exp2" or "linear", got \'log\''),
    (partial(ndcg, [[1, 2]]), "grades must be one-dimensional, got an array of shape (1, 2)"),
]


@each(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_every_argument_that_is_out_of_range_is_named(call, message):
    assert str(error_of(ValueError, call)) == message
