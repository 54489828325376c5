"""Journal: finished results in an SQLite file, so that a resumed run does not pay for them again.

Each result is written when it is finished, so a killed process loses only unfinished work. A key is a hash of
everything that determines the result. One file may therefore hold results of many configurations without mixing them.
Several processes may write to the file at the same time.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from langchain_rageval._internal.files import BUSY_SECONDS, SqliteFile
from langchain_rageval.errors import JournalError

_APPLICATION_ID = 0x52414745  # identifies the owner of an SQLite file


class Journal:
    """File of finished results by key. Safe to use from several threads.

    The file is opened on first use, and reopened after a fork.

    Args:
        path: path of the file, created if it does not exist.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = SqliteFile(self.path, partial(_prepare, self.path))

    def __repr__(self) -> str:
        """Return the path of the file."""
        return f"Journal({str(self.path)!r})"

    def get(self, key: str) -> str | None:
        """Return the result stored under a key; None if there is none.

        Raises:
            JournalError: if the file cannot be read, or is not a journal.
        """
        with self._open() as connection:
            row = connection.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def put(self, key: str, value: str) -> None:
        """Store a result. Once this method has returned, the result survives a crash of the process.

        Raises:
            JournalError: if the file cannot be written, for example because the disk is full.
        """
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, value))

    @contextmanager
    def claimed(self, what: str) -> Iterator[None]:
        """Reserve a part of the journal for this run, until the context or the process ends.

        `what` is the name of the part, such as "batches". A lock file next to the journal has this name at its end.

        Raises:
            JournalError: if another run holds the claim.
        """
        file = sqlite3.connect(f"{self.path}-{what}", timeout=0, isolation_level=None, check_same_thread=False)
        try:
            try:
                file.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError as error:
                raise JournalError(
                    f"another run uses the {what} of the journal {self.path} ({error}): wait until it has ended; "
                    "the same call then reads its replies"
                ) from None
            yield
        finally:
            file.close()

    def close(self) -> None:
        """Close the file; the next use of the journal opens it again."""
        self._file.close()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._file.open() as connection:
                yield connection
        except sqlite3.Error as error:
            raise JournalError(f"the journal {self.path} {_explain(error)}") from error


def journal_key(*parts: Any) -> str:
    """Return the key of a result: a SHA-256 hash of everything that determines it.

    Args:
        parts: JSON values.
    """
    text = json.dumps(parts, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    # In this order: another process may be creating the journal, and sets the id before it creates the table.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != _APPLICATION_ID and tables:
        raise JournalError(f"{path} is an SQLite database, but not a journal of langchain-rageval: choose another path")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
    connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")


def _explain(error: sqlite3.Error) -> str:
    """Return what is wrong with the file, and how to fix it."""
    message = str(error)
    if "disk is full" in message:
        return "cannot grow, the disk is full: free some space and start again; all finished results are stored"
    if any(sign in message for sign in ("not a database", "malformed", "disk I/O")):
        return f"is damaged or not a journal ({message}): move it away, or choose another path"
    if "readonly" in message or "unable to open" in message:
        return f"cannot be written ({message}): choose a writable path"
    if "locked" in message:
        return f"has been locked by another process for more than {BUSY_SECONDS:g} s"
    return f"failed: {message}"
