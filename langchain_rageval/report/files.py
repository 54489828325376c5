"""Files of reports: JSON lines, a head with notes and state of the run, then one line for each row.

A run that writes its rows when they are finished begins with a head that is marked as incomplete. When the run ends, a
second head at the end of the file replaces the first one.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self, TextIO, overload

import numpy as np
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Provenance
from langchain_rageval.data.schema import Row, without_surrogates
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.decision import Decision

Head = Mapping[str, Any]
"""Data of a report about its run: `notes`, `complete`, `left_out` and `instruments`."""

State = tuple[int, int]
"""Size of a file in bytes, and time of its last change in nanoseconds."""

_HEAD = "rageval_report"
HEAD = f'{{"{_HEAD}":'.encode()
"""First bytes of a head line."""

_INDEX = re.compile(rb'\{"index":(\d+),')
_UNFINISHED: Head = {"notes": [], "complete": False, "left_out": [], "instruments": {}}


class RowsOnDisk(Sequence[Row]):
    """Sequence of the rows in a report's file, in the order of the samples; a row is read when it is accessed.

    The file stays open, so its rows remain readable if it is replaced or removed. Thread-safe.

    Args:
        path: path of the file.
        offsets: offset of each row in bytes, in the order of the samples.
        state: state of the file to which the offsets belong.

    Raises:
        ConfigError: if the file does not exist or has changed.
    """

    def __init__(self, path: Path, offsets: Sequence[int], state: State) -> None:
        self._path = path
        self._offsets = offsets
        self._state = state
        self._lock = threading.Lock()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; its rows are lost") from None
        if _state(self._file) != state:
            self._file.close()
            raise ConfigError(f"{path} has changed; load the report again")

    def __len__(self) -> int:
        """Return the number of rows in the file."""
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        """Return one row of the file, or a list of rows for a slice."""
        if isinstance(place, slice):
            return [self._read(offset) for offset in self._offsets[place]]
        return self._read(self._offsets[place])

    def __iter__(self) -> Iterator[Row]:
        """Iterate over the rows, with one in memory at a time."""
        return map(self._read, self._offsets)

    def __eq__(self, other: object) -> bool:
        """Return True if the rows are equal, in a file or in a list."""
        if not isinstance(other, RowsOnDisk | list):
            return NotImplemented
        return len(self) == len(other) and all(own == its for own, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the sequence as text: the number of rows and the path of the file."""
        return f"<{len(self)} rows in {self._path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce to path, offsets and state; a copy opens the file again."""
        return RowsOnDisk, (self._path.absolute(), self._offsets, self._state)

    def __del__(self) -> None:
        """Close the file."""
        if hasattr(self, "_file"):
            self._file.close()

    def _read(self, offset: int) -> Row:
        with self._lock:
            self._file.seek(offset)
            line = self._file.readline()
        return _row(self._path, line, lambda: self._number_of(offset))

    def _number_of(self, offset: int) -> int:
        """Return the number of the line at an offset."""
        with self._lock:
            self._file.seek(0)
            return self._file.read(offset).count(b"\n") + 1


class ReportFile:
    """File of a report that is written during its run, under the name `<name>.part` until the run ends.

    If the process is killed, the `.part` file holds the finished rows, and `Report.load` reads it.

    Args:
        path: path of the report. An existing file is replaced when the run ends.

    Raises:
        ConfigError: if the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self._target = Path(path)
        self._part = self._target.with_name(f"{self._target.name}.part")
        self._indexes, self._offsets = array("q"), array("q")
        with _writing(self._target):
            self._file = self._part.open(
                "wb", buffering=0
            )  # a buffer would be flushed again on close, and fail again on a full disk
        try:
            self._write(head_line(_UNFINISHED))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        """Return the file, for use in a `with` block."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the file without renaming it."""
        self._file.close()

    def append(self, row: Row) -> None:
        """Write a row; the data is passed to the operating system before this returns."""
        offset = self._file.tell()
        self._write(row_line(row))
        self._indexes.append(row.index)
        self._offsets.append(offset)

    @property
    def indexes(self) -> set[int]:
        """Indexes of the samples that are written."""
        return set(self._indexes)

    def finish(self, head: Head) -> RowsOnDisk:
        """Write the final head, rename the file to its final name, and return its rows."""
        self._write(head_line(head))
        state = _state(self._file)
        with _writing(self._target):
            self._file.close()
            os.replace(self._part, self._target)
        return RowsOnDisk(self._target, _ordered(self._indexes, self._offsets), state)

    def discard(self) -> None:
        """Remove the `.part` file; an existing report at the final path is unchanged."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        left = memoryview(line.encode())
        with _writing(self._target):
            while left:
                left = left[self._file.write(left) :]


def write_report(path: str | Path | TextIO, rows: Iterable[Row], head: Head) -> None:
    """Write a report to a temporary file and rename it, so that the target is never half-written.

    Args:
        path: path of the file; or an open text file, which stays open.
        rows: rows of the report.
        head: head of the report.

    Raises:
        ConfigError: if the file cannot be written.
    """
    lines = chain([head_line(head)], map(row_line, rows))
    if not isinstance(path, str | Path):
        path.writelines(lines)
        return
    target = Path(path)
    with _writing(target):
        handle, beside = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
            os.chmod(beside, 0o644)
            os.replace(beside, target)
        except BaseException:
            os.unlink(beside)
            raise


def is_report(path: str | Path) -> bool:
    """Return True if a file begins like a report that `write_report` wrote; False if it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(HEAD)) == HEAD
    except OSError:
        return False


