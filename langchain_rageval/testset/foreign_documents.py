"""Documents and nodes of other frameworks: Haystack, LlamaIndex and objects of the same form."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.documents import Document

from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import ConfigError

_LOG = logging.getLogger("langchain_rageval")
_SOURCE_KEYS = ("source", "filename", "file_name", "file_path", "path", "url")  # metadata that may name the document


def from_haystack(documents: Any) -> list[Document]:
    """Convert documents of Haystack to LangChain Documents, with their ids.

    `TestsetGenerator.generate` and `Docstore` take Haystack documents as they are; this function is for other uses.

    Args:
        documents: a Haystack `Document` or an iterable of them.

    Returns:
        The documents that have a text, in order. `meta` becomes the metadata; pieces of one document that Haystack's
        splitter made have its id as `source` (unless `meta` names a file) and their offset as `start_index`. A warning
        in the log "langchain_rageval" counts documents without a text, such as images.

    Raises:
        ConfigError: if an item is not a Haystack document.
    """
    items = [documents] if is_haystack(documents) else documents
    if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
        raise ConfigError(f"from_haystack expected Haystack documents, got {type(documents).__name__}")
    items = list(items)
    for place, item in enumerate(items):
        if not is_haystack(item):
            raise ConfigError(f"documents[{place}]: expected a Haystack document, got {type(item).__name__}")
    return [document for item in items if (document := haystack_document(item)) is not None]


def is_haystack(item: Any) -> bool:
    """Return True for an object with the fields of a Haystack document: `content` and `meta`."""
    return hasattr(item, "content") and isinstance(getattr(item, "meta", None), Mapping)


def haystack_document(item: Any) -> Document | None:
    """Convert a Haystack document; None with a warning if it has no text."""
    if not isinstance(item.content, str):
        _LOG.warning("skipped the Haystack document %s, which has no text", getattr(item, "id", ""))
        return None
    extra = {"source": item.meta.get("source_id"), "start_index": item.meta.get("split_idx_start")}
    return _document(item.content, item.meta, getattr(item, "id", None), extra)


def is_node(item: Any) -> bool:
    """Return True for an object with a method `get_content()`, such as a node or document of LlamaIndex."""
    return callable(getattr(item, "get_content", None)) and not isinstance(item, type)


def node_document(item: Any) -> Document:
    """Convert a node: text of `get_content()`, `metadata`, and id `node_id`, `id_` or `id`.

    Nodes without a file name in their metadata are named by their document (`ref_doc_id`).
    """
    inner = getattr(item, "node", item)  # a node with a score
    metadata = getattr(item, "metadata", None)
    ids = (getattr(inner, name, None) for name in ("node_id", "id_", "id"))
    own_id = next((own for own in ids if isinstance(own, str | int)), None)
    extra = {"source": getattr(inner, "ref_doc_id", None), "start_index": getattr(inner, "start_char_idx", None)}
    return _document(str(item.get_content()), metadata if isinstance(metadata, Mapping) else {}, own_id, extra)


def _document(text: str, metadata: Mapping[Any, Any], own_id: Any, extra: Mapping[str, Any]) -> Document:
    """Return a document; a source is added unless the metadata names one, a start unless it is unknown."""
    fields = dict(metadata)
    if isinstance(extra["source"], str) and not any(fields.get(key) for key in _SOURCE_KEYS):
        fields["source"] = extra["source"]
    if isinstance(extra["start_index"], int):
        fields.setdefault("start_index", extra["start_index"])
    own_id = None if own_id is None else str(own_id)
    return Document(**without_surrogates({"page_content": text, "metadata": fields, "id": own_id}))
