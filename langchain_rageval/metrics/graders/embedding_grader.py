"""Embedding grader: the cosine of question and chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.graders.grader import Grader, graded
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.stage import Stage, State


class SimilarityGrader(Grader):
    """Similarities from 0 to 1 as grades; a blank chunk gets 0 without being asked about."""

    stage: Stage[State]

    @property
    def models(self) -> Sequence[Any]:
        """The embeddings or the cross-encoder."""
        return self.stage.models

    @property
    def instrument(self) -> Mapping[str, Any]:
        """That of the stage that compares."""
        return self.stage.instrument

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Compare the question with each chunk."""
        state = yield from self.stage.work({"sample": sample})
        similarities = iter(state["similarities"])
        texts = sample.contexts or []
        return graded(texts, [next(similarities) if text.strip() else 0.0 for text in texts], self.means)


def embedding_grader(embeddings: Embeddings) -> Grader:
    """Grade each chunk by the cosine of its embedding with the question's, from 0 to 1.

    No independent view when the retriever searched by the same embeddings: its order is then the best one.

    Args:
        embeddings: question and chunks are both embedded by `embed_documents`. Negative cosines count as 0.

    Returns:
        A grader reading `question` and `contexts`. Which cosine means "relevant" depends on the model: metrics that
        know only relevant and not take 0.5 unless they are given a `threshold`.

    Raises:
        ConfigError: if these are no embeddings.
    """
    if not isinstance(embeddings, Embeddings):
        raise ConfigError(f"embedding_grader takes LangChain Embeddings, got {type(embeddings).__name__}")
    stage = measure_similarity(embeddings, question_and_chunks)
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, means="cosine with the question")


def question_and_chunks(state: State) -> tuple[str, Sequence[str]]:
    """The question, and the chunks that are not blank."""
    sample: Sample = state["sample"]
    return sample.question, [text for text in sample.contexts or [] if text.strip()]
