"""Detection of ids that cannot be compared: the retrieved ids of a run never meet its reference ids.

Such a run would score 0 although its retriever may be perfect. A retriever that finds nothing right in some samples is
scored, since ids of other samples still meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.metrics.graders.label_grader import LabelGrader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import stages_of
from langchain_rageval.text.shared_text import common_share

MIN_SAMPLES = 3
"""Number of samples from which ids that never meet are no coincidence, if no texts can be compared."""

_MAX_COMPARED = 50  # samples whose texts are compared
_SAME_TEXT = 0.5


def disjoint_ids(samples: Iterable[Any], metrics: Sequence[Metric]) -> str:
    """Return why the ids of a run cannot be compared; "" if they can, or if that cannot be known.

    They cannot if no retrieved id of any sample is a reference id of any sample, and either a retrieved chunk has the
    text of a reference context of its sample, or texts are missing and at least three samples have both kinds of ids.

    Args:
        samples: samples of the run; other items are ignored.
        metrics: metrics that read the samples.
    """
    for metric in metrics:
        grader = next((stage for stage in stages_of(metric) if isinstance(stage, LabelGrader)), None)
        if grader is not None:
            return _problem(metric.name, grader, (sample for sample in samples if isinstance(sample, Sample)))
    return ""


def reads_ids(metrics: Sequence[Metric]) -> bool:
    """Return True if a metric compares the ids of retrieved chunks."""
    return any(isinstance(stage, LabelGrader) for metric in metrics for stage in stages_of(metric))


def _problem(name: str, grader: LabelGrader, samples: Iterable[Sample]) -> str:
    retrieved: dict[str, None] = {}
    relevant: dict[str, None] = {}
    compared = []
    for sample in samples:
        labels = [key for key, grade in grader.labels(sample).items() if grade > grader.lowest]
        if not sample.context_ids or not labels:
            continue
        retrieved |= dict.fromkeys(sample.context_ids)
        relevant |= dict.fromkeys(labels)
        if not relevant.keys().isdisjoint(sample.context_ids) or not retrieved.keys().isdisjoint(labels):
            return ""
        compared.append(sample)
    with_texts = [sample for sample in compared if sample.contexts and sample.reference_contexts]
    same = any(map(_has_reference_text, islice(with_texts, _MAX_COMPARED)))
    if not same and (with_texts or len(compared) < MIN_SAMPLES):
        return ""
    samples_text = "the sample" if len(compared) == 1 else f"any of the {len(compared)} samples"
    problem = (
        f"{name} compares ids that never meet: no retrieved id, such as {next(iter(retrieved))!r}, is among the "
        f"reference ids, such as {next(iter(relevant))!r}, of {samples_text}"
    )
    if same:
        return f"{problem}, although texts agree: compare the texts with span_grader(), or --grader spans"
    return f"{problem}: give both from one index, or compare reference_contexts with span_grader(), or --grader spans"


def _has_reference_text(sample: Sample) -> bool:
    chunks, references = sample.contexts or [], sample.reference_contexts or []
    return any(common_share(chunk, reference) >= _SAME_TEXT for chunk in chunks for reference in references)
