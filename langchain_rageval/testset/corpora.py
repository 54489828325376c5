"""Corpora of retrieval data sets: BEIR folders, TREC documents and collections in two columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import unescape
from pathlib import Path
from typing import Any

from langchain_rageval.data.encodings import decode_text, read_lines
from langchain_rageval.errors import ConfigError

TREC_SUFFIXES = (".trec", ".trectext", ".sgml", ".sgm")
"""Suffixes of files that hold documents in TREC's markup."""

_BEIR_CORPUS = "corpus.jsonl"
_BEIR_QUERIES = "queries.jsonl"
_BEIR_JUDGMENTS = "qrels"
_ID_KEYS = ("id", "_id", "doc_id", "docid", "docno", "pid", "chunk_id")
_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<(TITLE|HEADLINE|HEAD|TTL)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BLANK_LINES = re.compile(r"\n\s*\n+")
_COLLECTION_LINE = re.compile(r"\d+\t[^\t]*\S[^\t]*")


def record_id(record: Mapping[Any, Any]) -> str | None:
    """Return the id of a record, under `id`, `_id`, `doc_id`, `docid`, `docno`, `pid` or `chunk_id`; None if none."""
    values = (record.get(key) for key in _ID_KEYS)
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), None)


def corpus_key(record: Mapping[Any, Any]) -> str | None:
    """Return the key of the text in a document of BEIR (`_id`, `title`, `text`) or MS MARCO (`docid`, `title`, `body`).

    None for any other record.
    """
    forms = {"text": {"_id", "title"}, "body": {"docid", "title"}}
    return next(
        (key for key, names in forms.items() if isinstance(record.get(key), str) and names <= record.keys()), None
    )


def titled(title: Any, text: str) -> str:
    """Return a text under its title, which retrievers of BEIR and TREC index too; the text alone without a title."""
    heading = str(title).strip() if title else ""
    return f"{heading}\n\n{text}" if heading and not text.startswith(heading) else text


def beir_questions(files: Iterable[Path]) -> list[Path]:
    """Return the files of BEIR data sets that hold no documents: the questions and the relevance judgments."""
    files = list(files)
    folders = {file.parent for file in files if file.name == _BEIR_CORPUS}
    return [
        file
        for file in files
        if (file.parent in folders and file.name == _BEIR_QUERIES)
        or (file.parent.parent in folders and file.parent.name == _BEIR_JUDGMENTS)
    ]


def trec_documents(name: str, file: Path) -> Iterator[tuple[str, str]]:
    """Yield id and text of each document of a file in TREC's markup: `<DOC>`, `<DOCNO>`, `<TEXT>` and a title.

    Raises:
        ConfigError: if the file holds no such document, as a TREC run.
    """
    documents = _DOCUMENT.findall(decode_text(file.read_bytes(), name))
    if not documents:
        raise ConfigError("expected TREC documents between <DOC> and </DOC>, got none")
    for number, document in enumerate(documents, 1):
        docno = _DOCNO.search(document)
        title = _TITLE.search(document)
        body = "\n\n".join(_TEXT.findall(document)) or _TITLE.sub("", _DOCNO.sub("", document))
        yield docno[1] if docno else f"{name}:{number}", titled(_plain(title[2]) if title else "", _plain(body))


def collection_documents(file: Path) -> Iterator[tuple[str, str]] | None:
    """Return ids and texts of a collection without a header: a number, a tab and a text in each line; None for a table.

    Collections of MS MARCO and TREC Deep Learning have this form.
    """
    lines = read_lines(file, strict=False)
    first = next(iter(lines), "").rstrip("\r\n")
    if not _COLLECTION_LINE.fullmatch(first):
        return None
    pairs = (line.rstrip("\r\n").partition("\t") for line in read_lines(file, strict=False))
    return ((number, text) for number, _, text in pairs if text.strip())


def _plain(markup: str) -> str:
    return _BLANK_LINES.sub("\n\n", unescape(_TAG.sub("", markup))).strip()
