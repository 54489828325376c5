"""Reciprocal rank at k: how early the first relevant chunk is ranked.

From 0 to 1, higher is better; its mean over questions is the MRR. Source: Voorhees 1999, "The TREC-8 Question
Answering Track Report".
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import RankedList, ranking_metric
from langchain_rageval.statistics.ranking import mrr


def mrr_at(k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None) -> Metric:
    """Score 1 divided by the rank of the first relevant chunk; 0 if none of the first k chunks is relevant.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        threshold: lowest grade of a relevant chunk; by default one above the lowest for whole grades, 0.5 for cosines
            and sigmoids; required for ranks.
        name: key of the score; "mrr@k" by default.

    Returns:
        A metric that reads the fields of the grader; 0 without a call if nothing was retrieved. Findings are the chunks
        in retrieval order with their grades, then the best and the mean grade of the first k. Unscored if labels or ids
        are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    return ranking_metric("mrr", k, grader, mrr_of, basis="threshold", threshold=threshold, name=name)


def mrr_of(ranked: RankedList) -> float:
    """Return the reciprocal rank of the first relevant chunk, 0 if there is none among the first k."""
    return mrr(ranked.grades, ranked.k, ranked.threshold)
