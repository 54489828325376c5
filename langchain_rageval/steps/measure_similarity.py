"""Stages that measure the similarity of texts (by embeddings, a cross-encoder or a function) and rerank contexts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp, frexp, isfinite, sqrt
from typing import Any, Literal

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import Embeddings
from numpy.typing import NDArray

from langchain_rageval._internal.description import describe
from langchain_rageval.data.schema import Sample, without_surrogates
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.run.embedding import Vector
from langchain_rageval.run.requests import Embed, Operation, Rate, Shared
from langchain_rageval.steps.stage import Stage, State, TextSelector
from langchain_rageval.text.words import normalize_text

TextMeasure = Callable[[str, str], float]
"""Function from two texts, which `normalize_text` has normalized, to their similarity from 0 to 1."""


class CompareTexts(Stage[State]):
    """Stage that adds `similarities`, a list of float from 0 to 1: one text compared with each of several texts.

    The stage first normalizes all texts: lower case, single spaces, no stress marks, е for ё. Texts that are then equal
    have the similarity 1.0, whatever the measure returns.
    """

    measure: TextMeasure
    source: str
    pairs: TextSelector

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its results: the measure and the library that provides it."""
        return {"step": self.get_name(), "source": self.source, "measure": describe(self.measure)}

    def work(self, state: State) -> Operation[State]:
        """Compare the texts with the measure and add `similarities` to the state; makes no request."""
        yield from ()
        one, others = self.pairs(state)
        one, others = normalize_text(one), [normalize_text(other) for other in others]
        similarities = [1.0 if one == other else min(1.0, float(self.measure(one, other))) for other in others]
        return state | {"similarities": similarities}


def compare_texts(measure: TextMeasure, pairs: TextSelector, *, source: str) -> Stage[State]:
    """Return the stage that compares texts by a measure.

    Args:
        measure: function from two texts to a number from 0 to 1. The stage normalizes the texts before it calls the
            function: lower case, single spaces, no stress marks, е for ё.
        pairs: function from the state to a text and a list of texts that it is compared with.
        source: name, and version if there is one, of the library that provides the measure.
    """
    return CompareTexts(measure=measure, pairs=pairs, source=source, name="compare_texts")


def rate_pairs(cross_encoder: BaseCrossEncoder, pairs: Sequence[tuple[str, str]]) -> Operation[NDArray[np.float64]]:
    """Return the cross-encoder's scores of pairs of texts, in order. Equal calls in a run are made only once.

    The shape is not checked: (n,) if the cross-encoder gives one score for each of n pairs, (n, 3) if it gives three.
    Without pairs the array is empty, and no call is made.

    Raises:
        ModelOutputError: if the scores are not finite numbers.
    """
    if not pairs:
        return np.zeros(0)
    scores: NDArray[np.float64] = yield Shared(("rate_pairs", id(cross_encoder), *pairs), _rate(cross_encoder, pairs))
    return scores


def _rate(cross_encoder: BaseCrossEncoder, pairs: Sequence[tuple[str, str]]) -> Operation[NDArray[np.float64]]:
    output = yield Rate(cross_encoder, pairs)
    try:
        scores = np.asarray([*output], dtype=np.float64)
    except TypeError:
        raise ModelOutputError(f"the cross-encoder returned no list of scores, but {str(output)[:100]}") from None
    except ValueError:
        raise ModelOutputError(f"the cross-encoder returned no numbers, but {str(output)[:100]}") from None
    for score in scores[~np.isfinite(scores)]:
        raise ModelOutputError(f"the cross-encoder returned the score {score}, which is not a finite number")
    return scores


def rate_texts(cross_encoder: BaseCrossEncoder, question: str, texts: Sequence[str]) -> Operation[list[float]]:
    """Return the cross-encoder's scores of a question with each text, in order. Makes no call if there are no texts.

    Raises:
        ModelOutputError: if the scores are not finite numbers, or their number differs from the number of texts.
    """
    scores = yield from rate_pairs(cross_encoder, [(question, text) for text in texts])
    if scores.ndim != 1:
        raise ModelOutputError(f"the cross-encoder returned no list of scores, but {str(scores.tolist())[:100]}")
    if len(scores) != len(texts):
        raise ModelOutputError(f"the cross-encoder returned {len(scores)} scores for {len(texts)} pairs")
    return [float(score) for score in scores]


