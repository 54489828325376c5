"""Id grader: grade 1 for chunks whose ids are among the reference ids, else 0."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_rageval.data.schema import Sample
from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.graders.label_grader import LabelGrader


class IdGrader(LabelGrader):
    """Grader by `Sample.reference_context_ids`. Build one with `id_grader()`."""

    grade_range: tuple[float, float] = (0.0, 1.0)

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """Return a grade of 1 for each reference id."""
        return dict.fromkeys(sample.reference_context_ids or [], 1.0)


def id_grader() -> Grader:
    """Grade a chunk 1 if its id is among `Sample.reference_context_ids`, else 0.

    Returns:
        A grader that reads `context_ids` and `reference_context_ids`, the default of the ranking metrics. A repeated id
        gets 0 from its second occurrence on. If `reference_context_ids` is empty, the metrics are unscored.
    """
    return IdGrader(name="compare_ids", reads=frozenset({"context_ids", "reference_context_ids"}), meaning="id")
