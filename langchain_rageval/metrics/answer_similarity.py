"""Answer similarity: how near the answer is to the reference in meaning, as embeddings or a cross-encoder see it.

From 0 to 1, higher is better; the scale depends on the model. Source: Risch et al. 2021, "Semantic Answer Similarity
for Evaluating Question Answering Models", arXiv:2108.06130, for the cross-encoder; ragas for the cosine of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.similarity import answer_and_references, compared, nothing_to_compare, similarities_in
from langchain_rageval.metrics.value import Value
from langchain_rageval.steps.measure_similarity import SimilarityScale, measure_similarity
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language


def answer_similarity(
    model: Embeddings | BaseCrossEncoder,
    *,
    threshold: float | None = None,
    scale: SimilarityScale | None = None,
    name: str = "answer_similarity",
) -> Metric:
    """Score how near the answer is to the nearest reference.

    Args:
        model: embeddings, whose cosine is clipped to 0..1; or a cross-encoder, which reads (answer, reference).
        threshold: from 0 to 1; the score is then 1 when the similarity reaches it, else 0.
        scale: "sigmoid" for a cross-encoder that gives logits; None when its scores are from 0 to 1.
        name: key of the score.

    Returns:
        A metric reading `answer` and `references`; a blank answer is 0, and no model is called. Findings of the kind
        "criterion" hold the similarity with each reference.

    Raises:
        ConfigError: if an option is out of range; from the metric, if a cross-encoder's scores are and `scale` is None.
        ModelOutputError: from the metric, for a zero vector or numbers that are not finite.
    """
    if threshold is not None and not (isinstance(threshold, int | float) and 0 <= threshold <= 1):
        raise ConfigError(f"threshold takes a number from 0 to 1, or None, got {threshold!r}")
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=measure_similarity(model, answer_and_references, scale=scale),
        reduce=partial(greatest_similarity, threshold=threshold),
        options={"threshold": threshold},
        state_from_findings=restored,
    )


def greatest_similarity(state: State, *, threshold: float | None) -> Value:
    """Similarity with the nearest reference, or whether it reaches the threshold."""
    sample: Sample = state["sample"]
    similarities: Sequence[float] = state["similarities"]
    if (nothing := nothing_to_compare(sample)) is not None:
        return nothing
    russian = detect_language(sample.question) == "ru"
    nearest = max(similarities)
    reason = f"Сходство с эталоном: {nearest:.2f}" if russian else f"Similarity to the reference: {nearest:.2f}"
    if threshold is None:
        return Value(nearest, f"{reason}.", compared(sample, similarities))
    bound = f"; порог {threshold:g}." if russian else f"; the threshold is {threshold:g}."
    return Value(float(nearest >= threshold), reason + bound, compared(sample, similarities))


def restored(sample: Sample, score: Score) -> State | None:
    """The state from the findings of a score."""
    similarities = similarities_in(sample, score.findings)
    return None if similarities is None else {"sample": sample, "similarities": similarities}
