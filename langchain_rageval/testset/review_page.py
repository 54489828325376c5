"""HTML page on which a person reviews a test set; the page marks the evidence for each answer in the passages."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import PageLanguage, cut, write_review_page
from langchain_rageval.testset.candidate import Reason
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.text.language import page_language
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.words import content_words

_LONGEST = 50_000  # characters of a passage, or of a reference, in which sentences are sought
_LEAST_SHARE = 0.2  # of a sentence's words, weighted by rarity, that a near sentence adds to those before it


def mark_sentences(sentences: Iterable[str], passages: Sequence[str], *, nearest: bool = False) -> list[list[str]]:
    """Split each passage into parts, of which the 2nd, 4th, ... are to be marked and the 1st, 3rd, ... are not.

    The parts of a passage, joined, are the passage.

    Args:
        sentences: sentences to mark, each wherever a passage contains all its words one after the other. White space
            and upper and lower case do not count.
        passages: the passages.
        nearest: True to mark, for a sentence that no passage contains, the passage sentences that together hold most
            of its words; False to mark nothing for such a sentence.
    """
    texts = [text[:_LONGEST] for text in passages]
    known = {s: content_words(s) for text in texts for s in split_sentences(text)} if nearest else {}
    marked: list[set[tuple[int, int]]] = [set() for _ in texts]
    for sentence in filter(content_words, sentences):
        is_there = any(_same_words(sentence, text) for text in texts)
        for wanted in [sentence] if is_there else _nearest(sentence, known):
            for spans, text in zip(marked, texts, strict=True):
                spans.update(_same_words(wanted, text))
    return [_parts(text, sorted(spans)) for text, spans in zip(passages, marked, strict=True)]


def _same_words(sentence: str, text: str) -> list[tuple[int, int]]:
    pattern = r"\s+".join(map(re.escape, sentence.strip(" .!?…«»“”\"'").split()))
    spans = [match.span() for match in re.finditer(pattern, text, re.IGNORECASE)]
    between = [(span, (text[at - 1 : at + 1] for at in span if 0 < at < len(text))) for span in spans]
    return [span for span, pairs in between if not any(map(str.isalnum, pairs))]  # which a word continues across


def _nearest(sentence: str, known: Mapping[str, set[str]]) -> Iterator[str]:
    """Yield the sentences that together hold most of the words of a sentence, the one with most of them first."""
    frequency = Counter(word for words in known.values() for word in words)
    missing = {word: 1 / max(1, frequency[word]) for word in content_words(sentence)}
    least = _LEAST_SHARE * sum(missing.values())
    while missing and known:
        weights = {other: sum(missing.get(word, 0) for word in words) for other, words in known.items()}
        best = max(weights, key=lambda other: (weights[other], -len(known[other])))
        if weights[best] < least:
            return
        yield best
        missing = {word: weight for word, weight in missing.items() if word not in known[best]}


def _parts(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    cuts = [0]
    for begin, end in spans:
        if begin >= cuts[-1]:
            cuts += [begin, end]
        else:
            cuts[-1] = max(cuts[-1], end)  # overlaps the mark before it
    return [text[begin:end] for begin, end in pairwise([*cuts, len(text)])]


def write_testset_page(path: str | Path, rows: Sequence[TestsetRow], header: str, language: PageLanguage) -> None:
    """Write the review page of a test set; see `Testset.to_html`.

    Args:
        path: path of the file.
        rows: rows of the test set.
        header: first line of the file that `Testset.to_jsonl` writes.
        language: language of the labels on the page.
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
        "reason": Reason.DROPPED_BY_REVIEWER,
    }
    write_review_page(path, data, chosen)


def reviewed_name(path: str | Path) -> str:
    """Return the file name, such as "a.reviewed.jsonl", under which the review page at `path` saves the decisions."""
    return f"{Path(path).stem.removesuffix('.reviewed')}.reviewed.jsonl"


def _item(row: TestsetRow) -> dict[str, Any]:
    """Return the data of a row; `rest` is the text of its unchanged fields, since JavaScript rounds large integers."""
    return {
        "question": row.question,
        "texts": [["reference", row.reference]],
        "passages": list(_passages(row)),
        "marks": "evidence" if row.evidence else "nearest",
        "history": [trial.model_dump() for trial in row.history],
        "rest": row.model_dump_json(fallback=str, exclude={"question", "reference", "history"}),  # a review edits these
    }


def _passages(row: TestsetRow) -> Iterator[dict[str, Any]]:
    texts = [cut(text) for text in row.contexts]
    statements = row.evidence or split_sentences(row.reference[:_LONGEST])
    parts = mark_sentences(statements if row.answerable else [], texts, nearest=not row.evidence)
    for place, marked in enumerate(parts):
        passage: dict[str, Any] = {"parts": marked}
        if place < len(row.spans):
            source, begin, end = row.spans[place]
            passage |= {"source": source, "span": [begin, end]}
        if place < len(row.passage_ids):
            passage["id"] = row.passage_ids[place]
        yield passage
