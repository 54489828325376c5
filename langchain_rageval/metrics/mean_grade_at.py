"""Mean grade at k: how relevant the first k chunks are on average.

On the grader's own scale, higher is better: 0 to 4 with `llm_grader(judge)`.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import Ranked, at_cutoff


def mean_grade_at(k: int, grader: Grader | None = None, *, name: str | None = None) -> Metric:
    """Score the first k chunks by their mean grade, which NDCG does not tell: one faintly relevant chunk has NDCG 1.

    Args:
        k: cutoff in chunks.
        grader: how relevant each chunk is; `id_grader()` by default.
        name: key of the score; "mean_grade@k" by default.

    Returns:
        A metric reading what the grader reads; on the grader's scale, and 0 without a call when nothing was retrieved.
        Findings are the chunks in retrieval order with their grades, then the best and the mean grade of the first k.
        Unscored when labels or ids are there and name no chunk at all.

    Raises:
        ConfigError: if an option is out of range.
    """
    return at_cutoff("mean_grade", k, grader, mean_grade_of, basis="none", name=name)


def mean_grade_of(ranked: Ranked) -> float:
    """Mean of the first k grades, or of fewer when fewer were retrieved."""
    return sum(ranked.first) / len(ranked.first)
