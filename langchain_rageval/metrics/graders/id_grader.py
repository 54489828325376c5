"""Id grader: 1 for the chunks that hold the answer, by their ids."""

from __future__ import annotations

from collections.abc import Mapping

from langchain_rageval.data.schema import Sample
from langchain_rageval.metrics.graders.grader import Grader
from langchain_rageval.metrics.graders.label_grader import LabelGrader


class IdGrader(LabelGrader):
    """Whether an id is among `Sample.reference_context_ids`. Make one with `id_grader()`."""

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """1 for each id that is."""
        return dict.fromkeys(sample.reference_context_ids or [], 1.0)


def id_grader() -> Grader:
    """Grade a chunk 1 when its id is among `Sample.reference_context_ids`, else 0.

    Returns:
        A grader reading `context_ids` and `reference_context_ids`, the one that ranking metrics have by default. An id
        that was in the list before gets 0 the second time. Where `reference_context_ids` is empty, no retriever could
        do well, and the metrics are unscored.
    """
    return IdGrader(name="compare_ids", reads=frozenset({"context_ids", "reference_context_ids"}), means="id")
