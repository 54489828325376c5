"""Label grader: human relevance labels as grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.metrics.graders.grader import Grader, grade_findings
from langchain_rageval.run.requests import Operation


class LabelGrader(Grader):
    """Grader by the labels of `Sample.relevance`. Build one with `label_grader()`."""

    def judged_grades(self, sample: Sample) -> list[float]:
        """Return all labels of the sample, also of chunks that were not retrieved."""
        return list(self.labels(sample).values())

    def labels(self, sample: Sample) -> Mapping[str, float]:
        """Return the grades of a sample by context id."""
        return sample.relevance or {}

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: only its name, since labels have no options."""
        return {"step": self.get_name()}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Look up the label of each id; an id without a label and a repeated id get 0.

        Raises:
            SampleError: if there are more or fewer contexts than ids.
        """
        ids = sample.context_ids or []
        texts = ids if sample.contexts is None else sample.contexts
        if len(texts) != len(ids):
            raise SampleError(
                f"sample {sample.id!r} has {len(texts)} contexts and {len(ids)} context_ids: give each context its id",
                "context_ids",
            )
        labels = dict(self.labels(sample))
        grades = [labels.pop(name, 0.0) for name in ids]
        return grade_findings(texts, grades, self.meaning)
        yield  # a generator without requests


def label_grader() -> Grader:
    """Grade each chunk by its human label in `Sample.relevance`, a mapping of context id to grade.

    Returns:
        A grader that reads `context_ids` and `relevance`. A chunk without a label or with a repeated id gets 0;
        negative grades have no gain. Labelled documents that were not retrieved count in the ideal order and in the
        number of relevant documents.
    """
    return LabelGrader(name="read_labels", reads=frozenset({"context_ids", "relevance"}), meaning="label")
