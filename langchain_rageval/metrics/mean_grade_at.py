"""Mean grade at k: the mean relevance grade of the first k chunks.

On the grader's scale, such as 0 to 4 for `llm_grader(judge)`; higher is better.
"""

from __future__ import annotations

from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.ranked import RankedList, ranking_metric, resolve_grader


def mean_grade_at(k: int, grader: Grader | None = None, *, name: str | None = None) -> Metric:
    """Score the first k chunks by their mean grade.

    It complements NDCG, which is 1.0 for a single faintly relevant chunk.

    Args:
        k: number of leading chunks that count.
        grader: grades each chunk by relevance; `id_grader()` by default.
        name: key of the score; "mean_grade@k" by default.

    Returns:
        A metric that reads the fields of the grader; on the grader's scale, and 0 without a call if nothing was
        retrieved. Findings are the chunks in retrieval order with their grades, then the best and the mean grade of the
        first k. Unscored if labels or ids are given and name no relevant chunk.

    Raises:
        ConfigError: if an option is out of range.
    """
    grader = resolve_grader(grader)
    lowest, highest = grader.grade_range
    grades = min(lowest, 0.0), max(highest, 0.0)  # 0 if nothing was retrieved
    return ranking_metric("mean_grade", k, grader, mean_grade_of, basis="none", name=name, range=grades)


def mean_grade_of(ranked: RankedList) -> float:
    """Return the mean of the first k grades, or of fewer if fewer chunks were retrieved."""
    return sum(ranked.first_grades) / len(ranked.first_grades)
