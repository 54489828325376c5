"""Sinks that write to JSON lines files, SQLite files and Python's logging."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from langchain_rageval._internal.cached import PerProcess
from langchain_rageval._internal.files import SqliteFile
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError, check_number
from langchain_rageval.report.files import HEAD, head_line, row_line
from langchain_rageval.report.score_table import prepare_table, write_scores

if sys.platform != "win32":
    import fcntl

_CHUNK = 65_536


class JsonlSink:
    """Appends each row to a file that `Report.load` reads. Threads and processes may share the file.

    The `index` of a row is the offset of the row in the file, in bytes, so the rows of several processes have distinct,
    ordered indexes. If a killed process left an incomplete line, the line is removed before the next row is written.

    Args:
        path: path of the file; the file and its folder are created at the first row.
        max_bytes: maximum size of the file. A file that would exceed this size is renamed to `<name>.1`, an earlier
            `<name>.1` to `<name>.2`, and so on. None sets no limit.
        backups: number of renamed files to keep.

    Attributes:
        path: path of the file.
        notes: list of notes for the reader of the report, which is written at the beginning of the file.

    Raises:
        ConfigError: if an option is invalid, or the path is a folder or a file that is not a report. On Windows, it is
            always raised, because an open file can be neither shared in this way nor renamed there.
    """

    def __init__(self, path: str | Path, max_bytes: int | None = 100_000_000, backups: int = 5) -> None:
        if sys.platform == "win32":
            raise ConfigError("JsonlSink cannot share a file on Windows; write SqliteSink(path)")
        self.path = Path(path)
        self.notes: list[str] = []
        self._max_bytes = max_bytes
        self._backups = backups
        self._lock = PerProcess(threading.Lock)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; pass the path of a file")
        if self.path.exists():
            with self.path.open("rb") as file:
                self._check_is_report(file.read(len(HEAD)))
        if max_bytes is not None:
            expected = "max_bytes must be a whole number of at least 1, or None"
            check_number(expected, max_bytes, lambda number: number >= 1, whole=True)
        check_number("backups must be a whole number of at least 0", backups, lambda n: n >= 0, whole=True)

    def __repr__(self) -> str:
        """Return the sink as text: its class and the path of the file."""
        return f"JsonlSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Append a row to the file; the written row survives a crash of the process.

        Raises:
            ConfigError: if the file is not a report.
            OSError: if the row cannot be written; the file is then unchanged.
        """
        with self._lock.value:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            while not self._append(row):
                pass

    def _append(self, row: Row) -> bool:
        """Append a row to the current file; return False if the file was renamed, by this process or another one."""
        with _locked(self.path) as file:
            if not _is_same_file(self.path, file):
                return False
            self._check_is_report(os.pread(file, len(HEAD), 0))
            end = _truncate_to_lines(file)
            head = head_line({"notes": self.notes, "complete": False, "left_out": []}).encode() if not end else b""
            line = head + row_line(row.model_copy(update={"index": end + len(head)})).encode()
            if end and self._max_bytes is not None and end + len(line) > self._max_bytes:
                self._rotate()
                return False
            _write(file, line, end)
            return True

    def _check_is_report(self, start: bytes) -> None:
        """Raise ConfigError if a file is not a report: its last line could be removed as incomplete."""
        if not HEAD.startswith(start):
            raise ConfigError(f"{self.path} is not a report that this package wrote; choose another path")

    def _rotate(self) -> None:
        names = [self.path, *(self.path.with_name(f"{self.path.name}.{n}") for n in range(1, self._backups + 1))]
        names[-1].unlink(missing_ok=True)
        for older, newer in zip(reversed(names[1:]), reversed(names[:-1]), strict=True):
            if newer.exists():
                os.replace(newer, older)


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Open a file, locked against other processes."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        fcntl.flock(file, fcntl.LOCK_UN)  # closing alone would leave the lock with a process that was forked meanwhile
        os.close(file)


def _is_same_file(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False


def _truncate_to_lines(file: int) -> int:
    """Remove an incomplete last line; return the size of the file."""
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


class SqliteSink:
    """Writes each score to the table `scores` of an SQLite file. Threads and processes may share the file.

    `Report.load` reads the file. `langchain_rageval.report.score_table.COLUMNS` lists the columns. A score replaces
    an earlier score of the same run by the same metric. The file is opened at the first row, closed before a fork, and
    reopened after the fork. The file is in WAL mode, so readers never wait.

    Args:
        path: path of the file, which may hold other tables; the file and its folder are created if missing.

    Raises:
        ConfigError: if the path is a folder.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_dir():
            raise ConfigError(f"{self.path} is a folder; pass the path of a file")
        self._file = SqliteFile(self.path, prepare_table)

    def __repr__(self) -> str:
        """Return the sink as text: its class and the path of the file."""
        return f"SqliteSink({str(self.path)!r})"

    def __call__(self, row: Row) -> None:
        """Write the scores of a row in one transaction; written scores survive a crash of the process.

        Raises:
            sqlite3.Error: if the row cannot be written; the file is then unchanged.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open() as connection, connection:
            write_scores(connection, row)

    def close(self) -> None:
        """Close the SQLite file; the next row opens the file again."""
        self._file.close()


class LoggingSink:
    """Logs each score with run id and metric: the value with its reason, or why there is no value.

    The attribute `rageval` of the log record holds `run_id`, `metric`, `value` and `comment` as a mapping, for
    formatters that write JSON. Reasons may quote the answer; question, answer and contexts are not logged.

    Args:
        logger: logger to write to; by default `langchain_rageval.scores`.
        level: logging level of scores; failures are logged as warnings.
    """

    def __init__(self, logger: logging.Logger | None = None, level: int = logging.INFO) -> None:
        self._logger = logger or logging.getLogger("langchain_rageval.scores")
        self._level = level

    def __repr__(self) -> str:
        """Return the sink as text: its class and the name of the logger."""
        return f"LoggingSink({self._logger.name!r})"

    def __call__(self, row: Row) -> None:
        """Log each score of a row, with the id of its run."""
        run_id = str(row.sample.metadata.get("run_id", row.sample.id))
        for score in row.scores.values():
            fields = {"run_id": run_id, "metric": score.metric, "value": score.value, "comment": score.comment}
            level = max(self._level, logging.WARNING) if score.failure else self._level
            self._logger.log(level, "run %s: %s", run_id, score, extra={"rageval": fields})
