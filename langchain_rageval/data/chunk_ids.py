"""Ids of documents and retrieved chunks: their own, or the one in their metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_KEYS = ("chunk_id", "id", "_id", "doc_id")  # metadata under which stores and data sets keep the id of a chunk


def chunk_id(chunk: Any) -> Any:
    """Return the id of a chunk: its own `id`, else `chunk_id`, `id`, `_id` or `doc_id` of its metadata; None if none.

    Args:
        chunk: a Document, an object or a mapping.
    """
    own = _get(chunk, "id")
    own = _get(chunk, "id_") if own is None else own  # a node of LlamaIndex
    metadata = _get(chunk, "metadata")
    if own is not None or not isinstance(metadata, Mapping):
        return own
    return next((metadata[key] for key in _KEYS if isinstance(metadata.get(key), str | int)), None)


def _get(chunk: Any, name: str) -> Any:
    value = chunk.get(name) if isinstance(chunk, Mapping) else getattr(chunk, name, None)
    return None if callable(value) else value
