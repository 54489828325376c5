"""Slices and clusters of samples, by a field of the sample such as a split, a language or a document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.text.language import detect_language

By = str | Callable[[Sample], Any]

NONE = "(none)"
"""Slice of the rows without a value."""

AUTO = "auto"
"""Cluster that groups the samples of a conversation, if there are any; no path of a sample is called so."""

CONVERSATION = "metadata.conversation"
"""Path of the id of the conversation that a sample is a turn of."""


_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


class Slicer:
    """Function from a sample to the name of its slice.

    Args:
        by: a function of the sample; or the name or dotted path of a field, such as "metadata.split", where
            "metadata." may be left out. A "language" that is not in the metadata is detected from the question.

    Raises:
        ConfigError: if `by` is neither a text nor a function.
    """

    def __init__(self, by: By) -> None:
        if not isinstance(by, str) and not callable(by):
            raise ConfigError(f"a slice or cluster is a path such as 'metadata.split', or a function, got {by!r}")
        self._by = by
        self._seen = self._known = False
        self._metadata: set[str] = set()

    def slice_of(self, sample: Sample) -> str | None:
        """Return the value as text, or None if it is missing or blank."""
        label = _text(_value_at(sample, self._by) if isinstance(self._by, str) else self._by(sample))
        self._seen, self._known = True, self._known or label is not None
        self._metadata.update(sample.metadata)
        return label

    def check_known(self) -> None:
        """Raise ConfigError if there were samples and none of them had a value."""
        if self._seen and not self._known:
            fields = ", ".join(f"metadata.{name}" for name in sorted(self._metadata))
            raise ConfigError(f"no sample has a value for {self._by!r}; the metadata are {fields or 'empty'}")


def count_conversations(count: int) -> str:
    """Return the count in words for a note: "1 conversation" or "2 conversations"."""
    return f"{count} conversation{'' if count == 1 else 's'}"


def clusters_of(samples: Iterable[Sample], by: By) -> list[str | int]:
    """Return the cluster of each sample, in order; a sample without a value is a cluster by itself.

    Raises:
        ConfigError: if there are samples and none of them has a value.
    """
    slicer = Slicer(by)
    clusters = [slicer.slice_of(sample) or place for place, sample in enumerate(samples)]
    slicer.check_known()
    return clusters


def conversation_of(sample: Sample) -> str | None:
    """Return the id of the conversation that a sample is a turn of, as text; None if it is no turn of a known one."""
    return _text(_value_at(sample, CONVERSATION))


def in_reading_order(labels: Iterable[str]) -> list[str]:
    """Return the names of slices in their order; in numeric order if all are numbers, such as those of turns."""
    names = list(labels)
    return sorted(names, key=float) if all(map(_NUMBER.fullmatch, names)) else names


def _value_at(sample: Sample, path: str) -> Any:
    head, _, rest = path.partition(".")
    if head in Sample.model_fields:
        return _inside(getattr(sample, head), rest)
    value = _inside(sample.metadata, path)
    return detect_language(sample.question) if value is None and path == "language" else value


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
    except TypeError:  # keys of types that JSON lacks, or that cannot be sorted
        return str(value)
