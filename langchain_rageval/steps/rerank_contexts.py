"""Rerank the contexts by a cross-encoder or a LangChain document compressor.

Adds `reranked`, a list of int: the numbers of the chunks that the reranker keeps, best first. Makes no request without
contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_rageval._internal.description import describe
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.measure_similarity import rate_pairs
from langchain_rageval.steps.stage import Stage, State

Reranker = BaseCrossEncoder | BaseDocumentCompressor

_POSITION_KEY = "rageval_place"


class RerankContexts(Stage[State]):
    """Stage that adds `reranked`, a list of int: the chunks that the reranker keeps, best first.

    Chunks are numbered from 1 in retrieval order; chunks with equal scores keep that order.
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
        """Score all chunks with the reranker in one request; no request without contexts."""
        sample: Sample = state["sample"]
        scores = yield from rate_pairs(self.rater, sample.question, sample.contexts or [])
        dropped = _DROPPED if isinstance(self.rater, _CompressorRater) else None
        ranked = [number for number, score in enumerate(scores, 1) if score != dropped]
        return state | {"reranked": sorted(ranked, key=lambda number: -scores[number - 1])}


class _CompressorRater(BaseCrossEncoder):
    """Adapter of a document compressor to a cross-encoder: earlier documents of its output get higher scores."""

    def __init__(self, compressor: BaseDocumentCompressor) -> None:
        self.compressor = compressor

    def score(self, text_pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return a score for each pair of question and text from the rank that the compressor gives to the text.

        The first document of its output scores the number of texts, each next document one less, dropped texts 0.
        """
        question, texts = text_pairs[0][0], [text for _, text in text_pairs]
        documents = [Document(text, metadata={_POSITION_KEY: position}) for position, text in enumerate(texts)]
        ranking = dict.fromkeys(_positions(self.compressor.compress_documents(documents, question), texts))
        scores = dict.fromkeys(range(len(texts)), _DROPPED)
        scores |= {position: float(len(texts) - rank) for rank, position in enumerate(ranking)}
        return list(scores.values())


def rerank_contexts(reranker: Reranker) -> RerankContexts:
    """Return the stage that reranks the contexts.

    Args:
        reranker: cross-encoder, which scores pairs of question and chunk, or document compressor, which is called by
            its sync method. A chunk that the compressor shortens or rewrites keeps its number; a chunk that it returns
            in several parts is ranked by the first part.

    Raises:
        ConfigError: if `reranker` is of another type.
    """
    if not isinstance(reranker, Reranker):
        raise ConfigError(
            f"reranker must be a LangChain BaseCrossEncoder or BaseDocumentCompressor, got {type(reranker).__name__}"
        )
    rater = reranker if isinstance(reranker, BaseCrossEncoder) else _CompressorRater(reranker)
    return RerankContexts(name="rerank_contexts", reranker=reranker, rater=rater)


_DROPPED = 0.0


def _positions(documents: Iterable[Document], texts: Sequence[str]) -> list[int]:
    """Return the position of each document among the texts, by its metadata or else by its text."""
    positions = []
    for document in documents:
        position = document.metadata.get(_POSITION_KEY)
        if position is None and document.page_content not in texts:
            raise ModelOutputError(
                f"the reranker returned a document that was not retrieved: {document.page_content[:100]!r}; "
                "it has to keep either metadata or text"
            )
        positions.append(texts.index(document.page_content) if position is None else position)
    return positions
