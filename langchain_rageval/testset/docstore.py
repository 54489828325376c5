"""Docstore: the passages of some documents, each with its neighbours in the text and in meaning."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from numpy.typing import NDArray

from langchain_rageval.errors import ConfigError
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.embedding import BATCH_SIZE, Vector, may_concern_one_text
from langchain_rageval.run.requests import Embed, Gather, Operation, Shared
from langchain_rageval.run.run import Run
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.readers import documents_of

if TYPE_CHECKING:
    from langchain_text_splitters import TextSplitter

Unit = NDArray[np.float32]

_LOG = logging.getLogger("langchain_rageval")
_SIZE = 4000  # characters, about 1,000 tokens
_SEPARATORS = (
    r"\n(?=#{1,6} |={2,6} ?\S)",  # headings of Markdown and of wikis
    r"\n\s*\n",
    r"\n",
    r"(?<=[.!?…])\s+|(?<=[。！？])",
    r"\s+",
    r"\S{1000}",  # a run without white space; character by character it would take minutes
)
_SOURCES = ("source", "filename", "file_name", "file_path", "path", "url")  # metadata that may name the document
_SPARE = 8  # results of a vector store beyond those asked for, as some will be the passage itself or too near
_COSINE = 1.01  # greatest one, with what rounding may add
_SPACE = re.compile(r"\s*")
_WITHOUT = "{!r} has no similar passages"
_CUT = "\ufffd"  # what splitting by tokens makes of a character that it cuts


class Docstore:
    """The passages of some documents.

    Passages stand in the order of the documents. Blank ones are left out, and of equal texts all but the first. A
    document is named by `source` in its metadata (or `filename`, `file_path`, `url`, ...), else by a hash of its text;
    documents of one name, such as the pages of a file, follow each other.

    Args:
        documents: whatever `documents_of` takes.
        splitter: a LangChain TextSplitter; by default at headings, paragraphs, then sentences, into pieces of at most
            4,000 characters without overlap. False takes the documents as they are: they are passages already, those
            without a name of one document, and `start_index` in their metadata says where they begin.
        embeddings: what finds similar passages; asked when the first one is looked for, 64 texts at a time.
        vectorstore: one that holds these passages already; it is asked instead, and nothing is embedded here.

    Raises:
        ConfigError: if an argument cannot be used.
    """

    def __init__(
        self,
        documents: Any,
        *,
        splitter: TextSplitter | Literal[False] | None = None,
        embeddings: Embeddings | None = None,
        vectorstore: VectorStore | None = None,
    ) -> None:
        if splitter not in (None, False) and not hasattr(splitter, "split_documents"):
            took = "splitter takes a LangChain TextSplitter, or False for documents that are passages already"
            raise ConfigError(f"{took}; got {type(splitter).__name__}")
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise ConfigError(f"embeddings takes LangChain Embeddings, got {type(embeddings).__name__}")
        if vectorstore is not None and not isinstance(vectorstore, VectorStore):
            raise ConfigError(f"vectorstore takes a LangChain VectorStore, got {type(vectorstore).__name__}")
        self.embeddings = embeddings
        self.vectorstore = vectorstore
        self.passages: list[Passage] = []
        self._by_text: dict[str, Passage] = {}
        self._before: dict[str, Passage] = {}
        self._after: dict[str, Passage] = {}
        self._rows: dict[str, int] = {}
        self._units: Unit | None = None
        given = documents_of(documents)
        self._keep(_as_they_are(given) if splitter is False else _split(given, splitter or _splitter()))

    def __len__(self) -> int:
        """Number of passages."""
        return len(self.passages)

    def __repr__(self) -> str:
        """How many passages of how many documents."""
        return f"Docstore({len(self)} passages of {len({p.source for p in self.passages})} documents)"

    def previous(self, passage: Passage) -> Passage | None:
        """The passage before it in its document; None for the first, and behind a text that stands elsewhere too."""
        return self._before.get(passage.id)

    def next(self, passage: Passage) -> Passage | None:
        """The passage after it in its document; None for the last, and before a text that stands elsewhere too."""
        return self._after.get(passage.id)

    def order(self, seed: int) -> list[Passage]:
        """All passages in a chance order that holds, up to any place, of each document about its share.

        Args:
            seed: the same one gives the same order, on every machine and whatever the order of the documents.
        """
        chance = Random(seed)
        of_source: dict[str, list[Passage]] = {}
        for passage in self.passages:
            of_source.setdefault(passage.source, []).append(passage)
        placed: list[tuple[float, str, Passage]] = []
        for source, passages in sorted(of_source.items()):
            chance.shuffle(passages)
            first = chance.random()
            placed += [((at + first) / len(passages), source, passage) for at, passage in enumerate(passages)]
        return [passage for _, _, passage in sorted(placed, key=lambda place: place[:2])]

    def similar(self, passage: Passage, *, floor: float = 0.3, ceiling: float = 0.95, k: int = 1) -> list[Passage]:
        """The passages that are nearest in meaning, the nearest first; never itself, nor one of the same text.

        Args:
            passage: one of this store; with a vector store, any.
            floor: least cosine.
            ceiling: cosine from which on two passages say the same.
            k: how many at most.

        Returns:
            Fewer than k, or none, if no others are similar enough. A vector store that gives distances instead of
            cosines is taken by its order alone: `floor` and `ceiling` cannot be compared with them.

        Raises:
            ConfigError: if there is nothing to look with, the passage is not of this store, or k < 1.
        """
        if k < 1:
            raise ConfigError(f"k takes a whole number from 1 on, got {k!r}")
        if self.vectorstore is not None:
            return self._looked_up(self.vectorstore, passage, floor, ceiling, k)
        if self._units is None:
            drive(self.embedded(), Run(), {})
        if passage.id not in self._rows:
            raise ConfigError(f"passage {passage.id} is not of this Docstore: take one of its passages")
        units: Unit = self._units if self._units is not None else np.zeros((0, 0), np.float32)
        with np.errstate(invalid="ignore"):
            cosines = units @ units[self._rows[passage.id]]
        near = np.flatnonzero((cosines >= floor) & (cosines < ceiling))
        best = near[np.argsort(-cosines[near], kind="stable")]
        return [self.passages[row] for row in best if row != self._rows[passage.id]][:k]

    def embedded(self) -> Operation[None]:
        """Embed the passages, unless that is done, or a vector store is there to be asked.

        A passage that cannot be embedded, or gets a vector that is zero or not finite, has no similar ones; the log
        "langchain_rageval" names it.

        Raises:
            ConfigError: if there are no embeddings.
        """
        if self.vectorstore is None and self._units is None:
            self._units = yield Shared((self, "embedded"), self._embedding())

    def _keep(self, pieces: Iterable[Passage]) -> None:
        last: dict[str, Passage | None] = {}
        for passage in pieces:
            if not passage.text.strip():
                continue
            if passage.text in self._by_text:
                last[passage.source] = None  # what stood on both sides of it are no neighbours
                continue
            if before := last.get(passage.source):
                self._before[passage.id], self._after[before.id] = before, passage
            last[passage.source] = passage
            self._by_text[passage.text] = passage
            self._rows[passage.id] = len(self.passages)
            self.passages.append(passage)

    def _embedding(self) -> Operation[Unit]:
        if self.embeddings is None:
            raise ConfigError("to find similar passages, give the Docstore embeddings=... or vectorstore=...")
        texts = [passage.text for passage in self.passages]
        batches = [texts[at : at + BATCH_SIZE] for at in range(0, len(texts), BATCH_SIZE)]
        parts = yield Gather([_units(self.embeddings, batch) for batch in batches])
        return self._matrix([unit for part in parts for unit in part])

    def _matrix(self, units: Sequence[Unit | None]) -> Unit:
        """One row for each passage; NaN, which is near nothing, where there is no vector of the usual length."""
        lengths = Counter(len(unit) for unit in units if unit is not None)
        ((usual, _),) = lengths.most_common(1) or [(0, 0)]
        matrix = np.full((len(units), usual), np.nan, np.float32)
        for row, unit in enumerate(units):
            if unit is not None and len(unit) == usual:
                matrix[row] = unit
            elif unit is not None:
                text = self.passages[row].text[:100]
                _LOG.warning("%s: its vector has %d numbers, not %d", _WITHOUT.format(text), len(unit), usual)
        return matrix

    def _looked_up(self, store: VectorStore, passage: Passage, floor: float, ceiling: float, k: int) -> list[Passage]:
        found = _nearest(store, passage.text, k + _SPARE)
        if _are_cosines([score for _, score in found]):
            found = [(document, score) for document, score in found if score is not None and floor <= score < ceiling]
        others = {document.page_content: document for document, _ in found if document.page_content != passage.text}
        return [self._by_text.get(text) or _foreign(document) for text, document in others.items()][:k]


def _nearest(store: VectorStore, text: str, count: int) -> Sequence[tuple[Document, float | None]]:
    """What a vector store finds, the nearest first, with its scores if it gives any."""
    try:
        return store.similarity_search_with_score(text, k=count)
    except NotImplementedError:
        return [(document, None) for document in store.similarity_search(text, k=count)]


def _are_cosines(scores: Sequence[float | None]) -> bool:
    """Whether the scores of results, the nearest first, can be cosines: distances grow, and may be above 1."""
    given = [score for score in scores if score is not None and abs(score) <= _COSINE]
    return len(given) == len(scores) and given == sorted(given, reverse=True)


def _foreign(document: Document) -> Passage:
    """A passage of the vector store that is none of the Docstore's."""
    return _whole(document, _name_of(document))


