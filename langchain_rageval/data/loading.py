"""Samples from files, read as they are asked for: JSON lines, JSON, CSV, Parquet and TREC runs."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from itertools import zip_longest
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from langchain_rageval.data.field_names import LIST_FIELDS, MEANING, check_fields
from langchain_rageval.data.schema import Sample
from langchain_rageval.data.trec import SUFFIXES, Topics, read_trec
from langchain_rageval.errors import ConfigError, SampleError

Fields = Mapping[str, str]
Records = Iterator[tuple[str, Any]]  # where it stands in the file, such as "line 7", and what stands there

_LOG = logging.getLogger("langchain_rageval")
_CSV_LIMIT = Lock()
_OPENING = {"relevance": "{", "metadata": "{"} | dict.fromkeys(LIST_FIELDS, "[")


def load_samples(
    path: str | PathLike[str],
    fields: Fields | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    *,
    qrels: str | PathLike[str] | None = None,
    topics: Topics | None = None,
) -> Iterator[Sample]:
    """Read the samples of a file.

    Args:
        path: a `.jsonl`, `.ndjson`, `.json`, `.csv` or `.parquet` file, text in UTF-8. A `.json` file is a list, or an
            object with one list. In CSV an empty cell is missing, and a list is written as in JSON. A `.trec` or `.run`
            file, or with `qrels` a file of any other suffix, is a TREC run: a sample for each topic, with the ids of
            the documents by score, of equal score the last id first, as trec_eval has them.
        fields: field of Sample to the name or dotted path that the file has for it.
        on_error: "skip" leaves out what is no sample, with one warning each in the log "langchain_rageval".
        qrels: the grades that people gave to the documents of a TREC run. A topic that only they have is a sample for
            which nothing was retrieved; one that they lack is left out, with a warning.
        topics: the questions of a TREC run: id to text, or a file with a line `id<TAB>text` for each. By default the
            id of the topic stands for its question.

    Returns:
        The samples in the file's order, read line by line; a `.json` file and a TREC run are read whole.

    Raises:
        ConfigError: at the call, if an argument or the file cannot be used; later, if the file is not what its
            suffix says.
        SampleError: later, naming file and line, if a line is no sample.
    """
    _check_on_error(on_error)
    return _settled(read_samples(path, fields, qrels=qrels, topics=topics), on_error)


def samples_in_lines(
    lines: Iterable[bytes], name: str, fields: Fields | None = None, on_error: Literal["raise", "skip"] = "raise"
) -> Iterator[Sample]:
    """As `load_samples`, from the lines of a `.jsonl` file that has no path, such as stdin; errors call it `name`."""
    _check_on_error(on_error)
    check_fields(fields or {})
    return _settled(_parsed(_json_lines(_decoded(lines, name)), _json_sample, name, fields or {}), on_error)


def read_samples(
    path: str | PathLike[str],
    fields: Fields | None = None,
    *,
    qrels: str | PathLike[str] | None = None,
    topics: Topics | None = None,
) -> Iterator[Sample | SampleError]:
    """As `load_samples`, with the error itself in the place of what is no sample."""
    path, fields = Path(path), fields or {}
    judgments = None if qrels is None else Path(qrels)
    suffix = path.suffix.lower()
    check_fields(fields)
    listed = Path(topics) if isinstance(topics, str | PathLike) else None
    for file in (path, judgments, listed):
        if file and (file.is_dir() or not file.exists()):
            raise ConfigError(f"{file} is {'a directory' if file.is_dir() else 'not there'}: name a file that is")
    if suffix in _FORMATS and (judgments or topics is not None):
        raise ConfigError(f"{path}: qrels and topics go with a TREC run; put relevance and question into the samples")
    if suffix in SUFFIXES or judgments:
        if fields:
            raise ConfigError(f"{path}: fields are for other files; a TREC run has columns of its own")
        return read_trec(path, judgments, topics, _lines)
    if suffix not in _FORMATS:
        known = ", ".join([*_FORMATS, *SUFFIXES])
        raise ConfigError(f"{path}: expected one of {known}, got {suffix!r}: convert the file")
    if suffix == ".parquet" and not find_spec("pyarrow"):
        raise ConfigError(f'{path}: Parquet is read by pyarrow: pip install "langchain-rageval[pandas]"')
    return _samples(path, suffix, fields)


def _check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error is 'raise' or 'skip', got {on_error!r}")


def _settled(read: Iterator[Sample | SampleError], on_error: str) -> Iterator[Sample]:
    for item in read:
        if isinstance(item, Sample):
            yield item
        elif on_error == "raise":
            raise item
        else:
            _LOG.warning("%s; skipped", item)


def _samples(path: Path, suffix: str, fields: Fields) -> Iterator[Sample | SampleError]:
    read, decode = _FORMATS[suffix]
    yield from _parsed(read(path), decode, path.name, fields)


def _parsed(
    records: Records, decode: Callable[[Any, Fields], Any], name: str, fields: Fields
) -> Iterator[Sample | SampleError]:
    for place, record in records:
        try:
            yield Sample.parse(decode(record, fields), fields)
        except (SampleError, ValueError, RecursionError) as error:
            unreadable = SampleError(f"{name}, {place}: {error}", getattr(error, "field", None))
            unreadable.__cause__ = error
            yield unreadable


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield from _decoded(file, path.name)


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}, line {number}: not UTF-8: save the file as UTF-8") from error


def _json_lines(lines: Iterable[str]) -> Records:
    for number, line in enumerate(lines, start=1):
        if line.strip():
            yield f"line {number}", line


def _json_lines_of(path: Path) -> Records:
    return _json_lines(_lines(path))


def _json_sample(line: str, _: Fields) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise SampleError(f"not JSON: {error.msg} at column {error.colno}") from error


def _json_items(path: Path) -> Records:
    try:
        content = json.loads("".join(_lines(path)))
    except json.JSONDecodeError as error:
        problem = f"{path.name}, line {error.lineno}: not JSON: {error.msg}"
        raise ConfigError(f"{problem}: mend it, or name the file .jsonl if each line is a sample") from error
    values = content.values() if isinstance(content, dict) else [content]
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) != 1:
        came = f"expected a list, or an object with one list, got {len(lists)} lists"
        raise ConfigError(f"{path.name}: {came}: put the samples into one")
    for number, item in enumerate(lists[0], start=1):
        yield f"item {number}", item


def _csv_rows(path: Path) -> Records:
    """Rows as pairs of name and cell, placed by the line they begin on."""
    reader = csv.reader(_lines(path), strict=True)
    names, number = None, 1
    try:
        while (cells := next_row(reader)) is not None:
            if names and cells:
                yield f"line {number}", list(zip_longest(names, cells))
            names, number = names or cells, reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(f"{path.name}, line {number}: not CSV: {error}: mend the quotes") from error


def next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """The next row, with cells of any length; their limit is global in csv, hence the lock."""
    with _CSV_LIMIT:
        limit = csv.field_size_limit(2**31 - 1)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)


def _csv_sample(row: list[tuple[str | None, str | None]], fields: Fields) -> dict[str, Any]:
    if row[-1][0] is None:
        raise SampleError("more cells than the header has names: put text with commas in quotes")
    meaning = MEANING | {name: field for field, name in fields.items()}
    return {name: _csv_value(cell, meaning.get(name, "")) for name, cell in row if name is not None and cell}


def _csv_value(cell: str, field: str) -> Any:
    """The cell; where its field takes a list or a mapping, what it holds in JSON."""
    if not cell.lstrip().startswith(_OPENING.get(field, ())):
        return cell
    try:
        return json.loads(cell)
    except ValueError:
        return cell


def _parquet_rows(path: Path) -> Records:
    from pyarrow import ArrowInvalid
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
    except ArrowInvalid as error:
        raise ConfigError(f"{path.name}: not Parquet: {error}") from error
    with file:
        rows = (row for batch in file.iter_batches() for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield f"row {number}", row


def _as_read(record: Any, _: Fields) -> Any:
    return record


_FORMATS: Mapping[str, tuple[Callable[[Path], Records], Callable[[Any, Fields], Any]]] = {
    ".jsonl": (_json_lines_of, _json_sample),
    ".ndjson": (_json_lines_of, _json_sample),
    ".json": (_json_items, _as_read),
    ".csv": (_csv_rows, _csv_sample),
    ".parquet": (_parquet_rows, _as_read),
}
