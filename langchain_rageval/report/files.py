"""A report on disk: JSON lines, the first about the run, then one row each.

A run that writes its rows as they are finished does not know yet what there is to say about it: its first line says
that it is not complete, and a last one of the same form takes its place when the run ends.
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

Head = Mapping[str, Any]
"""Data about the run of a report: `notes`, `complete`, `left_out`, `instruments`."""

State = tuple[int, int]
"""Size of a file in bytes, and when it was written last in nanoseconds."""

_HEAD = "rageval_report"
HEAD = f'{{"{_HEAD}":'.encode()
"""How the first line begins."""

_INDEX = re.compile(rb'\{"index":(\d+),')
_UNFINISHED: Head = {"notes": [], "complete": False, "left_out": [], "instruments": {}}


class RowsOnDisk(Sequence[Row]):
    """The rows of a report's file, read when they are asked for, in the order of the samples.

    The file is held open, so that replacing or removing it takes no row away. Usable from threads.

    Args:
        path: of the file.
        offsets: where each row begins, in bytes, in the order of the samples.
        state: of the file for which the offsets hold.

    Raises:
        ConfigError: if the file is not there, or has changed since.
    """

    def __init__(self, path: Path, offsets: Sequence[int], state: State) -> None:
        self._path = path
        self._offsets = offsets
        self._state = state
        self._lock = threading.Lock()
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}; its rows are gone") from None
        if _state(self._file) != state:
            self._file.close()
            raise ConfigError(f"{path} is not the file it was; load the report anew")

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._offsets)

    @overload
    def __getitem__(self, place: int) -> Row: ...

    @overload
    def __getitem__(self, place: slice) -> list[Row]: ...

    def __getitem__(self, place: int | slice) -> Row | list[Row]:
        """One row, or a list of them."""
        if isinstance(place, slice):
            return [self._read(offset) for offset in self._offsets[place]]
        return self._read(self._offsets[place])

    def __iter__(self) -> Iterator[Row]:
        """The rows, one in memory at a time."""
        return map(self._read, self._offsets)

    def __eq__(self, other: object) -> bool:
        """Whether the rows are the same, wherever they are kept."""
        if not isinstance(other, RowsOnDisk | list):
            return NotImplemented
        return len(self) == len(other) and all(own == its for own, its in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """How many there are, and where."""
        return f"<{len(self)} rows in {self._path}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or one in another process, opens the file anew."""
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
        """The number of the line at an offset."""
        with self._lock:
            self._file.seek(0)
            return self._file.read(offset).count(b"\n") + 1


class ReportFile:
    """A report that is written while its run goes on, beside its place until the run ends.

    Whatever ends the process, the rows that were finished stand in the file `<name>.part`, which `Report.load` reads.

    Args:
        path: of the report. What stands there stays until this one takes its place.

    Raises:
        ConfigError: if the place cannot be written to.
    """

    def __init__(self, path: str | Path) -> None:
        self._target = Path(path)
        self._part = self._target.with_name(f"{self._target.name}.part")
        self._indexes, self._offsets = array("q"), array("q")
        with _writing(self._target):
            self._file = self._part.open("wb", buffering=0)  # closing a full disk's file would try, and fail, again
        try:
            self._write(head_line(_UNFINISHED))
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        """Write while the block lasts."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the file, where it is."""
        self._file.close()

    def append(self, row: Row) -> None:
        """Write a row; it is on its way to the disk when this returns."""
        offset = self._file.tell()
        self._write(row_line(row))
        self._indexes.append(row.index)
        self._offsets.append(offset)

    @property
    def indexes(self) -> set[int]:
        """Places, in the input, of the samples that are written."""
        return set(self._indexes)

    def finish(self, head: Head) -> RowsOnDisk:
        """Say what there is to say about the run, and put the file in its place."""
        self._write(head_line(head))
        state = _state(self._file)
        with _writing(self._target):
            self._file.close()
            os.replace(self._part, self._target)
        return RowsOnDisk(self._target, _ordered(self._indexes, self._offsets), state)

    def discard(self) -> None:
        """Take the file away; what stands in its place stays."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def _write(self, line: str) -> None:
        left = memoryview(line.encode())
        with _writing(self._target):
            while left:
                left = left[self._file.write(left) :]


def write_report(path: str | Path | TextIO, rows: Iterable[Row], head: Head) -> None:
    """Write a report: beside the target first, then in its place, so that nothing half-written is ever there.

    Args:
        path: of the file; or a file that is open for text, which is written to and left open.
        rows: of the report.
        head: of the report.

    Raises:
        ConfigError: if the place cannot be written to.
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


def read_report(path: str | Path) -> tuple[RowsOnDisk, Head]:
    """Rows and head of a report. Of one that a killed process was writing, what it had written.

    Raises:
        ConfigError: if the file is not there, or is no report.
    """
    indexes, offsets = array("q"), array("q")
    try:
        with Path(path).open("rb") as file:
            line = file.readline()
            head, at = _head(path, line), len(line)
            for number, line in enumerate(file, 2):
                if not head["complete"] and not line.endswith(b"\n"):
                    break
                if line.startswith(HEAD):
                    head = _head(path, line)
                elif line.strip():
                    found = _INDEX.match(line)
                    indexes.append(int(found[1]) if found else _row(path, line, partial(int, number)).index)
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
    """The offsets in the order of the indexes, the last one of each."""
    found, places = np.unique(np.asarray(indexes)[::-1], return_index=True)
    return [int(offset) for offset in np.asarray(offsets)[::-1][places]] if len(found) else []


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    if target.exists() and not target.is_file():
        raise ConfigError(f"{target} cannot be written: it is no file; choose another place")
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{target} cannot be written: {error.strerror}; choose another place") from None


def head_line(head: Head) -> str:
    """A first line, or one that takes its place."""
    return json.dumps({_HEAD: {"version": __version__, **head}}, ensure_ascii=False) + "\n"


def row_line(row: Row) -> str:
    """A row as a line; metadata that JSON cannot hold go in as text."""
    try:
        return row.model_dump_json(fallback=_text) + "\n"
    except PydanticSerializationError:
        sample = row.sample.model_copy(update={"metadata": _writable(row.sample.metadata)})
        return row.model_copy(update={"sample": sample}).model_dump_json(fallback=_text) + "\n"


def _writable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The metadata, with what JSON cannot hold as text: a report is not lost for what is no part of it."""
    written = {}
    for name, value in metadata.items():
        try:
            written[name] = from_json(to_json(value, fallback=_text))
        except ValueError:
            written[name] = _text(value)
    return written


def _text(value: Any) -> str:
    return str(without_surrogates(str(value)))


def _head(path: str | Path, line: bytes) -> Head:
    try:
        head = dict(json.loads(line)[_HEAD])
        head["notes"] = [str(note) for note in head.get("notes", [])]
        head["complete"] = bool(head.get("complete", True))
        head["left_out"] = [(int(index), str(metric)) for index, metric in head.get("left_out", [])]
        head["instruments"] = Provenance.load(head.get("instruments"))
        return head
    except UnicodeDecodeError:
        raise
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path} is no report: its first line lacks {_HEAD!r}; Report.to_jsonl writes it") from None


def _row(path: str | Path, line: bytes, number: Callable[[], int]) -> Row:
    try:
        return Row.model_validate_json(line)
    except ValidationError as error:
        problem = error.errors()[0]
        at: Sequence[Any] = problem["loc"]
        raise ConfigError(
            f"{path}, line {number()}: no row of a report: {'.'.join(map(str, at))}: {problem['msg']}"
        ) from None
