"""Answer similarity: similarity in meaning of the answer and the reference, by embeddings or a cross-encoder.

From 0 to 1, higher is better; the scale depends on the model. Source: Risch et al. 2021, "Semantic Answer Similarity
for Evaluating Question Answering Models", arXiv:2108.06130, for the cross-encoder; ragas for the cosine of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import (
    Value,
    answer_and_references,
    blank_value,
    similarities_from_findings,
    similarity_findings,
)
from langchain_rageval.steps.measure_similarity import SimilarityScale, measure_similarity
from langchain_rageval.steps.stage import State


def answer_similarity(
    model: Embeddings | BaseCrossEncoder,
    *,
    threshold: float | None = None,
    scale: SimilarityScale | None = None,
    name: str = "answer_similarity",
) -> Metric:
    """Score the similarity of the answer to the most similar reference.

    Args:
        model: embeddings, whose cosine is clipped to 0..1; or a cross-encoder, which reads (answer, reference).
        threshold: from 0 to 1; the score is then 1 if the similarity is at least this, else 0.
        scale: "sigmoid" for a cross-encoder that gives logits; None if its scores are from 0 to 1.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; a blank answer is 0, without a call. Findings of the kind
        "criterion" hold the similarity with each reference.

    Raises:
        ConfigError: if an option is out of range; when scoring, if `scale` is None and a cross-encoder's score is not
            from 0 to 1.
        ModelOutputError: when scoring, for a zero vector or numbers that are not finite.
    """
    if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise ConfigError(f"threshold must be a number from 0 to 1, or None, got {threshold!r}")
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=measure_similarity(model, answer_and_references, scale=scale),
        reduce=partial(greatest_similarity, threshold=threshold),
        options={"threshold": threshold},
        state_from_findings=_state_from_findings,
    )


def greatest_similarity(state: State, *, threshold: float | None) -> Value:
    """Return the similarity with the most similar reference, or 1 or 0 by the threshold."""
    sample: Sample = state["sample"]
    similarities: Sequence[float] = state["similarities"]
    if (blank := blank_value(sample)) is not None:
        return blank
    nearest, text = max(similarities), sample.language_text
    parts = [Note("nearest-similarity", value=nearest)]
    if threshold is None:
        return Value(nearest, explain(text, *parts), similarity_findings(sample, similarities))
    reason = explain(text, *parts, Note("threshold-is", value=threshold))
    return Value(float(nearest >= threshold), reason, similarity_findings(sample, similarities))


def _state_from_findings(sample: Sample, score: Score) -> State | None:
    """Return the state from the findings of a score, or None if they hold no similarities."""
    similarities = similarities_from_findings(sample, score.findings)
    return None if similarities is None else {"sample": sample, "similarities": similarities}
