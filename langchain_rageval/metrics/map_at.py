"""Average precision at k: how many relevant chunks are among the first k, and how early.

From 0 to 1, higher is better; its mean over questions is the MAP. Source: Manning, Raghavan, Schütze 2008,
"Introduction to Information Retrieval", section 8.4.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import RankedList, ranking_metric
from langchain_rageval.statistics.ranking import average_precision


def map_at(k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None) -> Metric:
    """Score average precision: the precisions at the ranks of relevant chunks, averaged over all relevant chunks.

    Labels and ids give the number of all relevant chunks; other graders only that of the retrieved ones, and the reason
    says so.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk; by default one above the lowest for whole grades, 0.5 for cosines
            and sigmoids; required for ranks.
        name: key of the score; "map@k" by default.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if labels or ids
        are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("map", k, grader, map_of, basis="relevant", threshold=threshold, name=name)


def map_of(ranked: RankedList) -> float:
    """Return the average precision of the first k chunks."""
    return average_precision(ranked.firsts, ranked.relevant, ranked.k, ranked.threshold)
