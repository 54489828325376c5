"""Waiting in tests: for a moment when something holds, never for a fixed time."""

import asyncio
import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait in this thread until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.001)


async def auntil(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait on this loop until something holds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.001)
