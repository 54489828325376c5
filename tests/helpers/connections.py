"""`Connections`: the SQLite connections that are opened while a test runs."""

import sqlite3
from typing import Any

import pytest


class Connections:
    """Records the connections of `sqlite3.connect`.

    Args:
        monkeypatch: restores `sqlite3.connect` after the test.

    Attributes:
        opened: all connections, open or closed, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened: list[sqlite3.Connection] = []
        self._connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", self._record)

    def _record(self, *given: Any, **options: Any) -> sqlite3.Connection:
        self.opened.append(self._connect(*given, **options))
        return self.opened[-1]

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
