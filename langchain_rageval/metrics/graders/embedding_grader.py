"""Embedding grader: the cosine similarity of the question and each chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.graders.grader import Grader, grade_findings
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.stage import Stage, State


class SimilarityGrader(Grader):
    """Grader by a similarity from 0 to 1; a blank chunk gets 0 without a call."""

    stage: Stage[State]
    grade_range: tuple[float, float] = (0.0, 1.0)

    @property
    def models(self) -> Sequence[Any]:
        """Embeddings or cross-encoder that measures the similarity."""
        return self.stage.models

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: the embeddings."""
        return self.stage.description

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Measure the similarity of the question and each chunk."""
        state = yield from self.stage.work({"sample": sample})
        similarities = iter(state["similarities"])
        texts = sample.contexts or []
        return grade_findings(texts, [next(similarities) if text.strip() else 0.0 for text in texts], self.meaning)


def embedding_grader(embeddings: Embeddings) -> Grader:
    """Grade each chunk by the cosine of its embedding with the question's, from 0 to 1.

    The grades are not independent if the retriever searched by the same embeddings: its order is then the best one.

    Args:
        embeddings: embeds the question and the chunks by `embed_documents`. Negative cosines count as 0.

    Returns:
        A grader that reads `question` and `contexts`. The cosine of a relevant chunk depends on the model; metrics of
        binary relevance use 0.5 unless they get a `threshold`.

    Raises:
        ConfigError: if `embeddings` is not a LangChain Embeddings object.
    """
    if not isinstance(embeddings, Embeddings):
        raise ConfigError(f"embedding_grader takes LangChain Embeddings, got {type(embeddings).__name__}")
    stage = measure_similarity(embeddings, question_and_chunks)
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, meaning="cosine with the question")


def question_and_chunks(state: State) -> tuple[str, Sequence[str]]:
    """Return the question and the chunks that are not blank."""
    sample: Sample = state["sample"]
    return sample.question, [text for text in sample.contexts or [] if text.strip()]
