"""`Pauses`: waits between two tries that last until a condition is true, instead of some seconds."""

import asyncio
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from helpers.waiting import auntil, until


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
