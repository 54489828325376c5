"""Slices: the rows of a report by what their samples hold, such as a split, a language or a document."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.text.language import detect_language

By = str | Callable[[Sample], Any]

NONE = "(none)"
"""Slice of the rows that have no such value."""


class Labelled:
    """Tells samples apart by a value of theirs, one after the other.

    Args:
        by: a function of the sample; or the name or dotted path of a field, such as "metadata.split", where
            "metadata." may be left out; "language" that no metadata tells is detected from the question.
    """

    def __init__(self, by: By) -> None:
        if not isinstance(by, str) and not callable(by):
            raise ConfigError(f"a slice or cluster is a path such as 'metadata.split', or a function, got {by!r}")
        self._by = by
        self._seen = self._known = False
        self._metadata: set[str] = set()

    def of(self, sample: Sample) -> str | None:
        """The value as text, None where it is missing or blank."""
        label = _text(_followed(sample, self._by) if isinstance(self._by, str) else self._by(sample))
        self._seen, self._known = True, self._known or label is not None
        self._metadata.update(sample.metadata)
        return label

    def refuse_unknown(self) -> None:
        """Raise ConfigError if there were samples, and none had such a value."""
        if self._seen and not self._known:
            held = ", ".join(f"metadata.{name}" for name in sorted(self._metadata))
            raise ConfigError(f"no sample has a value for {self._by!r}; the metadata are {held or 'empty'}")


def clusters(samples: Iterable[Sample], by: By) -> list[str | int]:
    """To which cluster each sample belongs; one without such a value is alone in its own.

    Raises:
        ConfigError: if there are samples, and none has such a value.
    """
    labelled = Labelled(by)
    found = [labelled.of(sample) or place for place, sample in enumerate(samples)]
    labelled.refuse_unknown()
    return found


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
    try:
        return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    except TypeError:  # keys that JSON does not know, or of several kinds
        return str(value)
