"""Label grader: the grades that people gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.metrics.graders.grader import Grader, graded
from langchain_rageval.run.requests import Operation


class LabelGrader(Grader):
    """`Sample.relevance` as grades. Make one with `label_grader()`."""

    def known(self, sample: Sample) -> list[float]:
        """Every label of the sample."""
        return list(self.labels(sample).values())

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """Id to grade."""
        return sample.relevance or {}

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Whose grades these are."""
        return {"step": self.get_name()}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Look each id up; one without a label, or that was in the list before, gets 0."""
        ids = sample.context_ids or []
        texts = ids if sample.contexts is None else sample.contexts
        if len(texts) != len(ids):
            raise SampleError(
                f"sample {sample.id!r} has {len(texts)} contexts and {len(ids)} context_ids: give each context its id",
                "context_ids",
            )
        left = dict(self.labels(sample))
        grades = [left.pop(name, 0.0) for name in ids]
        return graded(texts, grades, self.means)
        yield  # a Work that needs nothing


def label_grader() -> Grader:
    """Grade each chunk by its label in `Sample.relevance`, context id to the grade that a person gave it.

    Returns:
        A grader reading `context_ids` and `relevance`. A chunk without a label, or whose id was in the list before,
        gets 0; negative grades gain nothing. What was judged and not retrieved counts in the ideal, and in the number
        of relevant documents.
    """
    return LabelGrader(name="read_labels", reads=frozenset({"context_ids", "relevance"}), means="label")
