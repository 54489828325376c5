"""Data of the page on which a person labels samples without seeing the judge's scores."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from langchain_rageval._internal.page import PageLanguage, cut
from langchain_rageval._internal.review_page import write_review_page
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.text.page_language import page_language

_HIGHEST = 9
"""Highest grade: each has the key of its digit."""


def write_label_page(
    path: str | Path,
    rows: Sequence[Row],
    cells: Sequence[str],
    metric: str,
    *,
    scale: tuple[int, int] | None,
    instruction: str | None,
    language: PageLanguage,
) -> None:
    """Write the page; see `LabelSheet.to_html`.

    Args:
        path: path of the file.
        rows: rows to label.
        cells: ids of the rows, as a sheet holds them.
        metric: name of the metric.
        scale: lowest and highest grade; None for yes or no.
        instruction: what the person decides; None for the question that belongs to the metric.
        language: language of the page's own texts.
    """
    data = {
        "kind": "labels",
        "file": f"{Path(path).stem}.csv",
        "items": [{**_item(row), "cell": cell} for row, cell in zip(rows, cells, strict=True)],
        "verdicts": [{"key": key, "value": value} for key, value in _verdicts(scale)],
        "instruction": _instruction(metric, instruction),
    }
    chosen = page_language(language, (row.sample.question for row in rows))
    write_review_page(path, data, chosen, metric=metric)


def _item(row: Row) -> dict[str, Any]:
    """Return what a person needs to see, without scores, ids and metadata, which may name the model."""
    sample = row.sample
    return {
        "question": cut(sample.question),
        "turns": sample.model_dump(include={"history"}).get("history", []),
        "texts": [["answer", cut(sample.answer or "")], *(["references", cut(text)] for text in sample.references)],
        "passages": [{"parts": [cut(text)]} for text in sample.contexts or []],
    }


def _verdicts(scale: tuple[int, int] | None) -> list[tuple[str, str]]:
    """Return the key and the label of each verdict."""
    if scale is None:
        return [("1", "yes"), ("0", "no")]
    if not (len(scale) == 2 and all(type(grade) is int for grade in scale) and 0 <= scale[0] < scale[1] <= _HIGHEST):
        raise ConfigError(f"scale is the lowest and the highest grade, from 0 to {_HIGHEST}, as (1, 5); got {scale!r}")
    return [(str(grade), str(grade)) for grade in range(scale[0], scale[1] + 1)]


def _instruction(metric: str, instruction: str | None) -> dict[str, str]:
    if instruction is not None:
        return {"en": instruction, "ru": instruction}
    file = files("langchain_rageval.report") / "page_files" / "label_questions.yaml"
    questions = yaml.safe_load(file.read_text(encoding="utf-8"))
    asked: dict[str, str] = questions.get(metric, questions["other"])
    return {language: text.replace("{metric}", metric) for language, text in asked.items()}
