"""Slices: the rows of a report by what their samples hold, such as a split, a language or a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.language import detect_language
from langchain_rageval.schema import Row, Sample

By = str | Callable[[Sample], Any]

NONE = "(none)"
"""Slice of the rows that have no such value."""


def slices(rows: Sequence[Row], by: By) -> dict[str, list[Row]]:
    """The rows by a value of their samples, in the order in which the values are met; `NONE` last."""
    found: dict[str, list[Row]] = {}
    for row, label in zip(rows, labels([row.sample for row in rows], by), strict=True):
        found.setdefault(NONE if label is None else label, []).append(row)
    without = found.pop(NONE, None)
    return found if without is None else {**found, NONE: without}


def clusters(samples: Sequence[Sample], by: By) -> list[str | int]:
    """To which cluster each sample belongs; one without such a value is alone in its own."""
    return [place if label is None else label for place, label in enumerate(labels(samples, by))]


def labels(samples: Sequence[Sample], by: By) -> list[str | None]:
    """A value of each sample as text, None where it is missing or blank.

    Args:
        samples: in any number.
        by: a function of the sample; or the name or dotted path of a field, such as "metadata.split", where
            "metadata." may be left out; "language" that no metadata tells is detected from the question.
    """
    return [_text(_followed(sample, by) if isinstance(by, str) else by(sample)) for sample in samples]


def refuse_unknown(samples: Sequence[Sample], by: By) -> None:
    """Raise ConfigError if there are samples, and none has such a value."""
    if samples and not any(labels(samples, by)):
        held = sorted({f"metadata.{name}" for sample in samples for name in sample.metadata})
        raise ConfigError(f"no sample has a value for {by!r}; the metadata are {', '.join(held) or 'empty'}")


def _followed(sample: Sample, path: str) -> Any:
    head, _, rest = path.partition(".")
    if head in Sample.model_fields:
        return _inside(getattr(sample, head), rest)
    found = _inside(sample.metadata, path)
    return detect_language(sample.question) if found is None and path == "language" else found


def _inside(value: Any, path: str) -> Any:
    if not path or value is None:
        return value
    if not isinstance(value, Mapping):
        return None
    if path in value:
        return value[path]
    head, _, rest = path.partition(".")
    return _inside(value.get(head), rest) if rest else None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return (value or "").strip() or None
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
