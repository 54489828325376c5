"""NDCG at k: the discounted gain of the retrieved order relative to that of the best possible order.

From 0 to 1, higher is better. Source: Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques",
doi:10.1145/582415.582418, with the log2 discount.
"""

from __future__ import annotations

from functools import partial

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import ndcg_of, ranking_metric, validate_gain
from langchain_rageval.statistics.ranking import Gain


def ndcg_at(k: int, grader: Grader | None = None, *, gain: Gain = "exp2", name: str | None = None) -> Metric:
    """Score the order of the first k chunks by NDCG.

    With labels or ids, the best order is over all judged chunks; otherwise over the retrieved chunks only, and the
    reason says so. NDCG measures the order alone: it is 1.0 for a single faintly relevant chunk, so read it together
    with `mean_grade_at`; reason and findings hold the best and the mean grade.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        gain: "exp2" for a gain of 2^grade - 1; "linear" for the grade itself, as in trec_eval.
        name: key of the score; "ndcg@k" by default.

    Returns:
        A metric that reads the fields of the grader; 0 if no chunk is relevant, without a call if nothing was
        retrieved. Findings are the chunks in retrieval order with their grades, then the best and the mean grade of the
        first k. Unscored if labels or ids are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    validate_gain(gain)
    measure = partial(ndcg_of, gain=gain)
    return ranking_metric("ndcg", k, grader, measure, basis="ideal", name=name, options={"gain": gain})
