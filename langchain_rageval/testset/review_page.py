"""Data of the page on which a person looks through a test set, and keeps, edits or drops each row."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from langchain_rageval._internal.page import PageLanguage, cut
from langchain_rageval._internal.review_page import write_review_page
from langchain_rageval.testset.answer_marks import mark_answer
from langchain_rageval.testset.candidate import DROPPED_BY_REVIEWER
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.text.page_language import page_language

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
