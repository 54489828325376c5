"""MRR at k: how early the first relevant chunk comes.

From 0 to 1, higher is better. Source: Voorhees 1999, "The TREC-8 Question Answering Track Report".
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import Ranked, at_cutoff
from langchain_rageval.statistics.ranking import mrr


def mrr_at(k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None) -> Metric:
    """Score the first relevant chunk: 1 / its rank, 0 when none of the first k is relevant.

    Args:
        k: cutoff in chunks.
        grader: how relevant each chunk is; `id_grader()` by default.
        threshold: least grade of a relevant chunk; by default 1 for whole grades (one above the lowest, on another
            scale), 0.5 for cosines and sigmoids. Ranks have none: say it.
        name: key of the score; "mrr@k" by default.

    Returns:
        A metric reading what the grader reads; 0 without a call when nothing was retrieved. Findings are the chunks in
        retrieval order with their grades, then the best and the mean grade of the first k. Unscored when labels or ids
        are there and name no chunk at all.

    Raises:
        ConfigError: if an option is out of range.
    """
    return at_cutoff("mrr", k, grader, mrr_of, basis="threshold", threshold=threshold, name=name)


def mrr_of(ranked: Ranked) -> float:
    """Reciprocal rank of the first relevant chunk."""
    return mrr(ranked.grades, ranked.k, ranked.threshold)
