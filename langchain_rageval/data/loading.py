"""Lazy loading of samples from files: JSON lines, JSON, CSV, Parquet and TREC runs."""

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

from langchain_rageval.data.field_names import FIELDS_BY_NAME, LIST_FIELDS, check_fields
from langchain_rageval.data.sample_ids import SampleIds, describe_clash
from langchain_rageval.data.schema import Sample
from langchain_rageval.data.trec import SUFFIXES, Topics, read_trec
from langchain_rageval.errors import ConfigError, SampleError

Fields = Mapping[str, str]
"""Fields of `Sample` mapped to the name or dotted path of their value in a file."""

Records = Iterator[tuple[str, Any]]
"""Records of a file, each after its place, such as "line 7"."""

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
    """Read samples from a file.

    Args:
        path: a `.jsonl`, `.ndjson`, `.json`, `.csv` or `.parquet` file; text files in UTF-8. A `.json` file contains a
            list, or an object with one list. In CSV an empty cell means missing, and lists are written as JSON. A
            `.trec` or `.run` file, or with `qrels` a file of any other suffix, is a TREC run: one sample per topic,
            with the document ids by descending score and, for equal scores, by descending id, as in trec_eval.
        fields: fields of `Sample` mapped to the name or dotted path of their value in the file.
        on_error: "raise" to stop at the first record that is not a valid sample, or has the id of a sample with another
            question; "skip" to omit invalid records and to number such an id, as in `a-2`, each with a warning of the
            logger "langchain_rageval".
        qrels: file of relevance judgments for a TREC run. A topic that is only in this file becomes a sample with no
            retrieved documents; a topic without judgments is omitted, with a warning.
        topics: questions of a TREC run: a mapping of topic id to text, or a file with one line `id<TAB>text` per topic.
            By default the topic id is used as the question.

    Returns:
        Iterator over the samples in file order. Files are read line by line, `.json` files and TREC runs at once.

    Raises:
        ConfigError: at the call, if an argument is invalid or the file cannot be used; during iteration, if the content
            does not match the suffix.
        SampleError: during iteration, with file and line, if a record is not a valid sample and `on_error` is "raise".
    """
    _check_on_error(on_error)
    return _raise_or_skip(_read(path, fields, qrels, topics, number_ids=on_error == "skip"), on_error)


def samples_in_lines(
    lines: Iterable[bytes], name: str, fields: Fields | None = None, on_error: Literal["raise", "skip"] = "raise"
) -> Iterator[Sample]:
    """Like `load_samples`, but read the JSON lines of a stream without a path, such as stdin; `name` is for errors."""
    _check_on_error(on_error)
    check_fields(fields or {})
    records = _json_lines(_decoded(lines, name))
    return _raise_or_skip(_parsed(records, _json_sample, name, fields or {}, on_error == "skip"), on_error)


def read_samples(
    path: str | PathLike[str],
    fields: Fields | None = None,
    *,
    qrels: str | PathLike[str] | None = None,
    topics: Topics | None = None,
) -> Iterator[Sample | SampleError]:
    """Like `load_samples`, but yield a SampleError in the place of each record that is not a valid sample."""
    return _read(path, fields, qrels, topics, number_ids=False)


def _read(
    path: str | PathLike[str],
    fields: Fields | None,
    qrels: str | PathLike[str] | None,
    topics: Topics | None,
    *,
    number_ids: bool,
) -> Iterator[Sample | SampleError]:
    path, fields = Path(path), fields or {}
    judgments = None if qrels is None else Path(qrels)
    suffix = path.suffix.lower()
    check_fields(fields)
    topics_file = Path(topics) if isinstance(topics, str | PathLike) else None
    for file in (path, judgments, topics_file):
        if file and (file.is_dir() or not file.exists()):
            problem = "is a directory" if file.is_dir() else "does not exist"
            raise ConfigError(f"{file} {problem}: pass the path of an existing file")
    if suffix in _FORMATS and (judgments or topics is not None):
        problem = f"{path}: qrels and topics apply only to TREC runs"
        raise ConfigError(f"{problem}; put relevance and question into the samples")
    if suffix in SUFFIXES or judgments:
        if fields:
            raise ConfigError(f"{path}: fields do not apply to TREC runs, whose columns are fixed; omit them")
        return read_trec(path, judgments, topics, _lines)
    if suffix not in _FORMATS:
        known = ", ".join([*_FORMATS, *SUFFIXES])
        raise ConfigError(f"{path}: expected one of {known}, got {suffix!r}: convert the file")
    if suffix == ".parquet" and not find_spec("pyarrow"):
        raise ConfigError(f'{path}: reading Parquet needs pyarrow: pip install "langchain-rageval[pandas]"')
    return _samples(path, suffix, fields, number_ids)


