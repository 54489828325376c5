"""Comparison of the rows of a test set with new documents, without calling a model."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.docstore import UNNAMED_TEXT, Docstore
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.text.shared_text import shared_share

_MIN_SHARED = 0.2  # share of the shorter text from which a passage counts as the new version of another one
_BREAK = re.compile(r"\n+|(?<=[.!?…])\s+|(?<=[。！？])")
_SHORTEST_SENTENCE = 20  # characters
_MOSTLY_THE_SAME = 0.8  # share from which one passage holds what became of another
_MAX_VERSIONS = 3  # passages in which the text of one earlier passage is looked for


@dataclass(frozen=True)
class RowUpdate:
    """A row of a test set, compared with new documents.

    Attributes:
        row: the row; with the new spans, ids and metadata of its passages if all of them are in the new documents.
        candidate: its question with the new versions of its passages; None if no passage has changed, or one has
            vanished.
        vanished: True if no document holds a passage or a new version of it.
    """

    row: TestsetRow
    candidate: Candidate | None = None
    vanished: bool = False


class RowUpdates:
    """Comparison of rows with the documents of a Docstore.

    A passage has not changed if a document holds its text, wherever. Otherwise its new versions are the passages of its
    document that share text with it, or that are in its place.

    Args:
        store: new documents.
    """

    def __init__(self, store: Docstore) -> None:
        self._store = store
        self._texts = list(store.texts())
        self._by_source: dict[str, list[Passage]] = {}
        for passage in store.passages:
            self._by_source.setdefault(passage.source, []).append(passage)

    def of(self, row: TestsetRow, seed: int) -> RowUpdate:
        """Return the comparison of a row; `seed` is that of the candidate."""
        earlier = [
            Passage(id=own, text=text, source=source, start=start, end=end)
            for own, text, (source, start, end) in zip(row.passage_ids, row.contexts, row.spans, strict=True)
        ]
        found = [self._find(passage) for passage in earlier]
        if all(found):
            return RowUpdate(self._moved(row, [passage for passage in found if passage]))
        versions = [[passage] if passage else self._versions(old) for passage, old in zip(found, earlier, strict=True)]
        if not all(versions):
            return RowUpdate(row, vanished=True)
        passages = {passage.id: passage for group in versions for passage in group}
        candidate = Candidate(
            passages=list(passages.values()),
            question=row.question,
            chat_history=row.chat_history,
            standalone=row.standalone_question if row.chat_history else "",
            evolution=row.evolution,
            answerable=row.answerable,
            seed=seed,
        )
        return RowUpdate(row, candidate)

    def with_passages(self, row: TestsetRow, passages: Iterable[Passage]) -> TestsetRow:
        """Return the row with other passages."""
        found = [self._store.identify(passage) for passage in passages]
        update = {
            "contexts": [passage.text for passage in found],
            "passage_ids": [passage.id for passage in found],
            "spans": [(passage.source, passage.start, passage.end) for passage in found],
            "metadata": {**row.metadata, **found[0].metadata},
        }
        return row.model_copy(update=update)

    def _moved(self, row: TestsetRow, passages: list[Passage]) -> TestsetRow:
        return self.with_passages(row, passages) if passages else row

    def _find(self, passage: Passage) -> Passage | None:
        """Return the passage at its new place; None if no document holds its text."""
        same = self._store.passage_of(passage.text)
        if same is not None:
            return same
        return next(self._in_documents(passage), None)

    def _in_documents(self, passage: Passage) -> Iterator[Passage]:
        """Yield the passage with the span of its text in each document that holds it, its own document first."""
        words = None
        for source, start, text in sorted(self._texts, key=lambda item: item[0] != passage.source):
            at = text.find(passage.text)
            if at >= 0:
                yield passage.model_copy(
                    update={"source": source, "start": start + at, "end": start + at + len(passage.text)}
                )
            elif source == passage.source:
                words = words or re.compile(r"\s+".join(map(re.escape, passage.text.split())))
                if match := words.search(text):
                    span = {"start": start + match.start(), "end": start + match.end()}
                    yield passage.model_copy(update=span)

    def _versions(self, passage: Passage) -> list[Passage]:
        """Return the passages that hold what became of a changed one, the most similar first."""
        own = self._by_source.get(passage.source, [])
        if same_id := [other for other in own if other.id == passage.id]:
            return same_id
        others = own or (self._with_sentences_of(passage) if passage.source.startswith(UNNAMED_TEXT) else [])
        shares = [(shared_share(passage.text, other.text), other) for other in others]
        best = max((share for share, _ in shares), default=0.0)
        least = best if best >= _MOSTLY_THE_SAME else _MIN_SHARED
        near = [other for share, other in sorted(shares, key=lambda pair: -pair[0]) if share >= least]
        if not near and len({other.start for other in own}) == len(own):
            near = [other for other in own if other.start < passage.end and passage.start < other.end]
        return near[:_MAX_VERSIONS]

    def _with_sentences_of(self, passage: Passage) -> list[Passage]:
        """Return the passages that share the most lines or sentences with a passage of a document without a name.

        Such a document is named after its text, and its new version has another name.
        """
        counts = Counter(number for sentence in _sentences(passage.text) for number in self._by_sentence[sentence])
        return [self._store.passages[number] for number, _ in counts.most_common(_MAX_VERSIONS)]

    @cached_property
    def _by_sentence(self) -> Mapping[str, list[int]]:
        """Numbers of the passages that hold a sentence."""
        numbers: dict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self._store.passages):
            for sentence in _sentences(passage.text):
                numbers[sentence].append(number)
        return numbers


def _sentences(text: str) -> list[str]:
    """Return the lines and sentences of a text that are long enough to be recognized."""
    return [part.strip() for part in _BREAK.split(text) if len(part.strip()) >= _SHORTEST_SENTENCE]
