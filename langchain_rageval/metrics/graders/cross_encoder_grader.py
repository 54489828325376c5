"""Cross-encoder grader: the rank or the sigmoid of a cross-encoder's score of each chunk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any, Literal, get_args

from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval._internal.description import describe
from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.graders.embedding_grader import SimilarityGrader, question_and_chunks
from langchain_rageval.metrics.graders.grader import Grader, grade_findings
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.measure_similarity import measure_similarity
from langchain_rageval.steps.rate_pairs import rate_pairs

CrossEncoderGrades = Literal["rank", "rank_from_0", "sigmoid"]


class RankGrader(Grader):
    """Grader by the rank of a cross-encoder's score: `first` for the lowest score, one more for each higher score."""

    cross_encoder: Any
    first: int = 1
    grade_range: tuple[float, float] = (0.0, inf)

    @property
    def models(self) -> Sequence[Any]:
        """Models that the grader calls: the cross-encoder."""
        return [self.cross_encoder]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this grader that affects its grades: the identity of the cross-encoder."""
        return {
            "step": self.get_name(),
            "model": describe(self.cross_encoder),
            "grades": "rank" if self.first else "rank_from_0",
        }

    def grade(self, sample: Sample) -> Operation[Sequence[Finding]]:
        """Rank the chunks by the cross-encoder's score of the question and each chunk; a blank chunk gets 0."""
        question, chunks = question_and_chunks({"sample": sample})
        scores = yield from rate_pairs(self.cross_encoder, question, chunks)
        ranks = {score: rank for rank, score in enumerate(sorted(set(scores)), self.first)}
        grades = iter([float(ranks[score]) for score in scores])
        texts = sample.contexts or []
        return grade_findings(texts, [next(grades) if text.strip() else 0.0 for text in texts], self.meaning)


def cross_encoder_grader(ce: BaseCrossEncoder, grades: CrossEncoderGrades = "rank") -> Grader:
    """Grade each chunk by a cross-encoder.

    Its raw scores are logits of an unknown scale and cannot serve as grades.

    Args:
        ce: cross-encoder of (question, chunk) pairs; a score that is not finite is a failure.
        grades: "rank" is 1 for the lowest score and one more for each higher one, up to k for k different scores; equal
            scores get equal grades. "rank_from_0" is one less, from 0 to k - 1, as in articles that use the rank itself
            as relevance; the chunk ranked last then has no gain, and a single chunk has an NDCG of 0, however relevant.
            Therefore "rank" is the default: 0 means "not relevant", which a rank cannot show. Metrics of binary
            relevance need a `threshold` for either. "sigmoid" maps logits to 0..1; a chunk is relevant from 0.5 on, or
            from the metric's `threshold`.

    Returns:
        A grader that reads `question` and `contexts`; a blank chunk gets 0 without a call.

    Raises:
        ConfigError: if `ce` is not a cross-encoder, or `grades` is invalid.
    """
    if not isinstance(ce, BaseCrossEncoder):
        raise ConfigError(f"cross_encoder_grader takes a LangChain BaseCrossEncoder, got {type(ce).__name__}")
    if grades not in get_args(CrossEncoderGrades):
        raise ConfigError(
            f'grades is "rank", "rank_from_0" or "sigmoid" (raw logits cannot serve as grades), got {grades!r}'
        )
    if grades != "sigmoid":
        first = 1 if grades == "rank" else 0
        meaning = "rank among the cross-encoder's scores" + ("" if first else ", from 0")
        return RankGrader(name="rank_contexts", cross_encoder=ce, first=first, threshold=None, meaning=meaning)
    stage = measure_similarity(ce, question_and_chunks, scale="sigmoid")
    meaning = "sigmoid of the cross-encoder's score"
    return SimilarityGrader(name="measure_similarity", stage=stage, threshold=0.5, meaning=meaning)