def _check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "skip"):
        raise ConfigError(f"on_error must be 'raise' or 'skip', got {on_error!r}")


def _raise_or_skip(items: Iterator[Sample | SampleError], on_error: str) -> Iterator[Sample]:
    for item in items:
        if isinstance(item, Sample):
            yield item
        elif on_error == "raise":
            raise item
        else:
            _LOG.warning("skipped %s", item)


def _samples(path: Path, suffix: str, fields: Fields, number_ids: bool) -> Iterator[Sample | SampleError]:
    read, decode = _FORMATS[suffix]
    yield from _parsed(read(path), decode, path.name, fields, number_ids)


def _parsed(
    records: Records, decode: Callable[[Any, Fields], Any], name: str, fields: Fields, number_ids: bool
) -> Iterator[Sample | SampleError]:
    """Yield a sample with a distinct id, or an error, for each record.

    Args:
        records: the records of a file, each with its place.
        decode: function that decodes a record.
        name: name of the file, for errors.
        fields: names of the fields.
        number_ids: True to number an id that an earlier sample with another question has, with a warning; False to
            yield an error.
    """
    ids = SampleIds()
    for place, record in records:
        try:
            sample = Sample.parse(decode(record, fields), fields)
        except (SampleError, ValueError, RecursionError) as error:
            located = SampleError(f"{name}, {place}: {error}", getattr(error, "field", None))
            located.__cause__ = error
            yield located
            continue
        if number_ids and ids.clashes(sample):
            numbered = ids.distinct(sample)
            _LOG.warning("%s, %s: %s; renamed to %r", name, place, describe_clash(sample), numbered.id)
            yield numbered
            continue
        try:
            distinct: Sample | SampleError = ids.checked(sample, f"{name}, {place}")
        except SampleError as error:
            distinct = error
        yield distinct


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        yield from _decoded(file, path.name)


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{name}, line {number} is not valid UTF-8; save the file as UTF-8") from error


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
        raise SampleError(f"not valid JSON ({error.msg} at column {error.colno})") from error


def _json_items(path: Path) -> Records:
    try:
        content = json.loads("".join(_lines(path)))
    except json.JSONDecodeError as error:
        problem = f"{path.name}, line {error.lineno} is not valid JSON ({error.msg})"
        raise ConfigError(f"{problem}; correct it, or use the suffix .jsonl if each line is a sample") from error
    values = content.values() if isinstance(content, dict) else [content]
    lists = [value for value in values if isinstance(value, list)]
    if len(lists) != 1:
        problem = f"{path.name}: expected a list, or an object with one list, got {len(lists)} lists"
        raise ConfigError(f"{problem}: put the samples into one list")
    for number, item in enumerate(lists[0], start=1):
        yield f"item {number}", item


def _csv_rows(path: Path) -> Records:
    """Yield rows as (name, cell) pairs, each with the line on which it starts."""
    reader = csv.reader(_lines(path), strict=True)
    names, number = None, 1
    try:
        while (cells := next_row(reader)) is not None:
            if names and cells:
                yield f"line {number}", list(zip_longest(names, cells))
            names, number = names or cells, reader.line_num + 1
    except csv.Error as error:
        raise ConfigError(
            f"{path.name}, line {number} is not valid CSV ({error}); correct the quotation marks"
        ) from error


def next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row of a CSV reader, with cells of any length, or None at the end."""
    with _CSV_LIMIT:  # csv has one limit for the whole process
        limit = csv.field_size_limit(2**31 - 1)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)


def _csv_sample(row: list[tuple[str | None, str | None]], fields: Fields) -> dict[str, Any]:
    if row[-1][0] is None:
        raise SampleError("more cells than names in the header: put text with commas in quotation marks")
    meaning = FIELDS_BY_NAME | {name: field for field, name in fields.items()}
    return {name: _csv_value(cell, meaning.get(name, "")) for name, cell in row if name is not None and cell}


def _csv_value(cell: str, field: str) -> Any:
    """Return the decoded JSON if the field takes a list or a mapping and the cell contains one, else the cell."""
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


def _unchanged(record: Any, _: Fields) -> Any:
    return record


_FORMATS: Mapping[str, tuple[Callable[[Path], Records], Callable[[Any, Fields], Any]]] = {
    ".jsonl": (_json_lines_of, _json_sample),
    ".ndjson": (_json_lines_of, _json_sample),
    ".json": (_json_items, _unchanged),
    ".csv": (_csv_rows, _csv_sample),
    ".parquet": (_parquet_rows, _unchanged),
}
