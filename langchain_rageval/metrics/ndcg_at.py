"""NDCG at k: how near the retrieved order is to the best one there could be.

From 0 to 1, higher is better. Source: Järvelin and Kekäläinen 2002, "Cumulated gain-based evaluation of IR techniques",
doi:10.1145/582415.582418, with the log2 discount.
"""

from __future__ import annotations

from functools import partial

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import at_cutoff, check_gain, gained
from langchain_rageval.statistics.ranking import Gain


def ndcg_at(k: int, grader: Grader | None = None, *, gain: Gain = "exp2", name: str | None = None) -> Metric:
    """Score the order of the first k chunks.

    The best order is over all judged chunks where there are labels or ids; otherwise only what was retrieved is known,
    and the reason says so. NDCG is of the order alone: one faintly relevant chunk has 1.0, so read it beside
    `mean_grade_at`; reason and findings hold the best and the mean grade.

    Args:
        k: cutoff in chunks.
        grader: how relevant each chunk is; `id_grader()` by default.
        gain: "exp2" is 2^grade - 1; "linear" the grade itself, as in trec_eval.
        name: key of the score; "ndcg@k" by default.

    Returns:
        A metric reading what the grader reads; 0 when no chunk is relevant, and without a call when nothing was
        retrieved. Findings are the chunks in retrieval order with their grades, then the best and the mean grade of the
        first k. Unscored when labels or ids are there and name no chunk at all.

    Raises:
        ConfigError: if an option is out of range.
    """
    check_gain(gain)
    measure = partial(gained, gain=gain)
    return at_cutoff("ndcg", k, grader, measure, basis="ideal", name=name, options={"gain": gain})
