"""Slots: a fair counting semaphore that threads and event loops can wait for alike.

The standard library has one for threads and one for a single loop. A run may be entered from both at once: a user's
own metric may call a sync metric from an executor thread inside `aevaluate`, and a judge is shared by everybody.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from typing import Self


class Slots:
    """At most `limit` holders at a time, first come first served; no limit when None."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._used = 0
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[Slots], tuple[int | None]]:
        """A copy, or one in another process, starts with every slot free."""
        return Slots, (self.limit,)

    def _take(self) -> Future[None] | None:
        """Take a free slot (None), or a place in the queue."""
        with self._lock:
            if self.limit is None or self._used < self.limit:
                self._used += 1
                return None
            place: Future[None] = Future()
            self._waiting.append(place)
            return place

    def _give_back(self) -> None:
        """Hand the slot to the first who still waits, or free it."""
        with self._lock:
            while self._waiting:
                place = self._waiting.popleft()
                if place.set_running_or_notify_cancel():
                    place.set_result(None)
                    return
            self._used -= 1

    def __enter__(self) -> Self:
        """Wait in this thread."""
        place = self._take()
        if place is not None:
            place.result()
        return self

    def __exit__(self, *_: object) -> None:
        """Give the slot back."""
        self._give_back()

    async def __aenter__(self) -> Self:
        """Wait without holding up the loop."""
        place = self._take()
        if place is not None:
            try:
                await asyncio.wrap_future(place)
            except asyncio.CancelledError:
                if not place.cancel() and not place.cancelled():
                    self._give_back()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the slot back."""
        self._give_back()