def read_report(path: str | Path) -> tuple[RowsOnDisk, Head]:
    """Return the rows and the head of a report; of an interrupted one, the rows that were written completely.

    Raises:
        ConfigError: if the file does not exist or is not a report.
    """
    indexes, offsets = array("q"), array("q")
    try:
        with Path(path).open("rb") as file:
            line = file.readline()
            if not line:
                raise ConfigError(f"{path} is empty: nothing was written to it yet")
            head, at = _head(path, line), len(line)
            for number, line in enumerate(file, 2):
                if not head["complete"] and not line.endswith(b"\n"):
                    break
                if line.startswith(HEAD):
                    head = _head(path, line)
                elif line.strip():
                    match = _INDEX.match(line)
                    indexes.append(int(match[1]) if match else _row(path, line, partial(int, number)).index)
                    offsets.append(at)
                at += len(line)
            state = _state(file)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}; name a file that Report.to_jsonl wrote") from None
    return RowsOnDisk(Path(path), _ordered(indexes, offsets), state), head


def _state(file: IO[bytes]) -> State:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _ordered(indexes: array[int], offsets: array[int]) -> list[int]:
    """Return the offsets of the rows in the order of their indexes; for a repeated index, the last offset."""
    distinct, places = np.unique(np.asarray(indexes)[::-1], return_index=True)
    return [int(offset) for offset in np.asarray(offsets)[::-1][places]] if len(distinct) else []


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} cannot be written: it is not a file; choose another path")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another path") from None


def head_line(head: Head) -> str:
    """Return the head of a report as a line of JSON."""
    return json.dumps({_HEAD: {"version": __version__, **head}}, ensure_ascii=False) + "\n"


def row_line(row: Row) -> str:
    """Return a row as a line of JSON; metadata that JSON cannot represent are written as text."""
    exclude = None if row.audit else {"audit"}
    try:
        return row.model_dump_json(fallback=_text, exclude=exclude) + "\n"
    except PydanticSerializationError:
        sample = row.sample.model_copy(update={"metadata": _writable(row.sample.metadata)})
        return row.model_copy(update={"sample": sample}).model_dump_json(fallback=_text, exclude=exclude) + "\n"


def _writable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata with values that JSON cannot represent as text: they must not prevent writing a report."""
    writable = {}
    for name, value in metadata.items():
        try:
            writable[name] = from_json(to_json(value, fallback=_text))
        except ValueError:
            writable[name] = _text(value)
    return writable


def _text(value: Any) -> str:
    return str(without_surrogates(str(value)))


def _head(path: str | Path, line: bytes) -> Head:
    try:
        head = dict(json.loads(line)[_HEAD])
        head["notes"] = [str(note) for note in head.get("notes", [])]
        head["complete"] = bool(head.get("complete", True))
        head["left_out"] = [(int(index), str(metric)) for index, metric in head.get("left_out", [])]
        head["instruments"] = Provenance.load(head.get("instruments"))
        head |= {key: str(head.get(key, "")) for key in ("name", "finished", "version")}
        decisions = dict(head.get("decisions") or {})
        head["decisions"] = {str(name): Decision.from_dict(one) for name, one in decisions.items()}
        return head
    except UnicodeDecodeError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"{path} is not a report: its first line lacks {_HEAD!r}; Report.to_jsonl writes it"
        ) from None


def _row(path: str | Path, line: bytes, number: Callable[[], int]) -> Row:
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        location = ".".join(map(str, problem["loc"])) or "JSON"
        raise ConfigError(f"{path}, line {number()}: not a row of a report: {location}: {problem['msg']}") from None
