"""JsonlSink: rows as lines of JSON, in a file that is a report."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.files import HEAD, head_line, row_line

if sys.platform != "win32":
    import fcntl

_CHUNK = 65_536


class JsonlSink:
    """Appends each row to a file that `Report.load` reads. Usable from threads, and by several processes at once.

    A row's `index` is its place in the file, in bytes: it tells rows of several processes apart and puts them in order.
    Whatever a killed process left half-written is cut off by the next one.

    Args:
        path: of the file; made, like its folder, when the first row comes.
        max_bytes: a file that would grow beyond this is renamed to `<name>.1`, the one before to `<name>.2`, and so on;
            None lets it grow.
        backups: renamed files that are kept.

    Attributes:
        notes: what the report says of its rows.

    Raises:
        ConfigError: if an option cannot be used, or the path is a folder or a file that is no report; on Windows, where
            a file that is open can be neither locked in this way nor renamed.
    """

    def __init__(self, path: str | Path, max_bytes: int | None = 100_000_000, backups: int = 5) -> None:
        if sys.platform == "win32":
            raise ConfigError("JsonlSink cannot share a file on Windows; write SqliteSink(path)")
        self.path = Path(path)
        self.notes: list[str] = []
        self._max_bytes = max_bytes
        self._backups = backups
        self._turn = PerProcess(threading.Lock)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; name a file in it")
        if self.path.exists():
            with self.path.open("rb") as file:
                self._refuse_foreign(file.read(len(HEAD)))
        if max_bytes is not None and max_bytes < 1:
            raise ConfigError(f"max_bytes takes a whole number from 1 on, or None, got {max_bytes!r}")
        if backups < 0:
            raise ConfigError(f"backups takes a whole number from 0 on, got {backups!r}")

    def __repr__(self) -> str:
        """The place."""
        return f"JsonlSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Append a row; it is on its way to the disk when this returns.

        Raises:
            OSError: if it cannot be written; the file is then as it was.
        """
        with self._turn.value:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not self._append(row):
                pass

    def _append(self, row: Row) -> bool:
        """Write to the file that is there now; False when it was renamed meanwhile, or had to be."""
        with _held(self.path) as file:
            if not _still_at(self.path, file):
                return False
            self._refuse_foreign(os.pread(file, len(HEAD), 0))
            end = _whole_lines(file)
            head = head_line({"notes": self.notes, "complete": False, "left_out": []}).encode() if not end else b""
            line = head + row_line(row.model_copy(update={"index": end + len(head)})).encode()
            if end and self._max_bytes is not None and end + len(line) > self._max_bytes:
                self._rotate()
                return False
            _write(file, line, end)
            return True

    def _refuse_foreign(self, beginning: bytes) -> None:
        """Raise ConfigError if there is a file of somebody else's: its last line might be cut off."""
        if not HEAD.startswith(beginning):
            raise ConfigError(f"{self.path} is a file, but no report of ours; choose another place")

    def _rotate(self) -> None:
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._backups + 1))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                os.replace(newer, older)


@contextmanager
def _held(path: Path) -> Iterator[int]:
    """The file, open and locked against other processes."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing would leave it with a process that was forked meanwhile
        os.close(file)


def _still_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _whole_lines(file: int) -> int:
    """Where the last whole line ends; whatever comes after it is cut off."""
    end, window = os.lseek(file, 0, os.SEEK_END), 1
    while end:
        start = max(0, end - window)
        os.lseek(file, start, os.SEEK_SET)
        newline = os.read(file, end - start).rfind(b"\n")
        end, window = start + newline + 1, _CHUNK
        if newline >= 0:
            break
    os.ftruncate(file, end)
    return end


def _write(file: int, line: bytes, end: int) -> None:
    os.lseek(file, end, os.SEEK_SET)
    left = memoryview(line)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, end)
        raise
