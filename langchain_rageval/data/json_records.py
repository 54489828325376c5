"""Read records from JSON files with a list, columns or JSON lines, and from files of reports and test sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from langchain_rageval.data.tables import IsHead, Records, read_lines
from langchain_rageval.errors import ConfigError, SampleError

OWN_HEADS = ("rageval_report", "rageval_testset")
"""Only key of the lines in a report or a test set that describe the run."""


def line_records(lines: Iterable[str]) -> Records:
    """Yield the JSON value of each line that is not blank, or a SampleError for a line that is not JSON."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.rstrip("\r\n"))
        except json.JSONDecodeError as error:
            problem = f"not valid JSON ({error.msg} at column {error.colno})"
            yield f"line {number}", SampleError(f"{problem}: correct the line, or leave out invalid ones")
        except RecursionError as error:
            yield f"line {number}", SampleError(str(error))
        else:
            if not (isinstance(record, Mapping) and any([*record] == [head] for head in OWN_HEADS)):
                yield f"line {number}", record


def records_of_lines(path: Path, is_head: IsHead) -> Records:
    """Yield the records of a file of JSON lines, or of one JSON value that begins on the first line.

    Such a value is read as in `records_of_json`: an object of lists is read as columns, as `{"question": ["a", "b"]}`,
    only if `is_head` returns True for the name of a column. In JSON lines, each line is a record, without `is_head`.
    """
    lines = read_lines(path)
    start = []
    for line in lines:
        start.append(line)
        if line.strip():
            break
    first = start[-1] if start else ""
    if first.strip() in ("{", "[") or first.lstrip().startswith("["):
        start += lines
        try:
            content = json.loads("".join(start))
        except (ValueError, RecursionError):
            pass  # the lines that are JSON can still be read
        else:
            yield from _items(content, path.name, is_head)
            return
    yield from line_records(chain(start, lines))


def records_of_json(path: Path, is_head: IsHead) -> Records:
    """Yield the records of a JSON file: a list, an object with one list, columns, one record, or JSON lines.

    An object is read as columns, as in `{"question": ["a", "b"]}`, only if `is_head` returns True for one of its keys.

    Raises:
        ConfigError: if the file is not JSON, or it is unclear which values are the records.
    """
    text = "".join(read_lines(path))
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and _is_json(text.lstrip().partition("\n")[0]):
            yield from line_records(text.split("\n"))
            return
        problem = f"{path.name}, line {error.lineno} is not valid JSON ({error.msg})"
        raise ConfigError(f"{problem}; correct it, or use the suffix .jsonl if each line is a sample") from error
    yield from _items(content, path.name, is_head)


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), Mapping)
    except (ValueError, RecursionError):
        return False


def _items(content: Any, name: str, is_head: IsHead) -> Records:
    if isinstance(content, Mapping):
        if (records := _records_in(content, is_head)) is not None:
            yield from records
            return
        lists = [value for value in content.values() if isinstance(value, list)]
        if len(lists) > 1:
            lists = [items for items in lists if items and all(isinstance(item, Mapping) for item in items)] or lists
    else:
        lists = [content] if isinstance(content, list) else []
    if len(lists) != 1:
        problem = f"{name}: expected a list, or an object with one list, got {len(lists)} lists"
        raise ConfigError(f"{problem}: put the samples into one list")
    yield from _numbered(lists[0])


def _numbered(items: Iterable[Any]) -> Records:
    return ((f"item {number}", item) for number, item in enumerate(items, start=1))


def _records_in(content: Mapping[str, Any], is_head: IsHead) -> Records | None:
    """Return the records of an object that is a record, or holds columns or rows by name; None for any other."""
    if all(isinstance(content.get(name), Mapping) for name in ("info", "data")):  # a trace of MLflow
        return _numbered([content])
    heads = [content[name] for name in content if is_head(name)]
    columns = [value for value in content.values() if isinstance(value, list | Mapping)]
    if content.keys() >= {"columns", "data"} and all(isinstance(content[name], list) for name in ("columns", "data")):
        return _numbered(dict(zip(content["columns"], cells, strict=False)) for cells in content["data"])
    if not heads:
        values = [*content.values()]
        rows_by_name = values and all(isinstance(value, Mapping) and any(map(is_head, value)) for value in values)
        named = ((key, row if key.isdecimal() else {"id": key, **row}) for key, row in content.items())
        return ((f"item {key!r}", row) for key, row in named) if rows_by_name else None
    if len(columns) == len(content) and all(isinstance(value, list) for value in columns):
        is_chat = any(isinstance(item, Mapping) and "content" in item for items in heads for item in items)
        if len({*map(len, columns)}) == 1 and not is_chat:
            return _numbered(dict(zip(content, cells, strict=True)) for cells in zip(*columns, strict=True))
        return None
    mappings = [value for value in columns if isinstance(value, Mapping)]
    if len(mappings) == len(content):
        keys = dict.fromkeys(chain.from_iterable(mappings))
        if all(value.keys() == keys.keys() for value in mappings) and not any(map(is_head, keys)):
            return ((f"item {key}", {name: content[name][key] for name in content}) for key in keys)
    return _numbered([content])
