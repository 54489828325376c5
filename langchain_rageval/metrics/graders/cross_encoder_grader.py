"""Cross-encoder grader: how a cross-encoder ranks the chunks, or how sure it is of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.metrics.graders.embedding_grader import SimilarityGrader, question_and_chunks
from langchain_rageval.metrics.graders.grader import Grader, graded
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.rate_pairs import rate_pairs

Scores = Literal["rank", "sigmoid"]


class RankGrader(Grader):
    """Ranks as grades: 1 for the chunk with the lowest score, one more for each higher score."""

    cross_encoder: Any

    @property
    def models(self) -> Sequence[Any]:
        """The cross-encoder."""
        return [self.cross_encoder]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Which model it is."""
        return {"step": self.get_name(), "model": model_identity(self.cross_encoder), "grades": "rank"}

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Have the cross-encoder read the question with each chunk."""
        question, worded = question_and_chunks({"sample": sample})
        scores = yield from rate_pairs(self.cross_encoder, question, worded)
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores)), 1)}
        grades = iter([float(ranks[score]) for score in scores])
        texts = sample.contexts or []
        return graded(texts, [next(grades) if text.strip() else 0.0 for text in texts], self.means)


def cross_encoder_grader(ce: BaseCrossEncoder, grades: Scores = "rank") -> Grader:
    """Grade each chunk by a cross-encoder. Its scores are logits of no known scale, and no grades as they are.

    Args:
        ce: reads (question, chunk); scores that are not finite are a failure.
        grades: "rank" is 1 for the lowest score and one more for each higher one; equal scores get equal grades. Ranks
            say which chunk is better, never whether one is any good: metrics that know only relevant and not need a
            `threshold` with them. "sigmoid" maps logits to 0..1, from 0.5 on relevant unless a `threshold` says other.

    Returns:
        A grader reading `question` and `contexts`; a blank chunk gets 0 without being asked about.

    Raises:
        ConfigError: if `ce` is no cross-encoder, or `grades` is neither.
    """
    if not isinstance(ce, BaseCrossEncoder):
        raise ConfigError(f"cross_encoder_grader takes a LangChain BaseCrossEncoder, got {type(ce).__name__}")
    if grades not in get_args(Scores):
        raise ConfigError(f'grades is "rank" or "sigmoid" (logits are no grades), got {grades!r}')
    if grades == "rank":
        return RankGrader(
            name="rank_contexts", cross_encoder=ce, threshold=None, means="rank among the cross-encoder's scores"
        )
    stage = measure_similarity(ce, question_and_chunks, scale="sigmoid")
    means = "sigmoid of the cross-encoder's score"
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, means=means)
