"""Docstore: splits documents into passages, and finds the neighbouring and similar passages of a passage."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress, islice, zip_longest
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import VectorStore
from numpy.typing import NDArray

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.data.documents import SOURCE_KEYS, is_path, to_documents
from langchain_rageval.data.field_names import chunk_id
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.drivers import drive
from langchain_rageval.run.embedding import BATCH_SIZE, Vector, may_concern_one_text
from langchain_rageval.run.requests import Embed, Gather, Operation, Shared
from langchain_rageval.run.run import Run
from langchain_rageval.testset.candidate import Passage
from langchain_rageval.text.words import PhraseIndex, words_of

if TYPE_CHECKING:
    from langchain_text_splitters import TextSplitter

UnitVector = NDArray[np.float32]

_LOG = logging.getLogger("langchain_rageval")
_LONGEST_PASSAGE = 4000  # characters, about 1,000 tokens
_SEPARATORS = (
    r"\n(?=#{1,6} |={2,6} ?\S)",  # headings of Markdown and of wikis
    r"\n\s*\n",
    r"\n",
    r"(?<=[.!?…])\s+|(?<=[。！？])",
    r"\s+",
    r"\S{1000}",  # text without white space; splitting it character by character takes minutes
)
_EXTRA_RESULTS = 8  # requested from a vector store in addition: some are the passage itself or too similar
_LEAST_FOUND, _MOST_FOUND = 4, 12  # passages that a search finds
_FOUND_TEXT = 16_000  # characters of these
_MAX_COSINE = 1.01  # with rounding errors
_SPACE = re.compile(r"\s*")
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")
_NO_SIMILAR = "{!r} has no similar passages"
UNNAMED_TEXT = "text "  # beginning of the source of a document without a name
_CUT_CHARACTER = "\ufffd"  # left by splitters that cut a character between tokens


class Docstore:
    """Passages of documents, with search for neighbouring and similar passages.

    Passages are in the order of the documents. Blank passages are dropped, and so are passages whose text occurred
    before. A document is named by `source` in its metadata (or `filename`, `file_name`, `file_path`, `path`, `url`),
    else by a hash of its text. Documents with the same name, such as the pages of a file, are consecutive parts of one
    document.

    The id of a passage that is a whole document is the id of the document: `Document.id`, or `chunk_id`, `id`, `_id` or
    `doc_id` of its metadata. If a document is split, the id of a passage is the document's id, "#" and a hash of the
    passage's text. If the document has no id, the id of the passage is a hash of source, span and text.

    Args:
        documents: the path of a file or folder, a DataFrame, or an iterable of LangChain Documents, texts, objects with
            a text and `pathlib.Path`s. A str in an iterable is always a text; a single text goes in a list.
        splitter: a LangChain TextSplitter. By default documents are split at headings, paragraphs, then sentences, into
            passages of at most 4,000 characters without overlap. False means that the documents are passages already:
            each is kept as one passage. Passages whose metadata names no document then count as parts of one document
            with the name "documents". The offset of each passage is `start_index` in its metadata, or else 0.
        embeddings: embeddings that find similar passages. They are called at the first search, 64 texts at a time.
        vectorstore: vector store that already holds these passages. The vector store is searched, and nothing is
            embedded. Rows of a test set have the passage ids of the vector store.

    Attributes:
        embeddings: the argument `embeddings`.
        vectorstore: the argument `vectorstore`.
        documents: the documents, before they are split.
        passages: the passages.

    Raises:
        ConfigError: if an argument is invalid.
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
            expected = "splitter must be a LangChain TextSplitter, or False for documents that are passages already"
            raise ConfigError(f"{expected}; got {type(splitter).__name__}")
        if embeddings is not None and not isinstance(embeddings, Embeddings):
            raise ConfigError(f"embeddings must be LangChain Embeddings, got {type(embeddings).__name__}")
        if vectorstore is not None and not isinstance(vectorstore, VectorStore):
            raise ConfigError(f"vectorstore must be a LangChain VectorStore, got {type(vectorstore).__name__}")
        self.embeddings = embeddings
        self.vectorstore = vectorstore
        self.passages: list[Passage] = []
        self._by_text: dict[str, Passage] = {}
        self._previous: dict[str, Passage] = {}
        self._next: dict[str, Passage] = {}
        self._row_numbers: dict[str, int] = {}
        self._unit_vectors: UnitVector | None = None
        self._store_ids: dict[str, str] = {}
        self.documents = to_documents(documents)
        self._unnamed = "documents" if splitter is False else ""  # source of passages of the user that name none
        chosen = None if splitter is False else splitter or default_splitter()
        self._add(_passages(self.documents, chosen, self._unnamed))

    def __len__(self) -> int:
        """Return the number of passages."""
        return len(self.passages)

    def __repr__(self) -> str:
        """Return the store as text: the numbers of passages and documents."""
        return f"Docstore({len(self)} passages of {len({p.source for p in self.passages})} documents)"

    @cached_property
    def phrase_index(self) -> PhraseIndex:
        """Index from each word stem to the passages that contain the stem; built at the first use.

        The index names a passage by its number: its place in `passages`, from 0.
        """
        return PhraseIndex([passage.text for passage in self.passages])

    @cached_property
    def sentences(self) -> frozenset[int]:
        """Hashes of the sentences of all documents, before they are split into passages."""
        return frozenset(number for _, _, text in self.texts() for number in sentence_hashes(text))

    def previous(self, passage: Passage) -> Passage | None:
        """Return the passage directly before a passage in the same document.

        None if the passage is the first of the document, or if a passage between the two was dropped as a repetition.
        """
        return self._previous.get(passage.id)

    def next(self, passage: Passage) -> Passage | None:
        """Return the passage directly after a passage in the same document.

        None if the passage is the last of the document, or if a passage between the two was dropped as a repetition.
        """
        return self._next.get(passage.id)

    def similar(self, passage: Passage, *, floor: float = 0.3, ceiling: float = 0.95, k: int = 1) -> list[Passage]:
        """Return the passages nearest in meaning, the nearest first, without the passage itself.

        Args:
            passage: a passage of this store; with a vector store, any passage.
            floor: minimum cosine.
            ceiling: cosine from which two passages count as duplicates and are excluded.
            k: maximum number of passages.

        Returns:
            At most k passages; an empty list if none is similar enough. If a vector store returns distances instead of
            cosines, only their order is used: `floor` and `ceiling` do not apply.

        Raises:
            ConfigError: if there are neither embeddings nor a vector store, the passage is not in this store, or k < 1.
        """
        if k < 1:
            raise ConfigError(f"k must be a whole number of at least 1, got {k!r}")
        if self.vectorstore is not None:
            return self._search(self.vectorstore, passage, floor, ceiling, k)
        if self._unit_vectors is None:
            drive(embed_passages(self), Run(), {})
        if passage.id not in self._row_numbers:
            raise ConfigError(f"passage {passage.id} is not in this Docstore: take one of its passages")
        vectors: UnitVector = self._unit_vectors if self._unit_vectors is not None else np.zeros((0, 0), np.float32)
        with np.errstate(invalid="ignore"):
            cosines = vectors @ vectors[self._row_numbers[passage.id]]
        near = np.flatnonzero((cosines >= floor) & (cosines < ceiling))
        nearest_first = near[np.argsort(-cosines[near], kind="stable")]
        return [self.passages[row] for row in nearest_first if row != self._row_numbers[passage.id]][:k]

    def nearest_passages(self, text: str, vector: Any = None) -> list[Passage]:
        """Return the passages nearest to a text, by two rankings: rare shared words, and similar meaning.

        The two rankings alternate: the best by words, the best by meaning, the second by words, and so on. At most 12
        passages are returned, with at most 16,000 characters together; but the first four are returned even if they
        are longer. With a vector store, the vector store ranks by meaning.

        Args:
            text: the text.
            vector: unit vector of the text, to compare with embedded passages; None to search without it.
        """
        rankings = [[self.passages[number] for number in self.phrase_index.nearest(text)[:_MOST_FOUND]]]
        if self.vectorstore is not None:
            results = self.vectorstore.similarity_search(text, k=_MOST_FOUND)
            rankings.append([self._passage_of_result(document) for document in results])
        elif vector is not None and self._unit_vectors is not None and self._unit_vectors.size:
            cosines = np.nan_to_num(self._unit_vectors @ np.asarray(vector, np.float32))
            order = np.argsort(-cosines, kind="stable")[:_MOST_FOUND]
            rankings.append([self.passages[number] for number in order])
        found = {passage.text: passage for group in zip_longest(*rankings) for passage in group if passage}
        lengths = accumulate(map(len, found))
        fits = [n < _LEAST_FOUND or (n < _MOST_FOUND and length <= _FOUND_TEXT) for n, length in enumerate(lengths)]
        return list(compress(found.values(), fits))

    def search_corpus(self, text: str) -> Operation[list[Passage]]:
        """Return at most 12 passages nearest to a text, by rare shared words and by similar meaning, the nearest first.

        Embeddings or the vector store rank by meaning; without them only the words count. With embeddings, the text is
        embedded, and so are the passages at the first search. `nearest_passages` describes the order.
        """
        if self.vectorstore is not None or self.embeddings is None:
            return self.nearest_passages(text)
        yield from embed_passages(self)
        (vector,) = yield from _embed_batch(self.embeddings, [text])
        return self.nearest_passages(text, vector)

    @property
    def found_at_most(self) -> int:
        """Estimate of the greatest number of passages that `nearest_passages` returns, from their average length."""
        usual = max(1, sum(map(len, self._by_text)) // max(1, len(self)))
        return min(len(self), max(_LEAST_FOUND, min(_MOST_FOUND, _FOUND_TEXT // usual)))

    def passage_of(self, text: str) -> Passage | None:
        """Return the passage of this store whose text is `text`; None if there is no such passage."""
        return self._by_text.get(text)

    def texts(self) -> Iterator[tuple[str, int, str]]:
        """Yield name (`source`), offset of the first character, and text of each document, before it is split.

        The offset is 0, unless the documents are passages already: it is then the place of the passage in its document.
        """
        for document in self.documents:
            start = _whole(document)[0][1] if self._unnamed else 0
            yield _source_of(document, self._unnamed), start, document.page_content

    def identify(self, passage: Passage) -> Passage:
        """Return the passage with the id that its text has in the vector store; unchanged without a vector store.

        The vector store is searched once for each text. A passage whose text is not found keeps its id.
        """
        if self.vectorstore is None:
            return passage
        if passage.text not in self._store_ids:
            results = self.vectorstore.similarity_search(passage.text, k=1 + _EXTRA_RESULTS)
            found = (chunk_id(document) for document in results if document.page_content == passage.text)
            own = next((known for known in found if known is not None), passage.id)
            self._store_ids[passage.text] = str(own)
        return passage.model_copy(update={"id": self._store_ids[passage.text]})

    def _add(self, passages: Iterable[Passage]) -> None:
        last: dict[str, Passage | None] = {}
        for passage in passages:
            if not passage.text.strip():
                continue
            if passage.text in self._by_text:
                last[passage.source] = None  # passages on both sides of a dropped one are not neighbours
                continue
            if passage.id in self._row_numbers:  # an id of the document, not of its chunk
                passage = passage.model_copy(update={"id": _derived_id(passage.id, passage.text)})
            if previous := last.get(passage.source):
                self._previous[passage.id], self._next[previous.id] = previous, passage
            last[passage.source] = passage
            self._by_text[passage.text] = passage
            self._row_numbers[passage.id] = len(self.passages)
            self.passages.append(passage)

    def _embed(self) -> Operation[UnitVector]:
        """Return a matrix with a row for each passage; NaN for a missing vector or a vector of another length."""
        if self.embeddings is None:
            raise ConfigError("to find similar passages, give the Docstore embeddings=... or vectorstore=...")
        texts = [passage.text for passage in self.passages]
        batches = [texts[at : at + BATCH_SIZE] for at in range(0, len(texts), BATCH_SIZE)]
        parts = yield Gather([_embed_batch(self.embeddings, batch) for batch in batches])
        vectors = [vector for part in parts for vector in part]
        lengths = Counter(len(vector) for vector in vectors if vector is not None)
        ((usual_length, _),) = lengths.most_common(1) or [(0, 0)]
        matrix = np.full((len(vectors), usual_length), np.nan, np.float32)  # comparisons with NaN are false
        for row, vector in enumerate(vectors):
            if vector is not None and len(vector) == usual_length:
                matrix[row] = vector
            elif vector is not None:
                text = self.passages[row].text[:100]
                _LOG.warning(
                    "%s: its vector has %d numbers, not %d", _NO_SIMILAR.format(text), len(vector), usual_length
                )
        return matrix

    def _search(self, store: VectorStore, passage: Passage, floor: float, ceiling: float, k: int) -> list[Passage]:
        results: Sequence[tuple[Document, float | None]]
        try:
            results = store.similarity_search_with_score(passage.text, k=k + _EXTRA_RESULTS)
        except NotImplementedError:
            results = [(document, None) for document in store.similarity_search(passage.text, k=k + _EXTRA_RESULTS)]
        scores = [score for _, score in results if score is not None and abs(score) <= _MAX_COSINE]
        if len(scores) == len(results) and scores == sorted(scores, reverse=True):  # distances grow and may exceed 1
            results = [(doc, score) for doc, score in results if score is not None and floor <= score < ceiling]
        others = {doc.page_content: doc for doc, _ in results if doc.page_content != passage.text}
        return [self._passage_of_result(document) for document in others.values()][:k]

    def _passage_of_result(self, document: Document) -> Passage:
        return self._by_text.get(document.page_content) or next(_passages([document], None))


def check_all_documents(documents: Any) -> Any:
    """Return documents unchanged, or raise an error if they are a str that is not the path of a file or folder.

    Raises:
        ConfigError: if the documents are a str that names no file or folder, such as a path with a typing error. The
            str is not taken as the text of a document; a single text goes in a list.
    """
    if isinstance(documents, str) and not is_path(documents):
        expected = "documents must be a list of all documents, or the path of an existing file or folder"
        raise ConfigError(f"{expected}, got the str {documents[:40]!r}; a single text goes in a list: [text]")
    return documents


def sentence_hashes(text: str) -> dict[int, str]:
    """Return a mapping from the hash of each sentence to the sentence; hashes ignore punctuation, case and spaces."""
    sentences = _SENTENCE_END.split(" ".join(text.split()))
    keyed = ((" ".join(words_of(sentence)), sentence) for sentence in sentences)
    return {int(short_digest(key, 4), 16): s for key, s in keyed if key}


def embed_passages(store: Docstore) -> Operation[None]:
    """Embed the passages of a Docstore, unless they are embedded already or it has a vector store.

    A passage that cannot be embedded, or whose vector is zero or not finite, has no similar passages; a warning in the
    log "langchain_rageval" names it.

    Raises:
        ConfigError: if the Docstore has neither embeddings nor a vector store.
    """
    if store.vectorstore is None and store._unit_vectors is None:
        store._unit_vectors = yield Shared((store, "embedded"), store._embed())


def _passages(documents: Iterable[Document], splitter: TextSplitter | None, unnamed: str = "") -> Iterator[Passage]:
    """Yield the passages of documents: the pieces of a splitter, or for None each document as it is.

    Args:
        documents: documents in order.
        splitter: the splitter; a document that it cannot split is skipped with a warning.
        unnamed: source of documents whose metadata names none; by default a hash of their text.
    """
    for document in documents:
        source = _source_of(document, unnamed)
        pieces = _whole(document) if splitter is None else _split(document, splitter, source)
        for piece, start, end in pieces:
            own = _id_of_piece(piece, document, alone=len(pieces) == 1)
            yield Passage(id=own, text=piece.page_content, source=source, start=start, end=end, metadata=piece.metadata)


def _whole(document: Document) -> list[tuple[Document, int, int]]:
    """Return a document with its span; `start_index` in the metadata is its offset."""
    index = document.metadata.get("start_index")
    start = index if isinstance(index, int) and index >= 0 else 0
    return [(document, start, start + len(document.page_content))]


def _split(document: Document, splitter: TextSplitter, source: str) -> list[tuple[Document, int, int]]:
    try:
        pieces = splitter.split_documents([document])
    except Exception as error:  # splitters raise anything; the other documents are still split
        _LOG.warning("skipped %s, which cannot be split: %s", source, error)
        return []
    spans = accumulate(
        (piece.page_content for piece in pieces),
        lambda last, text: _find_span(document.page_content, text, last),
        initial=(0, 0),
    )
    return [(piece, *span) for piece, span in zip(pieces, islice(spans, 1, None), strict=True)]


def _source_of(document: Document, unnamed: str = "") -> str:
    """Return the name of a document from its metadata, else `unnamed`, else a hash of its text."""
    named = next((str(value) for key in SOURCE_KEYS if (value := document.metadata.get(key))), unnamed)
    return named or f"{UNNAMED_TEXT}{short_digest(document.page_content)}"


def _id_of_piece(piece: Document, document: Document, *, alone: bool) -> str:
    """Return the id of a piece: its own, or one derived from that of its document; "" if there is neither."""
    own, of_document = chunk_id(piece), chunk_id(document)
    if own not in (None, of_document, chunk_id({"metadata": document.metadata})):  # a splitter copies the metadata
        return str(own)
    if of_document is None:
        return ""
    return str(of_document) if alone else _derived_id(of_document, piece.page_content)


def _derived_id(document_id: Any, text: str) -> str:
    return f"{document_id}#{short_digest(text, 4)}"


def _find_span(text: str, piece: str, last: tuple[int, int]) -> tuple[int, int]:
    """Return the position of a piece in a text: after the previous piece, else overlapping with it, else anywhere.

    Returns:
        Offset of the first character and offset after the last one. If only the white space differs, the span of the
        same words; if the text does not hold these words, the whole text.
    """
    start, end = last
    space = _SPACE.match(text, end)
    for at in (end, space.end() if space else end):
        if text.startswith(piece, at):
            return at, at + len(piece)
    for at in (text.find(piece, start + 1), text.find(piece)):
        if at >= 0:
            return at, at + len(piece)
    words = piece.strip(_CUT_CHARACTER).split()
    pattern = re.compile(r"\s+".join(map(re.escape, words)))
    match = (pattern.search(text, start) or pattern.search(text)) if words else None
    return match.span() if match else (0, len(text))


def _embed_batch(embeddings: Embeddings, texts: Sequence[str]) -> Operation[list[UnitVector | None]]:
    """Return unit vectors of texts; None for a text that cannot be embedded.

    If the whole batch is refused, its texts are embedded one at a time.
    """
    try:
        vectors = yield Embed(embeddings, texts)
        return [_normalize(vector, text) for vector, text in zip(vectors, texts, strict=True)]
    except Exception as error:
        if not may_concern_one_text(error):
            raise
        if len(texts) == 1:
            _LOG.warning("%s: %s", _NO_SIMILAR.format(texts[0][:100]), redact_message(error, embeddings))
            return [None]
    units: list[UnitVector | None] = []
    for text in texts:
        units += yield from _embed_batch(embeddings, [text])
    return units


def _normalize(vector: Vector, text: str) -> UnitVector | None:
    """Return the vector scaled to length 1, or None with a warning if it is zero or not finite."""
    largest = np.max(np.abs(vector), initial=0.0)
    if vector.ndim != 1 or not np.isfinite(largest) or largest == 0:
        problem = "a zero vector" if largest == 0 else "numbers that are not a vector"
        _LOG.warning("%s: the embeddings returned %s", _NO_SIMILAR.format(text[:100]), problem)
        return None
    scaled = vector / largest
    unit: UnitVector = (scaled / np.linalg.norm(scaled)).astype(np.float32)
    return unit


def default_splitter(longest: int = _LONGEST_PASSAGE) -> TextSplitter:
    """Return a splitter at headings, paragraphs, then sentences, into passages of at most `longest` characters."""
    from langchain_text_splitters import RecursiveCharacterTextSplitter

    return RecursiveCharacterTextSplitter(
        list(_SEPARATORS), is_separator_regex=True, chunk_size=longest, chunk_overlap=0
    )
