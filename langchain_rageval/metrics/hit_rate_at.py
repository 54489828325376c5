"""Hit rate at k: whether one of the first k chunks is relevant.

0 or 1, higher is better.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import Ranked, at_cutoff
from langchain_rageval.statistics.ranking import hit_rate


def hit_rate_at(
    k: int, grader: Grader | None = None, *, threshold: float | None = None, name: str | None = None
) -> Metric:
    """Score 1 when one of the first k chunks is relevant, else 0.

    Args:
        k: cutoff in chunks.
        grader: how relevant each chunk is; `id_grader()` by default.
        threshold: least grade of a relevant chunk; by default 1 for whole grades (one above the lowest, on another
            scale), 0.5 for cosines and sigmoids. Ranks have none: say it.
        name: key of the score; "hit_rate@k" by default.

    Returns:
        A metric reading what the grader reads; 0 without a call when nothing was retrieved. Findings are the chunks in
        retrieval order with their grades, then the best and the mean grade of the first k. Unscored when labels or ids
        are there and name no chunk at all.

    Raises:
        ConfigError: if an option is out of range.
    """
    return at_cutoff("hit_rate", k, grader, hit_rate_of, basis="threshold", threshold=threshold, name=name)


def hit_rate_of(ranked: Ranked) -> float:
    """1 when one of the first k is relevant."""
    return hit_rate(ranked.grades, ranked.k, ranked.threshold)
