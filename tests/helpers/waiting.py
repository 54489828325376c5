"""`until` and `auntil`: wait for a condition instead of a fixed time; `PATIENCE`: seconds to wait at most."""

import asyncio
import time
from collections.abc import Callable

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
