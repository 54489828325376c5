"""Conditions instead of fixed times: `until`, `auntil`, `Pauses`; forked processes; open connections to SQLite."""

import asyncio
import os
import signal
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

PATIENCE = 120.0
"""Seconds after which what a test waits for counts as missing; on a busy machine, milliseconds of work take seconds."""


def until(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Block this thread until a condition is true; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.001)


async def auntil(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait on this event loop until a condition is true; raise TimeoutError after some seconds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.001)


def needs_fork(test: Callable[..., Any]) -> Callable[..., Any]:
    """Skip a test on systems without fork, and ignore the warning that threads may deadlock in a child."""
    skipped = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
    return skipped(pytest.mark.filterwarnings("ignore:.*fork")(test))


def holds_in_a_fork(holds: Callable[[], object]) -> bool:
    """Return True if a condition is true in a forked process; the process ends after it, or when it takes too long."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # not the handler of the test's time limit
            signal.alarm(int(PATIENCE))
            code = not holds()
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


class Pauses:
    """Replaces the pauses of the drivers while a test runs.

    Args:
        monkeypatch: restores the drivers after the test.
        over: condition that ends a pause; by default a pause ends at once.

    Attributes:
        seconds: the lengths that were requested, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, over: Callable[[], object] = lambda: True) -> None:
        self.seconds: list[float] = []
        self._over = over
        for module, sleep in ((time, self._sleep), (asyncio, self._asleep)):
            replaced = SimpleNamespace(**{**vars(module), "sleep": sleep})
            monkeypatch.setattr(f"langchain_rageval.run.drivers.{module.__name__}", replaced)

    def _sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        until(self._over)

    async def _asleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await auntil(self._over)


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
