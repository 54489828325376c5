"""Page on which a person keeps, edits or drops rows; the answer is marked in the passages."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from langchain_rageval._internal.page import PageLanguage, cut, write_review_page
from langchain_rageval.testset.candidate import DROPPED_BY_REVIEWER
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.text.language import page_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import content_words

_WORD = re.compile(r"\S+")
_LONGEST = 50_000
"""Characters of a passage, or of an answer, in which sentences are sought."""
_LEAST_SHARE = 0.2
"""Least share of a statement's words, weighted by rarity, that a marked sentence adds to those before it."""


class _Sentence(NamedTuple):
    passage: int
    begin: int
    end: int
    words: set[str]


class _Folded:
    """Text with single spaces between its words, and the way back to the places of the original."""

    def __init__(self, text: str) -> None:
        words = list(_WORD.finditer(text))
        self.text = " ".join(match[0] for match in words)
        lowered = self.text.lower()
        self.lowered = lowered if len(lowered) == len(self.text) else self.text
        self._begins = [match.start() for match in words]
        self._folded_begins = list(accumulate((len(match[0]) + 1 for match in words), initial=0))

    def original(self, begin: int, end: int) -> tuple[int, int]:
        """Return the span in the original text for a span that is not empty."""
        return self._place(begin), self._place(end - 1) + 1

    def _place(self, at: int) -> int:
        word = bisect(self._folded_begins, at) - 1
        return self._begins[word] + at - self._folded_begins[word]


def mark_answer(answer: str, passages: Sequence[str]) -> list[list[str]]:
    """Return each passage cut into parts, of which every second one is marked; joined they are the passage.

    A sentence of the answer marks the same words in the passages; if they are nowhere, it marks the sentences that
    together hold most of its words. The marks show where to look; they do not prove the answer.
    """
    folded = [_Folded(text[:_LONGEST]) for text in passages]
    sentences = [one for place, text in enumerate(passages) for one in _marked_sentences(place, text, folded[place])]
    frequency = Counter(word for sentence in sentences for word in sentence.words)
    spans: list[set[tuple[int, int]]] = [set() for _ in passages]
    for statement in split_sentences(answer[:_LONGEST]):
        if not content_words(statement):
            continue
        found = [(place, span) for place, text in enumerate(folded) for span in _same_words(statement, text)]
        for place, span in found or _nearest_sentences(statement, sentences, frequency):
            spans[place].add(span)
    return [_parts(text, sorted(marked)) for text, marked in zip(passages, spans, strict=True)]


def _marked_sentences(place: int, text: str, folded: _Folded) -> Iterator[_Sentence]:
    at = 0
    for sentence in split_sentences(text[:_LONGEST]):
        words = _fold(sentence)
        begin = folded.text.find(words, at)
        if begin >= 0:
            at = begin + len(words)
            yield _Sentence(place, *folded.original(begin, at), content_words(sentence))


def _same_words(statement: str, folded: _Folded) -> Iterator[tuple[int, int]]:
    words = _fold(statement.strip(" .!?…«»“”\"'")).lower()
    begin = folded.lowered.find(words)
    while begin >= 0:
        end = begin + len(words)
        if not (_in_word(folded.text, begin) or _in_word(folded.text, end)):
            yield folded.original(begin, end)
        begin = folded.lowered.find(words, end)


def _in_word(text: str, at: int) -> bool:
    """Return True if a word continues across a place of the text."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _fold(text: str) -> str:
    return " ".join(text.split())


def _nearest_sentences(
    statement: str, sentences: Sequence[_Sentence], frequency: Counter[str]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield passage and span of the sentences that hold the words of a statement, the one with most of them first."""
    missing = {word: 1 / max(1, frequency[word]) for word in content_words(statement)}
    least = _LEAST_SHARE * sum(missing.values())
    while missing and sentences:
        weights = [sum(missing.get(word, 0) for word in sentence.words) for sentence in sentences]
        best = max(range(len(sentences)), key=lambda n: (weights[n], -len(sentences[n].words)))
        if weights[best] < least:
            return
        passage, begin, end, words = sentences[best]
        yield passage, (begin, end)
        missing = {word: weight for word, weight in missing.items() if word not in words}


def _parts(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    cuts = [0]
    for begin, end in spans:
        if begin >= cuts[-1]:
            cuts += [begin, end]
        else:
            cuts[-1] = max(cuts[-1], end)  # overlaps the mark before it
    return [text[begin:end] for begin, end in pairwise([*cuts, len(text)])]


_EDITED = {"question", "reference", "history"}
"""Fields of a row that a review changes; the page copies the others as they are."""


def write_testset_page(path: str | Path, rows: Sequence[TestsetRow], header: str, language: PageLanguage) -> None:
    """Write the page; see `Testset.to_html`.

    Args:
        path: path of the file.
        rows: rows of the test set.
        header: first line of the file that `Testset.to_jsonl` writes.
        language: language of the page's own texts.
    """
    chosen = page_language(language, (row.question for row in rows))
    ((mark, run),) = json.loads(header).items()
    data = {
        "kind": "testset",
        "file": reviewed_name(path),
        "items": [_item(row) for row in rows],
        "mark": mark,
        "yields": run.pop("yields"),
        "rejected": [json.dumps(candidate, ensure_ascii=False) for candidate in run.pop("rejected", [])],
        "header": json.dumps(run, ensure_ascii=False),
        "reason": DROPPED_BY_REVIEWER,
    }
    write_review_page(path, data, chosen)


def reviewed_name(path: str | Path) -> str:
    """Return the name of the file that a page saves."""
    return f"{Path(path).stem.removesuffix('.reviewed')}.reviewed.jsonl"


def _item(row: TestsetRow) -> dict[str, Any]:
    """Return the data of a row; `rest` is the text of its unchanged fields, since JavaScript rounds large integers."""
    return {
        "question": row.question,
        "texts": [["reference", row.reference]],
        "passages": list(_passages(row)),
        "history": [trial.model_dump() for trial in row.history],
        "rest": row.model_dump_json(fallback=str, exclude=_EDITED),
    }


def _passages(row: TestsetRow) -> Iterator[dict[str, Any]]:
    texts = [cut(text) for text in row.contexts]
    parts = mark_answer(row.reference, texts) if row.answerable else [[text] for text in texts]
    for place, marked in enumerate(parts):
        passage: dict[str, Any] = {"parts": marked}
        if place < len(row.spans):
            source, begin, end = row.spans[place]
            passage |= {"source": source, "span": [begin, end]}
        if place < len(row.passage_ids):
            passage["id"] = row.passage_ids[place]
        yield passage
