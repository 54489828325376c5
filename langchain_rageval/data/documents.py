"""Convert texts, files, folders, corpora and the documents of other frameworks to LangChain Documents."""

from __future__ import annotations

import codecs
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from html import unescape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_rageval._internal.files import leaves_folder
from langchain_rageval.data.foreign_records import from_serialized
from langchain_rageval.data.json_records import line_records, records_of_json
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.data.tables import (
    Records,
    guess_encoding,
    is_table,
    is_utf8,
    read_lines,
    table_records,
    table_rows,
    wide_encoding,
)
from langchain_rageval.data.vocabulary import folded, metadata_name
from langchain_rageval.errors import ConfigError, RagevalError, SampleError

_LOG = logging.getLogger("langchain_rageval")
SOURCE_KEYS = ("source", "filename", "file_name", "file_path", "path", "url")
"""Names in metadata that may name the document."""


def from_haystack(documents: Any) -> list[Document]:
    """Convert documents of Haystack to LangChain Documents, with their ids.

    `TestsetGenerator.generate` and `Docstore` take Haystack documents as they are; this function is for other uses.

    Args:
        documents: a Haystack `Document` or an iterable of them.

    Returns:
        The documents that have a text, in order. `meta` becomes the metadata. A piece that Haystack's splitter cut from
        a document gets the id of that document as `source` (unless `meta` names a file), and its offset in that
        document as `start_index`. The log "langchain_rageval" gets a warning for each document without a text, such as
        an image.

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
    return _foreign_document(item.content, item.meta, getattr(item, "id", None), extra)


def is_node(item: Any) -> bool:
    """Return True for an object with a method `get_content()`, such as a node or document of LlamaIndex."""
    return callable(getattr(item, "get_content", None)) and not isinstance(item, type)


def node_document(item: Any) -> Document:
    """Convert a node of LlamaIndex: text of `get_content()`, `metadata`, and id `node_id`, `id_` or `id`.

    If the metadata name no file, path or URL, `metadata["source"]` is the id of the node's document (`ref_doc_id`).
    """
    inner = getattr(item, "node", item)  # a node with a score
    metadata = getattr(item, "metadata", None)
    ids = (getattr(inner, name, None) for name in ("node_id", "id_", "id"))
    own_id = next((own for own in ids if isinstance(own, str | int)), None)
    extra = {"source": getattr(inner, "ref_doc_id", None), "start_index": getattr(inner, "start_char_idx", None)}
    return _foreign_document(str(item.get_content()), metadata if isinstance(metadata, Mapping) else {}, own_id, extra)


def _foreign_document(text: str, metadata: Mapping[Any, Any], own_id: Any, extra: Mapping[str, Any]) -> Document:
    """Return a document; a source is added unless the metadata names one, a start unless it is unknown."""
    fields = dict(metadata)
    if isinstance(extra["source"], str) and not any(fields.get(key) for key in SOURCE_KEYS):
        fields["source"] = extra["source"]
    if isinstance(extra["start_index"], int):
        fields.setdefault("start_index", extra["start_index"])
    return _document(text, fields, own_id)


_ID_KEYS = ("id", "_id", "doc_id", "docid", "docno", "pid", "chunk_id")
_DOCUMENT = re.compile(r"<DOC>(.*?)</DOC>", re.DOTALL | re.IGNORECASE)
_DOCNO = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.DOTALL | re.IGNORECASE)
_TITLE = re.compile(r"<(TITLE|HEADLINE|HEAD|TTL)>(.*?)</\1>", re.DOTALL | re.IGNORECASE)
_TEXT = re.compile(r"<TEXT>(.*?)</TEXT>", re.DOTALL | re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_BLANK_LINES = re.compile(r"\n\s*\n+")
_COLLECTION_LINE = re.compile(r"\d+\t[^\t]*\S[^\t]*")


def record_id(record: Mapping[Any, Any]) -> str | None:
    """Return the id of a record: `id`, `_id`, `doc_id`, `docid`, `docno`, `pid` or `chunk_id`; None if it has none."""
    values = (record.get(key) for key in _ID_KEYS)
    return next((str(value) for value in values if isinstance(value, str | int) and str(value).strip()), None)


def titled(title: Any, text: str) -> str:
    """Return a title and a text joined, as retrievers of BEIR and TREC index them; without a title, the text."""
    heading = str(title).strip() if title else ""
    return f"{heading}\n\n{text}" if heading and not text.startswith(heading) else text


def _read_trec(name: str, file: Path) -> Iterator[Document]:
    """Yield each document of a file in TREC's markup: `<DOC>`, `<DOCNO>`, `<TEXT>` and a title.

    Raises:
        ConfigError: if the file holds no such document, as a TREC run.
    """
    documents = _DOCUMENT.findall("".join(read_lines(file, strict=False, name=name)))
    if not documents:
        raise ConfigError("expected TREC documents between <DOC> and </DOC>, got none")
    for number, document in enumerate(documents, 1):
        docno = _DOCNO.search(document)
        title = _TITLE.search(document)
        body = "\n\n".join(_TEXT.findall(document)) or _TITLE.sub("", _DOCNO.sub("", document))
        own_id = docno[1] if docno else f"{name}:{number}"
        yield _document(titled(_plain(title[2]) if title else "", _plain(body)), {"source": own_id}, own_id)


def collection_documents(file: Path) -> Iterator[tuple[str, str]] | None:
    """Return (id, text) pairs of a file whose lines are a number, a tab and a text; None for a table with a header.

    Collections of MS MARCO and TREC Deep Learning have this form.
    """
    if not _COLLECTION_LINE.fullmatch(next(read_lines(file, strict=False), "").rstrip("\r\n")):
        return None
    pairs = (line.rstrip("\r\n").partition("\t") for line in read_lines(file, strict=False))
    return ((number, text) for number, _, text in pairs if text.strip())


def _plain(markup: str) -> str:
    return _BLANK_LINES.sub("\n\n", unescape(_TAG.sub("", markup))).strip()


_MAX_NAMES = 3  # files that a warning names
_TEXT_KEYS = ("text", "page_content", "content")  # of a JSON record, a table or an object
_RUSSIAN_KEYS = ("текст", "текст документа", "содержание", "содержимое")
_CORPUS_KEYS = ("contents", "passage")  # of Anserini and of the passages of MS MARCO
_FOLDED_KEYS = frozenset(map(folded, (*_TEXT_KEYS, *_CORPUS_KEYS, *_RUSSIAN_KEYS)))
_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
_EXPECTED = "expected Documents, texts, a path, a DataFrame or a list of these"


def load_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Load the documents of a file, or of a folder and its subfolders.

    `.txt`, `.md` and `.markdown` files are one document each. In `.jsonl`, `.ndjson` and `.json` files each record is a
    document, with its text under `text`, `page_content`, `content`, `contents`, `passage`, `текст` or
    `содержание`, and its id under `id`, `_id` or `doc_id`; other fields become metadata. Each row of a table in `.csv`,
    `.tsv` or `.xlsx` is a document, too; without a column of these names, its text holds all columns. Of a folder of a
    BEIR data set only `corpus.jsonl` is read, each text under its title. `.trec`, `.trectext`, `.sgml` and `.sgm` files
    hold documents in TREC's markup; a `.tsv` file without a header, such as the collection of MS MARCO, has an id and a
    text in each line. LangChain's loaders read `.pdf` (a document for each page), `.html`, `.htm` and `.docx` (one
    each). Texts are in UTF-8, UTF-16 or a single-byte encoding such as Windows-1251. Hidden and empty files are
    skipped. A symbolic link within a folder is read only if it leads to a file in the same folder; linked folders are
    not entered. A warning in the log "langchain_rageval" names each link that is not read, each unknown kind of file,
    each file or line that cannot be read, and each encoding that is not UTF-8.

    Args:
        path: path of the file or folder.

    Returns:
        The documents, in the order of their paths, read one file at a time. `metadata["source"]` is the path within the
        folder, or the name of the file. For a record, it is the record's own source (`source` or `источник`), or else
        the path and the record's place in the file.

    Raises:
        ConfigError: at the call, if the path does not exist, is a single file of an unknown kind, or a file needs a
            package that is not installed.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{path} does not exist: pass the path of a file or folder")
    if path.is_file() and path.suffix.lower() not in _READERS:
        raise ConfigError(f"{path}: expected one of {', '.join(_READERS)}, got {path.suffix!r}: convert the file")
    files = [path] if path.is_file() else _files_within(path)
    folders = {file.parent for file in files if file.name == "corpus.jsonl"}  # of BEIR data sets
    queries = [file for file in files if file.parent in folders and file.name == "queries.jsonl"]
    judgments = [file for file in files if file.parent.parent in folders and file.parent.name == "qrels"]
    if questions := sorted(queries + judgments):
        shown = ", ".join(file.relative_to(path).as_posix() for file in questions[:_MAX_NAMES])
        _LOG.warning("skipped %s: questions and judgments of a BEIR data set, not documents", shown)
        files = [file for file in files if file not in questions]
    root = path.parent if path.is_file() else path
    by_name = {file.relative_to(root).as_posix(): file for file in files}
    readable = {name: file for name, file in by_name.items() if file.suffix.lower() in _READERS}
    for name, file in readable.items():
        module = _MODULES.get(file.suffix.lower(), "json")
        if not find_spec(module):
            package = module.replace("bs4", "beautifulsoup4")
            raise ConfigError(f"{name} needs {package}, which is not installed: pip install {package}")
    _warn_of_unknown_files(by_name.keys() - readable.keys())
    return (document for name, file in readable.items() for document in _read(name, file))


def to_documents(source: Any) -> list[Document]:
    """Convert texts in any form to LangChain Documents.

    Args:
        source: a Document, an object or mapping with a text under `text`, `page_content` or `content`, a document of
            Haystack, a node of LlamaIndex or another object with `get_content()`, the path of a file or folder, a
            DataFrame (pandas, polars or a table of pyarrow), or an iterable of Documents, texts, objects, mappings and
            `pathlib.Path`s. A str in an iterable is always a text. A str that is passed alone is a path if a file or
            folder of that name exists, otherwise a text; to pass a single text, put it in a list: `[text]`.
            A DataFrame has its texts in the column "text", "page_content" or "content"; other columns become metadata,
            and `id`, `_id` or `doc_id` the id.

    Raises:
        ConfigError: if an item holds no text, or a path does not exist, such as a str that is passed alone and looks
            like the name of a file.
    """
    if is_table(source):
        return _from_table(source)
    if isinstance(source, str) and is_path(source):
        return list(load_documents(source))
    is_single = isinstance(source, str | Path | Mapping) or is_node(source)
    if is_single or any(hasattr(source, key) for key in _TEXT_KEYS):
        return list(_documents(source, "documents"))
    if not isinstance(source, Iterable):
        raise ConfigError(f"documents: {_EXPECTED}, got {type(source).__name__}")
    return [doc for index, item in enumerate(source) for doc in _documents(item, f"documents[{index}]")]


def _documents(item: Any, where: str) -> Iterator[Document]:
    if isinstance(item, Document):
        yield _document(item.page_content, item.metadata, item.id)
    elif isinstance(item, Path):
        yield from load_documents(item)
    elif isinstance(item, str):
        yield _document(item, {})
    elif isinstance(item, Mapping):
        yield _from_mapping(item, _TEXT_KEYS, f"{where}: ")
    elif is_haystack(item):
        document = haystack_document(item)
        yield from [] if document is None else [document]
    elif is_node(item):
        yield node_document(item)
    elif keys := [key for key in _TEXT_KEYS if isinstance(getattr(item, key, None), str)]:
        metadata = getattr(item, "metadata", None)
        own_id = getattr(item, "id", None)
        yield _document(getattr(item, keys[0]), metadata if isinstance(metadata, Mapping) else {}, own_id)
    else:
        raise ConfigError(f"{where}: {_EXPECTED}, got {type(item).__name__}")


def _document(text: str, metadata: Mapping[Any, Any], own_id: Any = None) -> Document:
    own_id = None if own_id is None or callable(own_id) else str(own_id)
    return Document(**without_surrogates({"page_content": text, "metadata": dict(metadata), "id": own_id}))


def _from_mapping(record: Mapping[Any, Any], keys: Iterable[str], prefix: str) -> Document:
    """Convert a mapping to a document: the first text under `keys`; its metadata and other fields become metadata."""
    record = from_serialized(record) or record
    forms = {"text": {"_id", "title"}, "body": {"docid", "title"}}  # of BEIR and of MS MARCO
    titled_keys = (key for key, names in forms.items() if isinstance(record.get(key), str) and names <= record.keys())
    title_key = next(titled_keys, None)
    text_key = title_key or next((key for key in keys if isinstance(record.get(key), str)), None)
    text_key = text_key or next((name for name in record if _is_text_key(name) and isinstance(record[name], str)), None)
    if text_key is None:
        expected = ", ".join(dict.fromkeys(keys))
        raise ConfigError(f"{prefix}expected a text under one of {expected}, got {sorted(map(str, record))}")
    metadata = record.get("metadata")
    fields = {metadata_name(str(name)): value for name, value in record.items() if name not in (text_key, "metadata")}
    fields |= dict(metadata) if isinstance(metadata, Mapping) else {}
    own_id = record_id(record)
    if title_key is None:
        return _document(record[text_key], fields, own_id)
    return _document(titled(record["title"], record[text_key]), {"source": own_id} | fields, own_id)


def _is_text_key(name: Any) -> bool:
    return folded(str(name)) in _FOLDED_KEYS


def _from_table(table: Any) -> list[Document]:
    """Convert each row of a DataFrame that has a text to a document; missing values (NaN) are left out."""
    names = getattr(table, "column_names", table.columns)  # pyarrow keeps the columns themselves in `columns`
    column = next((name for name in (*_TEXT_KEYS, *filter(_is_text_key, names)) if name in names), "")
    if not column:
        raise ConfigError(
            f"documents: the DataFrame has no column 'text', but {[*map(str, names)]}: pass the column of the texts "
            "alone, as in table['body']"
        )
    records = ({name: value for name, value in row.items() if value is not None} for row in table_rows(table))
    return [_from_mapping(row, (column,), f"documents, row {n}: ") for n, row in enumerate(records) if column in row]


def is_path(text: str) -> bool:
    """Return True if a text is the path of an existing file or folder; False for any other text.

    Raises:
        ConfigError: if no such file exists, and the text is one word with the suffix of a readable file, as "faq.pdf".
    """
    try:
        exists = bool(text.strip()) and Path(text).exists()
    except (OSError, ValueError):  # too long for a file name, or an invalid character
        return False
    if not exists and len(text.split()) == 1 and Path(text).suffix.lower() in _READERS:
        raise ConfigError(f"{text} does not exist: pass the path of a file or folder")
    return exists


def _files_within(folder: Path) -> list[Path]:
    """Return the files of a folder in the order of their paths, without hidden files and links out of the folder."""
    parts = ((entry, entry.relative_to(folder).parts) for entry in sorted(folder.rglob("*")))
    entries = [entry for entry, names in parts if not any(name.startswith(".") for name in names)]
    for entry in entries:
        if problem := _link_problem(entry, folder):
            _LOG.warning("%s: %s; skipped", entry.relative_to(folder).as_posix(), problem)
    return [entry for entry in entries if entry.is_file() and not leaves_folder(entry, folder)]


def _link_problem(entry: Path, folder: Path) -> str | None:
    """Return why a symbolic link is not read; None for a link to a file of the folder, and for any other entry."""
    if not entry.is_symlink():
        return None
    if leaves_folder(entry, folder):
        return "the link leads out of the folder"
    if entry.is_dir():
        return "linked folders are not entered"
    return None if entry.exists() else "the link leads to no file"


def _warn_of_unknown_files(names: Iterable[str]) -> None:
    by_suffix: dict[str, list[str]] = {}
    for name in sorted(names):
        by_suffix.setdefault(Path(name).suffix.lower(), []).append(name)
    for suffix, group in by_suffix.items():
        rest = len(group) - _MAX_NAMES
        shown = ", ".join(group[:_MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")
        kind = f"{suffix!r} files" if suffix else "files without a suffix"
        _LOG.warning("skipped %s: %s cannot be read", shown, kind)


def _read(name: str, file: Path) -> Iterator[Document]:
    """Read the documents of a file that are not blank; log a warning if it cannot be read."""
    try:
        for document in _READERS[file.suffix.lower()](name, file):
            if document.page_content.strip():
                yield document
    except Exception as error:  # loaders raise anything; the other files are still read
        _LOG.warning("skipped %s: %s", name, error)


def _read_text(name: str, file: Path) -> Iterator[Document]:
    yield _document("".join(read_lines(file, strict=False, name=name)).replace("\r\n", "\n"), {"source": name})


def _read_records(name: str, file: Path) -> Iterator[Document]:
    """Convert each record of a JSON file to a document; log a warning for one that holds no text."""
    is_json = file.suffix.lower() == ".json"
    records: Records = records_of_json(file, _is_text_key) if is_json else line_records(read_lines(file, strict=False))
    for place, record in records:
        try:
            if isinstance(record, SampleError):
                raise record
            if not isinstance(record, Mapping):
                raise ConfigError("expected a JSON object")
            document = _from_mapping(record, _TEXT_KEYS, "")
            document.metadata.setdefault("source", f"{name}:{place.removeprefix('line ')}")
            yield document
        except (RagevalError, ValueError) as error:
            _LOG.warning("skipped %s, %s: %s", name, place, error)


def _read_table(name: str, file: Path) -> Iterator[Document]:
    """Convert each row of a table: the text column, or without one a line `name: value` for each column."""
    if file.suffix.lower() == ".tsv" and (pairs := collection_documents(file)) is not None:
        yield from (_document(text, {"source": own_id}, own_id) for own_id, text in pairs)
        return
    for number, (_, row) in enumerate(table_records(file, _is_text_key)):
        if isinstance(row, SampleError):
            raise row
        cells = {column: str(cell).strip() for column, cell in row.items() if cell is not None}
        if not any(map(_is_text_key, row)):
            text = "\n".join(f"{column}: {cell}" for column, cell in cells.items())
            yield _document(text, {"source": name, "row": number})
        elif any(map(_is_text_key, cells)):
            document = _from_mapping(cells, _TEXT_KEYS, "")
            document.metadata = {"source": name, "row": number} | document.metadata
            yield document


def _html_encoding(file: Path) -> str:
    """Return UTF-8 if an HTML file is valid UTF-8, else the encoding that it declares or that its letters suggest."""
    content = file.read_bytes()
    if is_utf8(content):
        return "utf-8-sig"
    if declared := _CHARSET.search(content[:4096]):
        try:
            return codecs.lookup(declared[1].decode("ascii")).name
        except LookupError:
            pass
    return wide_encoding(content[:4096]) or guess_encoding(content)


def _by_loader(
    loader: str, encoding: Callable[[Path], str] | None = None, **options: Any
) -> Callable[[str, Path], Iterator[Document]]:
    """Return a reader that uses a document loader of langchain-community; `encoding` is its `open_encoding`."""

    def read(name: str, file: Path) -> Iterator[Document]:
        with warnings.catch_warnings():
            # the package warns on import that it is being wound down
            warnings.simplefilter("ignore", DeprecationWarning)
            loaders = import_module("langchain_community.document_loaders")
            given = {**options, "open_encoding": encoding(file)} if encoding else options
            load = getattr(loaders, loader)(str(file), **given)
        for document in load.load():
            yield _document(document.page_content, document.metadata | {"source": name})

    return read


_HTML = _by_loader("BSHTMLLoader", _html_encoding, bs_kwargs={"features": "html.parser"}, get_text_separator=" ")
_READERS: Mapping[str, Callable[[str, Path], Iterator[Document]]] = {
    **dict.fromkeys((".txt", ".md", ".markdown"), _read_text),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), _read_records),
    ".pdf": _by_loader("PyPDFLoader"),
    **dict.fromkeys((".html", ".htm"), _HTML),
    ".docx": _by_loader("Docx2txtLoader"),
    **dict.fromkeys((".csv", ".tsv", ".xlsx"), _read_table),
    **dict.fromkeys((".trec", ".trectext", ".sgml", ".sgm"), _read_trec),
}
_MODULES = {".pdf": "pypdf", ".html": "bs4", ".htm": "bs4", ".docx": "docx2txt", ".xlsx": "openpyxl"}
"""By suffix the module that the loader needs."""
