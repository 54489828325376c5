"""`until` and `auntil`: wait for a condition instead of a fixed time."""

import asyncio
import time
from collections.abc import Callable


def until(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Block this thread until a condition is true; fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.001)


async def auntil(holds: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait on this event loop until a condition is true; raise TimeoutError after some seconds."""
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.001)