_ALMOST_EQUAL = 0.999

SimilarityScale = Literal["sigmoid"]
Similarity = Embeddings | BaseCrossEncoder


class MeasureSimilarity(Stage[State]):
    """Stage that adds `similarities`, a list of float from 0 to 1: one text compared with each of several texts.

    With embeddings, all texts are embedded by `embed_documents`, because the compared texts are of the same kind: none
    is a query. Equal texts of a run are embedded once, in batches. Negative cosines count as 0. With a cross-encoder,
    the similarity is its score of the pair; the scale "sigmoid" maps its logits to 0..1.
    """

    model: Any
    scale: SimilarityScale | None
    pairs: TextSelector

    @property
    def models(self) -> Sequence[Any]:
        """Embeddings or cross-encoder that the stage calls."""
        return [self.model]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects the similarities: the model and the scale."""
        return {"step": self.get_name(), "model": describe(self.model), "scale": self.scale}

    def work(self, state: State) -> Operation[State]:
        """Add the similarities of the text and each other text to the state; in one request, or none without others."""
        one, others = self.pairs(state)
        one, others = without_surrogates(one), without_surrogates(list(others))
        similarities: list[float] = []
        if others and isinstance(self.model, BaseCrossEncoder):
            scores = yield from rate_texts(self.model, one, others)
            similarities = [self._scaled(score) for score in scores]
        elif others:
            vectors = yield Embed(self.model, [one, *others])
            units = [_unit(vector, text) for vector, text in zip(vectors, [one, *others], strict=True)]
            similarities = [_cosine(units[0], unit) for unit in units[1:]]
        return state | {"similarities": similarities}

    def _scaled(self, score: float) -> float:
        if self.scale == "sigmoid":
            return 1 / (1 + exp(-score)) if score >= 0 else exp(score) / (1 + exp(score))
        if not 0 <= score <= 1:
            raise ConfigError(
                f"the cross-encoder's scores are not from 0 to 1, got {score:.3f}; if they are logits, "
                'say scale="sigmoid" (an option of answer_similarity)'
            )
        return score


def measure_similarity(
    model: Similarity | None, pairs: TextSelector, *, scale: SimilarityScale | None = None
) -> Stage[State]:
    """Return the stage that compares texts by a model.

    Args:
        model: embeddings or a cross-encoder; None (no model was given) raises the error below.
        pairs: function from the state to a text and a list of texts that it is compared with.
        scale: "sigmoid" maps the logits of a cross-encoder to 0..1; None uses the scores unchanged.

    Raises:
        ConfigError: if `model` is None or of another type, or `scale` does not fit the model.
    """
    if not isinstance(model, Embeddings | BaseCrossEncoder):
        raise ConfigError(f"similarity takes LangChain Embeddings or a BaseCrossEncoder, got {type(model).__name__}")
    if scale not in (None, "sigmoid"):
        raise ConfigError(f'scale is None or "sigmoid", got {scale!r}')
    if scale and isinstance(model, Embeddings):
        raise ConfigError("scale is for a cross-encoder's scores; cosines need none")
    return MeasureSimilarity(model=model, scale=scale, pairs=pairs, name="measure_similarity")


def _unit(vector: Vector, text: str) -> Vector:
    """Return the vector scaled to length 1.

    Raises:
        ModelOutputError: if the vector is zero or not finite.
    """
    largest = float(np.abs(vector).max(initial=0))
    if not isfinite(largest) or largest == 0:
        problem = "a zero vector" if largest == 0 else "numbers that are not finite"
        raise ModelOutputError(f"the embeddings returned {problem} for {text[:100]!r}")
    scaled = np.ldexp(vector, -frexp(largest)[1])  # by a power of two, which does not round, against overflow
    unit: Vector = scaled / sqrt(scaled @ scaled)
    return unit


def _cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two unit vectors, clipped to 0..1; exactly 1.0 for equal vectors."""
    if one.shape != other.shape:
        raise ModelOutputError(f"the embeddings returned vectors of the lengths {one.size} and {other.size}")
    cosine = float(one @ other)
    if cosine > _ALMOST_EQUAL:
        return 1.0 if np.array_equal(one, other) else min(cosine, 1.0)
    return max(cosine, 0.0)


