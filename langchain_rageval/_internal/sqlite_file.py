"""SqliteFile: an SQLite file that threads, processes and forks share."""

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
_BETWEEN_TRIES = 0.02  # seconds


@dataclass
class _Held:
    """The connection of a process, and whose turn it is."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    connection: sqlite3.Connection | None = None


class SqliteFile:
    """Opened when it is first used, and anew after a fork. It stands in WAL mode, so readers never wait.

    What was committed survives the death of the process, though not always that of the machine.

    Args:
        path: of the file; it is made when it is not there, its folder is not.
        prepare: looks at the file through a new connection, and makes its tables if they are not there.
    """

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], object]) -> None:
        self.path = path
        self._prepare = prepare
        self._held = PerProcess(_Held)

    def close(self) -> None:
        """Close it; it opens again when it is used."""
        held = self._held.own
        with held.turn:
            if held.connection is not None:
                held.connection.close()
                held.connection = None

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """The connection, for one thread at a time. Each statement is committed by itself; BEGIN holds several.

        Raises:
            sqlite3.Error: if the file cannot be opened, and what the statements raise.
        """
        held = self._held.own
        with held.turn:
            if held.connection is None:
                held.connection = self._connected()
            yield held.connection

    def _connected(self) -> sqlite3.Connection:
        """Where several processes make the file at once, SQLite does not wait for the one that does, so this does."""
        deadline = time.monotonic() + BUSY_SECONDS
        while True:
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
            try:
                self._prepare(connection)
                return connection
            except BaseException as error:
                connection.close()
                locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if not locked or time.monotonic() > deadline:
                    raise
            time.sleep(_BETWEEN_TRIES)
