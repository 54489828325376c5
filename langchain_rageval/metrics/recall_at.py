"""Recall at k: the share of the relevant chunks that are among the first k.

From 0 to 1, higher is better.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import RankedList, ranking_metric
from langchain_rageval.statistics.ranking import recall


def recall_at(
    k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None
) -> Metric:
    """Score the share of the relevant chunks that are among the first k.

    Labels and ids give the number of all relevant chunks; other graders only that of the retrieved ones, and the reason
    says so.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk; by default one above the lowest for whole grades, 0.5 for cosines
            and sigmoids; required for ranks.
        name: key of the score; "recall@k" by default.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if labels or ids
        are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("recall", k, grader, recall_of, basis="relevant", threshold=threshold, name=name)


def recall_of(ranked: RankedList) -> float:
    """Return the share of the relevant chunks that are among the first k."""
    return recall(ranked.firsts, ranked.relevant, ranked.k, ranked.threshold)
