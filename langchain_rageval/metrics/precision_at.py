"""Precision at k: the share of the first k chunks that are relevant.

From 0 to 1, higher is better.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import Ranked, at_cutoff
from langchain_rageval.statistics.ranking import precision


def precision_at(
    k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None
) -> Metric:
    """Score how many of the first k chunks are relevant: relevant ones / k, also when fewer than k were retrieved.

    Args:
        k: cutoff in chunks.
        grader: how relevant each chunk is; `id_grader()` by default.
        threshold: least grade of a relevant chunk; by default 1 for whole grades (one above the lowest, on another
            scale), 0.5 for cosines and sigmoids. Ranks have none: say it.
        name: key of the score; "precision@k" by default.

    Returns:
        A metric reading what the grader reads; 0 without a call when nothing was retrieved. Findings are the chunks in
        retrieval order with their grades, then the best and the mean grade of the first k. Unscored when labels or ids
        are there and name no chunk at all.

    Raises:
        ConfigError: if an option is out of range.
    """
    return at_cutoff("precision", k, grader, precision_of, basis="threshold", threshold=threshold, name=name)


def precision_of(ranked: Ranked) -> float:
    """Relevant chunks among the first k / k."""
    return precision(ranked.grades, ranked.k, ranked.threshold)