Reranker = BaseCrossEncoder | BaseDocumentCompressor

_POSITION_KEY = "rageval_place"
_DROPPED = 0.0  # score of a text that a compressor leaves out


class RerankContexts(Stage[State]):
    """Stage that adds `reranked`, a list of int: the numbers of the chunks that the reranker keeps, best first.

    Chunks are numbered from 1 in retrieval order; chunks with equal scores stay in this order.

    Attributes:
        reranker: the user's cross-encoder or document compressor.
        rater: cross-encoder that is called: the reranker, or an adapter of a document compressor.
    """

    reranker: Any
    rater: Any

    @property
    def models(self) -> Sequence[Any]:
        """Reranker that the stage calls."""
        return [self.reranker]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects the order of the chunks: the identity of the reranker."""
        return {"step": self.get_name(), "model": describe(self.reranker)}

    def work(self, state: State) -> Operation[State]:
        """Add the reranker's order of the chunks to the state; one request, none if there are no contexts."""
        sample: Sample = state["sample"]
        scores = yield from rate_texts(self.rater, sample.question, sample.contexts or [])
        dropped = _DROPPED if isinstance(self.rater, _CompressorRater) else None
        ranked = [number for number, score in enumerate(scores, 1) if score != dropped]
        return state | {"reranked": sorted(ranked, key=lambda number: -scores[number - 1])}


class _CompressorRater(BaseCrossEncoder):
    """Adapter of a document compressor to a cross-encoder: earlier documents of its output get higher scores."""

    def __init__(self, compressor: BaseDocumentCompressor) -> None:
        self.compressor = compressor

    def score(self, text_pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return a score for each pair of question and text from the rank that the compressor gives to the text.

        Documents of its output are identified by their metadata, or else by their text.
        The first document of its output scores the number of texts, each next document one less, dropped texts 0.
        """
        question, texts = text_pairs[0][0], [text for _, text in text_pairs]
        documents = [Document(text, metadata={_POSITION_KEY: position}) for position, text in enumerate(texts)]
        positions = []
        for document in self.compressor.compress_documents(documents, question):
            position = document.metadata.get(_POSITION_KEY)
            if position is None and document.page_content not in texts:
                raise ModelOutputError(
                    f"the reranker returned a document that was not retrieved: {document.page_content[:100]!r}; "
                    "a reranker must keep the metadata or the text of a document"
                )
            positions.append(texts.index(document.page_content) if position is None else position)
        scores = dict.fromkeys(range(len(texts)), _DROPPED)
        scores |= {position: float(len(texts) - rank) for rank, position in enumerate(dict.fromkeys(positions))}
        return list(scores.values())


def rerank_contexts(reranker: Reranker) -> RerankContexts:
    """Return the stage that reranks the contexts.

    Args:
        reranker: cross-encoder, which scores pairs of question and chunk; or document compressor, whose sync method is
            called. A chunk that the compressor shortens or rewrites keeps its number; a chunk that it returns in
            several parts is ranked by the first part.

    Raises:
        ConfigError: if `reranker` is of another type.
    """
    if not isinstance(reranker, Reranker):
        raise ConfigError(
            f"reranker must be a LangChain BaseCrossEncoder or BaseDocumentCompressor, got {type(reranker).__name__}"
        )
    rater = reranker if isinstance(reranker, BaseCrossEncoder) else _CompressorRater(reranker)
    return RerankContexts(name="rerank_contexts", reranker=reranker, rater=rater)
