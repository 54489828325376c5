"""`Connections`: the connections to SQLite files that are opened while a test runs."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest


class Connections:
    """Records the connections of `sqlite3.connect` below a place; a thread of another test may use another one.

    Args:
        monkeypatch: restores `sqlite3.connect` after the test.
        place: path of a file or folder.

    Attributes:
        opened: all connections, open or closed, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
        self.opened: list[sqlite3.Connection] = []
        self._connect, self._place = sqlite3.connect, str(place)
        monkeypatch.setattr(sqlite3, "connect", self._record)

    def _record(self, *given: Any, **options: Any) -> sqlite3.Connection:
        connection = self._connect(*given, **options)
        if self._place in str(given[0]):
            self.opened.append(connection)
        return connection

    @property
    def left_open(self) -> list[sqlite3.Connection]:
        """The connections that are open now; Python 3.13 warns if the garbage collector has to close one."""
        return [connection for connection in self.opened if _is_open(connection)]


def _is_open(connection: sqlite3.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except sqlite3.ProgrammingError:
        return False
    return True
