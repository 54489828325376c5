"""Read YAML texts, open SQLite files safely with threads and forks, and check that paths stay in a folder."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakSet

import yaml

from langchain_rageval._internal.cached import PerProcess

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load_yaml(text: str) -> Any:
    """Return the value that a YAML text describes; read by libyaml where PyYAML was built with it.

    Raises:
        yaml.YAMLError: if the text is no YAML.
    """
    return _Loader(text).get_single_data()


def leaves_folder(path: Path, folder: Path) -> bool:
    """Return True if a symbolic link in a path leads out of a folder.

    Args:
        path: path of a file or folder that starts with `folder`; it need not exist.
        folder: path of the folder, which may be a symbolic link itself.
    """
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


BUSY_SECONDS = 60.0  # another process may hold the file for a moment


@dataclass(eq=False)
class _Connection:
    """The connection of a process, and the lock that threads take to use it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    connection: sqlite3.Connection | None = None

    def __post_init__(self) -> None:
        with _FORKS.creation:
            _FORKS.connections.add(self)

    def close(self) -> None:
        """Close the connection, if there is one; the caller holds the lock."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None


class _Forks:
    """Closes the connections of a process for the moment of a fork.

    A child process has a copy of SQLite's own list of locks. If a thread of the parent held one, no connection of the
    child to this file would ever get it.
    """

    def __init__(self) -> None:
        self.connections: WeakSet[_Connection] = WeakSet()
        self.creation = threading.Lock()
        self._held: list[_Connection] = []

    def prepare(self) -> None:
        """Wait for the end of all statements, close the connections, and keep threads from opening others."""
        self.creation.acquire()
        self._held = [shared for shared in self.connections if shared.lock.acquire(timeout=BUSY_SECONDS)]
        for shared in self._held:
            shared.close()

    def go_on(self) -> None:
        """Let threads open connections again, in the parent as in the child."""
        for shared in self._held:
            shared.lock.release()
        self._held = []
        self.creation.release()


_FORKS = _Forks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_FORKS.prepare, after_in_parent=_FORKS.go_on, after_in_child=_FORKS.go_on)


class SqliteFile:
    """SQLite file that is opened on first use, closed before a fork, and reopened after the fork.

    Committed data survives a crash of the process. A crash of the machine may lose the last committed data.

    Args:
        path: path of the file. The file is created if it does not exist; its folder is not created.
        prepare: function that is called with each new connection, to check the file and create missing tables.
    """

    def __init__(self, path: Path, prepare: Callable[[sqlite3.Connection], object]) -> None:
        self.path = path
        self._prepare = prepare
        self._process_connection = PerProcess(_Connection)

    def close(self) -> None:
        """Close the file; the next use of this object opens it again."""
        shared = self._process_connection.value
        with shared.lock:
            shared.close()

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """Return a context that gives the connection to one thread at a time.

        Each statement is committed at once, except after BEGIN.

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
            time.sleep(0.02)
