"""Documents from files, folders, and whatever else holds texts."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.errors import ConfigError

_LOG = logging.getLogger("langchain_rageval")
_NAMED = 3  # of the files that a warning is about
_NOUNS = ("text", "page_content", "content")  # under which a line or an object keeps its text
_EXPECTED = "expected Documents, texts, a path, a DataFrame or a list of these"


def load_documents(path: str | PathLike[str]) -> Iterator[Document]:
    """Read the documents of a file, or of a folder and all folders in it.

    `.txt` and `.md` are one document each, in UTF-8. A line of `.jsonl` is one, under `text`, `page_content` or
    `content`; its other fields become metadata. `.pdf` gives one for each page, `.csv` one for each row, `.html` and
    `.docx` one each, by LangChain's loaders. Hidden and empty files are passed over; one warning in the log
    "langchain_rageval" tells of each kind of file that nothing here reads, and of each file or line that cannot be
    read.

    Args:
        path: of the file or folder.

    Returns:
        The documents, in the order of their paths, read one file at a time. `metadata["source"]` is the path in the
        folder, or the file's name; for a line of `.jsonl`, its own source if it names one, else path and line.

    Raises:
        ConfigError: at the call, if the path is not there, is a single file that nothing here reads, or a file needs a
            package that is not installed.
    """
    path = Path(path)
    if not path.exists():
        raise ConfigError(f"{path} is not there: name a file or a folder that is")
    if path.is_file() and path.suffix.lower() not in _READERS:
        raise ConfigError(f"{path}: expected one of {', '.join(_READERS)}, got {path.suffix!r}: convert the file")
    files = [path] if path.is_file() else sorted(filter(Path.is_file, path.rglob("*")))
    root = path.parent if path.is_file() else path
    named = {file.relative_to(root).as_posix(): file for file in files if file == path or not _hidden(file, root)}
    readable = {name: file for name, file in named.items() if file.suffix.lower() in _READERS}
    _require_packages(readable)
    _tell_unknown(named.keys() - readable.keys())
    return (document for name, file in readable.items() for document in _read(name, file))


def documents_of(given: Any, *, column: str = "text") -> list[Document]:
    """The texts in something, as LangChain Documents.

    Args:
        given: a Document, a text, an object or a mapping that has one as `text`, `page_content` or `content`, the path
            of a file or folder, a DataFrame, or an iterable of these. A str is a path if there is something at it.
        column: of a DataFrame, or key of a mapping, that holds the texts, "page_content" or "content" where there is no
            "text"; the others become metadata.

    Raises:
        ConfigError: if something holds no text, or a path is not there.
    """
    if hasattr(given, "columns") and hasattr(given, "to_dict"):
        return _table(given, column)
    if _is_one(given):
        return list(_documents(given, column, "documents"))
    if not isinstance(given, Iterable):
        raise ConfigError(f"documents: {_EXPECTED}, got {type(given).__name__}")
    return [doc for at, item in enumerate(given) for doc in _documents(item, column, f"documents[{at}]")]


def _is_one(given: Any) -> bool:
    return isinstance(given, str | Path | Mapping) or any(hasattr(given, noun) for noun in _NOUNS)


def _documents(item: Any, column: str, where: str) -> Iterator[Document]:
    if isinstance(item, Document):
        yield Document(**without_surrogates({"page_content": item.page_content, "metadata": item.metadata}))
    elif isinstance(item, Path) or (isinstance(item, str) and _is_path(item)):
        yield from load_documents(item)
    elif isinstance(item, str):
        yield _document(item, {})
    elif isinstance(item, Mapping):
        yield _record(item, (column, *_NOUNS), f"{where}: ")
    elif nouns := [noun for noun in _NOUNS if isinstance(getattr(item, noun, None), str)]:
        metadata = getattr(item, "metadata", None)
        yield _document(getattr(item, nouns[0]), metadata if isinstance(metadata, Mapping) else {})
    else:
        raise ConfigError(f"{where}: {_EXPECTED}, got {type(item).__name__}")


def _document(text: str, metadata: Mapping[Any, Any]) -> Document:
    return Document(**without_surrogates({"page_content": text, "metadata": dict(metadata)}))


def _record(record: Mapping[Any, Any], nouns: Iterable[str], where: str) -> Document:
    """A mapping as a document: its text, its metadata, and its other fields as metadata."""
    noun = next((noun for noun in nouns if isinstance(record.get(noun), str)), None)
    if noun is None:
        wanted = ", ".join(dict.fromkeys(nouns))
        raise ConfigError(f"{where}expected a text under one of {wanted}, got {sorted(map(str, record))}")
    own = record.get("metadata")
    rest = {str(name): value for name, value in record.items() if name not in (noun, "metadata")}
    return _document(record[noun], rest | (dict(own) if isinstance(own, Mapping) else {}))


def _table(table: Any, column: str) -> list[Document]:
    """One document for each row of a DataFrame with a text; what pandas calls missing is left out."""
    nouns = _NOUNS if column in _NOUNS else (column,)
    column = next((name for name in (column, *nouns) if name in table.columns), "")
    if not column:
        held = [str(name) for name in table.columns]
        raise ConfigError(
            f"documents: the DataFrame has no column {nouns[0]!r}, but {held}: pass the column of the texts alone, as "
            "in table['body']"
        )
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    present = ({name: value for name, value in row.items() if value is not None} for row in rows)
    return [_record(row, (column,), f"documents, row {at}: ") for at, row in enumerate(present) if column in row]


def _is_path(text: str) -> bool:
    """Whether there is a file or folder of that name.

    Raises:
        ConfigError: if it can be nothing but the name of a file, and there is none.
    """
    try:
        there = bool(text.strip()) and Path(text).exists()
    except (OSError, ValueError):  # too long for a name, or a character that no name has
        return False
    if not there and len(text.split()) == 1 and Path(text).suffix.lower() in _READERS:
        raise ConfigError(f"{text} is not there: name a file or a folder that is")
    return there


def _hidden(file: Path, root: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(root).parts)


def _require_packages(files: Mapping[str, Path]) -> None:
    for name, file in files.items():
        module, package = _NEEDED.get(file.suffix.lower(), ("json", ""))
        if not find_spec(module):
            raise ConfigError(f"{name} is read by {package}: pip install {package}")


def _tell_unknown(names: Iterable[str]) -> None:
    by_suffix: dict[str, list[str]] = {}
    for name in sorted(names):
        by_suffix.setdefault(Path(name).suffix.lower(), []).append(name)
    for suffix, of_it in by_suffix.items():
        shown = ", ".join(of_it[:_NAMED]) + (f" and {len(of_it) - _NAMED} more" if len(of_it) > _NAMED else "")
        _LOG.warning("%s: nothing here reads %s; skipped", shown, f"{suffix!r} files" if suffix else "such files")


def _read(name: str, file: Path) -> Iterator[Document]:
    """The documents of a file that hold anything; a warning says what could not be read."""
    try:
        for document in _READERS[file.suffix.lower()](name, file):
            if document.page_content.strip():
                yield document
    except Exception as error:  # whatever a loader raises: the other files are none the worse
        _LOG.warning("%s: %s; skipped", name, error)


def _whole(name: str, file: Path) -> Iterator[Document]:
    yield _document(_decoded(file.read_bytes()).replace("\r\n", "\n"), {"source": name})


def _lines(name: str, file: Path) -> Iterator[Document]:
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    document = _record(_fields(line), _NOUNS, "")
                    document.metadata.setdefault("source", f"{name}:{number}")
                    yield document
                except (ConfigError, RecursionError) as error:
                    _LOG.warning("%s, line %d: %s; skipped", name, number, error)


def _fields(line: bytes) -> Mapping[str, Any]:
    try:
        fields = json.loads(_decoded(line).strip())
    except json.JSONDecodeError as error:
        raise ConfigError(f"not JSON: {error.msg} at column {error.colno}") from error
    if not isinstance(fields, Mapping):
        raise ConfigError("expected a JSON object")
    return fields


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("not UTF-8: save the file as UTF-8") from error


def _by_loader(loader: str, **options: Any) -> Callable[[str, Path], Iterator[Document]]:
    """A reader that has a loader of langchain-community read the file."""

    def read(name: str, file: Path) -> Iterator[Document]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the package says on import that it is winding down
            loaders = import_module("langchain_community.document_loaders")
            load = getattr(loaders, loader)(str(file), **options)
        for document in load.load():
            yield _document(document.page_content, document.metadata | {"source": name})

    return read


_HTML = _by_loader(
    "BSHTMLLoader", open_encoding="utf-8-sig", bs_kwargs={"features": "html.parser"}, get_text_separator=" "
)
_READERS: Mapping[str, Callable[[str, Path], Iterator[Document]]] = {
    ".txt": _whole,
    ".md": _whole,
    ".markdown": _whole,
    ".jsonl": _lines,
    ".ndjson": _lines,
    ".pdf": _by_loader("PyPDFLoader"),
    ".html": _HTML,
    ".htm": _HTML,
    ".docx": _by_loader("Docx2txtLoader"),
    ".csv": _by_loader("CSVLoader", encoding="utf-8-sig"),
}
_NEEDED: Mapping[str, tuple[str, str]] = {
    ".pdf": ("pypdf", "pypdf"),
    ".html": ("bs4", "beautifulsoup4"),
    ".htm": ("bs4", "beautifulsoup4"),
    ".docx": ("docx2txt", "docx2txt"),
}
"""Suffix to the module that its loader needs, and the name under which that is installed."""