def _as_they_are(documents: Iterable[Document]) -> Iterator[Passage]:
    for document in documents:
        yield _whole(document, _named(document) or "documents")


def _whole(document: Document, source: str) -> Passage:
    """A document that is a passage of another one."""
    given = document.metadata.get("start_index")
    start = given if isinstance(given, int) and given >= 0 else 0
    return _passage(document, source, start, start + len(document.page_content))


def _split(documents: Iterable[Document], splitter: TextSplitter) -> Iterator[Passage]:
    for document in documents:
        source = _name_of(document)
        try:
            pieces = splitter.split_documents([document])
        except Exception as error:  # whatever a splitter raises: the other documents are none the worse
            _LOG.warning("%s: cannot be split: %s; skipped", source, error)
            continue
        span = (0, 0)
        for piece in pieces:
            span = _span(document.page_content, piece.page_content, span)
            yield _passage(piece, source, *span)


def _passage(piece: Document, source: str, start: int, end: int) -> Passage:
    return Passage(text=piece.page_content, source=source, start=start, end=end, metadata=piece.metadata)


def _name_of(document: Document) -> str:
    """The document's own name, or one made of its text."""
    digest = hashlib.blake2b(document.page_content.encode(), digest_size=8).hexdigest()
    return _named(document) or f"text {digest}"


