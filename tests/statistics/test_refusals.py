"""Arguments that no statistic takes: each is refused with the whole message that says what it takes."""

import math
from functools import partial

from helpers.each import each, error_of

from langchain_rageval.statistics.intervals import bounded_mean_interval, prediction_powered_mean
from langchain_rageval.statistics.paired import paired_difference
from langchain_rageval.statistics.ranking import average_precision, hit_rate, mrr, ndcg, precision, recall
from langchain_rageval.statistics.sequential import ConfidenceSequence, DriftDetector, change_points

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
