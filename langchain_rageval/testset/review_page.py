"""Page on which a person keeps, edits or drops rows; the evidence for the answer is marked in the passages."""

from __future__ import annotations

import json
import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import PageLanguage, cut, write_review_page
from langchain_rageval.testset.candidate import DROPPED_BY_REVIEWER
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.text.language import page_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import content_words

_WORD = re.compile(r"\S+")
_LONGEST = 50_000
"""Characters of a passage in which sentences are sought."""


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


def mark_sentences(sentences: Iterable[str], passages: Sequence[str]) -> list[list[str]]:
    """Return each passage cut into parts, of which every second one is marked; joined they are the passage.

    Args:
        sentences: sentences whose words are marked wherever they occur.
        passages: the passages.
    """
    folded = [_Folded(text[:_LONGEST]) for text in passages]
    statements = [sentence for sentence in sentences if content_words(sentence)]
    spans = [{span for statement in statements for span in _same_words(statement, text)} for text in folded]
    return [_parts(text, sorted(marked)) for text, marked in zip(passages, spans, strict=True)]


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
    statements = row.evidence or split_sentences(row.reference[:_LONGEST])
    parts = mark_sentences(statements if row.answerable else [], texts)
    for place, marked in enumerate(parts):
        passage: dict[str, Any] = {"parts": marked}
        if place < len(row.spans):
            source, begin, end = row.spans[place]
            passage |= {"source": source, "span": [begin, end]}
        if place < len(row.passage_ids):
            passage["id"] = row.passage_ids[place]
        yield passage
