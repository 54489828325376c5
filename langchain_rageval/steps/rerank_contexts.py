"""Rerank the contexts by a cross-encoder, or by any of LangChain's document compressors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, ModelOutputError
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.rate_pairs import rate_pairs
from langchain_rageval.steps.stage import Stage, State

Reranker = BaseCrossEncoder | BaseDocumentCompressor

_PLACE = "rageval_place"


class RerankContexts(Stage[State]):
    """Adds `reranked`, a list of int: which chunks the reranker keeps, best first.

    Numbers are those of the retrieval order, from 1 on; equal scores keep that order.
    """

    reranker: Any
    rater: Any

    @property
    def models(self) -> Sequence[Any]:
        """The reranker."""
        return [self.reranker]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Which reranker it is."""
        return {"step": self.get_name(), "model": model_identity(self.reranker)}

    def work(self, state: State) -> Operation[State]:
        """One request; none when nothing was retrieved."""
        sample: Sample = state["sample"]
        scores = yield from rate_pairs(self.rater, sample.question, sample.contexts or [])
        dropped = _DROPPED if isinstance(self.rater, Places) else None
        kept = [number for number, score in enumerate(scores, 1) if score != dropped]
        return state | {"reranked": sorted(kept, key=lambda number: -scores[number - 1])}


class Places(BaseCrossEncoder):
    """A document compressor as a cross-encoder: a chunk's score is the higher the earlier it stands in what is kept."""

    def __init__(self, compressor: BaseDocumentCompressor) -> None:
        self.compressor = compressor

    def score(self, text_pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Number of texts for the best one, one less for each next, 0 for what the compressor drops."""
        question, texts = text_pairs[0][0], [text for _, text in text_pairs]
        documents = [Document(text, metadata={_PLACE: place}) for place, text in enumerate(texts)]
        kept = dict.fromkeys(_places(self.compressor.compress_documents(documents, question), texts))
        scores = dict.fromkeys(range(len(texts)), _DROPPED)
        scores |= {place: float(len(texts) - rank) for rank, place in enumerate(kept)}
        return list(scores.values())


def rerank_contexts(reranker: Reranker) -> RerankContexts:
    """The stage that reranks.

    Args:
        reranker: a cross-encoder, which reads (question, chunk); or a document compressor, asked by its sync method. A
            chunk that it cuts or rewrites stays the chunk that it was; one that it gives in several parts stands where
            the first part does.

    Raises:
        ConfigError: if it is neither.
    """
    if not isinstance(reranker, Reranker):
        raise ConfigError(
            f"reranker takes a LangChain BaseCrossEncoder or BaseDocumentCompressor, got {type(reranker).__name__}"
        )
    rater = reranker if isinstance(reranker, BaseCrossEncoder) else Places(reranker)
    return RerankContexts(name="rerank_contexts", reranker=reranker, rater=rater)


_DROPPED = 0.0


def _places(documents: Iterable[Document], texts: Sequence[str]) -> list[int]:
    """Which of the texts each document is: by its metadata, else by its text."""
    places = []
    for document in documents:
        place = document.metadata.get(_PLACE)
        if place is None and document.page_content not in texts:
            raise ModelOutputError(
                f"the reranker gave a document that was not retrieved: {document.page_content[:100]!r}; "
                "it has to keep either metadata or text"
            )
        places.append(texts.index(document.page_content) if place is None else place)
    return places
