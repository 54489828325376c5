"""Journal: what is finished, in an SQLite file, so that it is never paid for again.

One row a finished work, written when it is finished: a process that is killed loses what was in flight and nothing
else. Keys are hashes of all that decides a result, so one file may hold many configurations and never mixes them;
several processes may write to it at once.
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

from langchain_rageval._internal.sqlite_file import BUSY_SECONDS, SqliteFile
from langchain_rageval.errors import JournalError

_APPLICATION = 0x52414745  # SQLite's mark of whose file it is


class Journal:
    """Finished results by key. Usable from threads; opened when it is first used, and anew after a fork.

    Args:
        path: of the file; it is made when it is not there.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = SqliteFile(self.path, partial(_prepare, self.path))

    def __repr__(self) -> str:
        """The place."""
        return f"Journal({str(self.path)!r})"

    def get(self, key: str) -> str | None:
        """What was put under a key, None when nothing was.

        Raises:
            JournalError: if the file cannot be read, or is no journal.
        """
        with self._open() as connection:
            found = connection.execute("SELECT value FROM results WHERE key = ?", (key,)).fetchone()
        return None if found is None else str(found[0])

    def put(self, key: str, value: str) -> None:
        """Keep a result; it is on its way to the disk when this returns, and survives the death of the process.

        Raises:
            JournalError: if the file cannot be written, as when the disk is full.
        """
        with self._open() as connection:
            connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", (key, value))

    def close(self) -> None:
        """Close the file; it opens again when it is used."""
        self._file.close()

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._file.open() as connection:
                yield connection
        except sqlite3.Error as error:
            raise JournalError(f"the journal {self.path} {_told(error)}") from error


def journal_key(*parts: Any) -> str:
    """The key of what these parts decide.

    Args:
        parts: JSON values.
    """
    return hashlib.sha256(
        json.dumps(parts, sort_keys=True, ensure_ascii=False).encode(errors="backslashreplace")
    ).hexdigest()


def _prepare(path: Path, connection: sqlite3.Connection) -> None:
    # In this order: another process may be making the journal, and it marks the file before it makes the table.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (owner,) = connection.execute("PRAGMA application_id").fetchone()
    if owner != _APPLICATION and tables:
        raise JournalError(f"{path} is a database, but no journal of ours; choose another place")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")
    connection.execute("CREATE TABLE IF NOT EXISTS results (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")


def _told(error: sqlite3.Error) -> str:
    """What is wrong, and what to do about it."""
    told = str(error)
    if "disk is full" in told:
        return "cannot grow, the disk is full: free some space and start again; what is finished is in it"
    if any(sign in told for sign in ("not a database", "malformed", "disk I/O")):
        return f"is damaged or no journal ({told}): move it away, or name another place"
    if "readonly" in told or "unable to open" in told:
        return f"cannot be written ({told}): name a place that can"
    if "locked" in told:
        return f"is held by another process for more than {BUSY_SECONDS:g} s"
    return f"failed: {told}"