def _named(document: Document) -> str:
    names = (document.metadata.get(key) for key in _SOURCES)
    return next((str(name) for name in names if name), "")


def _span(text: str, piece: str, last: tuple[int, int]) -> tuple[int, int]:
    """Where a piece stands in a text: behind the last one, else overlapping it, else anywhere.

    Returns:
        Its first character and the one behind it; those of the same words if only the white space differs; the whole
        text if it holds no such words.
    """
    start, end = last
    following = _SPACE.match(text, end)
    for at in (end, following.end() if following else end):
        if text.startswith(piece, at):
            return at, at + len(piece)
    for at in (text.find(piece, start + 1), text.find(piece)):
        if at >= 0:
            return at, at + len(piece)
    words = piece.strip(_CUT).split()
    same = re.compile(r"\s+".join(map(re.escape, words)))
    found = (same.search(text, start) or same.search(text)) if words else None
    return found.span() if found else (0, len(text))


def _units(embeddings: Embeddings, texts: Sequence[str]) -> Operation[list[Unit | None]]:
    """Vectors of length 1; None for a text without one. Texts that are refused together are asked for one by one."""
    try:
        vectors = yield Embed(embeddings, texts)
        return [_unit(vector, text) for vector, text in zip(vectors, texts, strict=True)]
    except Exception as error:
        if not may_concern_one_text(error):
            raise
        if len(texts) == 1:
            _LOG.warning("%s: %s", _WITHOUT.format(texts[0][:100]), error)
            return [None]
    units: list[Unit | None] = []
    for text in texts:
        units += yield from _units(embeddings, [text])
    return units


def _unit(vector: Vector, text: str) -> Unit | None:
    """The vector at length 1; None if it has no direction."""
    largest = np.max(np.abs(vector), initial=0.0)
    if vector.ndim != 1 or not np.isfinite(largest) or largest == 0:
        what = "a zero vector" if largest == 0 else "numbers that make no vector"
        _LOG.warning("%s: the embeddings gave %s", _WITHOUT.format(text[:100]), what)
        return None
    scaled = vector / largest
    unit: Unit = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return unit


def _splitter() -> TextSplitter:
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(list(_SEPARATORS), is_separator_regex=True, chunk_size=_SIZE, chunk_overlap=0)
