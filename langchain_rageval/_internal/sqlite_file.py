"""SQLite file that threads, processes and forks share."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from langchain_rageval._internal.per_process import PerProcess

BUSY_SECONDS = 60.0  # another process may hold the file for a moment
_RETRY_SECONDS = 0.02


@dataclass
class _Connection:
    """The connection of a process, and the lock that threads take to use it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: sqlite3.Connection | None = None


class SqliteFile:
    """SQLite file that is opened on first use, and reopened after a fork.

    Committed data survives a crash of the process, though not always one of the machine.

    Args:
        path: path of the file; the file is created if it does not exist, its folder is not.
        prepare: called with each new connection; checks the file and creates missing tables.
    """

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], object]) -> None:
        self.path = path
        self._prepare = prepare
        self._process_connection = PerProcess(_Connection)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        shared = self._process_connection.value
        with shared.lock:
            if shared.connection is not None:
                shared.connection.close()
                shared.connection = None

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """Lend the connection to one thread at a time. Statements are committed one by one, except after BEGIN.

        Raises:
            sqlite3.Error: if the file cannot be opened, or a statement fails.
        """
        shared = self._process_connection.value
        with shared.lock:
            if shared.connection is None:
                shared.connection = self._connect()
            yield shared.connection

    def _connect(self) -> sqlite3.Connection:
        """Connect and prepare the file; retry while another process creates it, since SQLite does not wait for that."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection)
                return connection
            except BaseException as error:
                connection.close()
                is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if not is_locked or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)
