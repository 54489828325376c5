"""Hit rate at k: whether at least one of the first k chunks is relevant.

0 or 1, higher is better; its mean over questions is the hit rate.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import RankedList, ranking_metric
from langchain_rageval.statistics.ranking import hit_rate


def hit_rate_at(
    k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None
) -> Metric:
    """Score 1 if at least one of the first k chunks is relevant, else 0.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk; by default one above the lowest for whole grades, 0.5 for cosines
            and sigmoids; required for ranks.
        name: key of the score; "hit_rate@k" by default.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if labels or ids
        are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("hit_rate", k, grader, hit_rate_of, basis="threshold", threshold=threshold, name=name)


def hit_rate_of(ranked: RankedList) -> float:
    """Return 1 if one of the first k chunks is relevant, else 0."""
    return hit_rate(ranked.grades, ranked.k, ranked.threshold)
