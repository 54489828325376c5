"""Slots: a fair counting semaphore that threads and event loops can wait for alike.

The standard library has one for threads and one for a single loop. A run may be entered from both at once: a user's
own metric may call a sync metric from an executor thread inside `aevaluate`, and a judge is shared by everybody.

An endpoint that turns calls away is given fewer at a time, as TCP does with packets: the slots halve, and grow by one
for each round of calls that went well. When nearly all that were under way at that time go well all the same, it was
hardly too many, and the slots come back but one. Who holds a slot keeps it, and nobody in the queue is overtaken.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future

_ROUNDS_BEFORE_TRYING_AGAIN = 4  # as many calls at a time as were turned away last
_NEARLY_ALL = 0.75


class AdaptiveLimiter:
    """At most `limit` holders at a time, first come first served; no limit when None.

    Whoever takes a slot is told the number of halvings until then, and hands it in with the outcome of the call. A call
    that was let in before the last halving does not halve again, so that many turned away together are one event.

    Attributes:
        limit: most holders, and as many as there are at first.
        size: slots there are now.
        least: the fewest slots there ever were; `limit` if no call was turned away.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.size = limit
        self.lowest_size = limit
        self._halvings = 0
        self._too_many = 0  # slots there were before the last halving
        self._all_the_same = 0  # calls let in before it that went well after it
        self._after = 0  # calls let in after it that went well, since a slot was added
        self._used = 0
        self._waiting: deque[threading.Lock | Future[None]] = deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[AdaptiveLimiter], tuple[int | None]]:
        """A copy, or one in another process, starts with every slot free."""
        return AdaptiveLimiter, (self.limit,)

    @property
    def idle(self) -> int:
        """How many lie idle, as far as that can be told at a moment; none when there is no limit, and so no pool."""
        return 0 if self.size is None else max(0, self.size - self._used - len(self._waiting))

    def record_rejection(self, since: int) -> None:
        """Take note that the endpoint refused a call for want of room: halve the slots, to one at least."""
        with self._lock:
            if self.size is None or self.lowest_size is None or since != self._halvings:
                return
            self._halvings += 1
            self._too_many, self.size = self.size, max(1, self.size // 2)
            self._after = self._all_the_same = 0
            self.lowest_size = min(self.lowest_size, self.size)

    def record_success(self, since: int) -> None:
        """Take note that a call was answered: as many as there are slots make one more, up to the limit."""
        with self._lock:
            if self.size is None or self.size == self.limit:
                return
            if since == self._halvings:
                self._after += 1
                rounds = _ROUNDS_BEFORE_TRYING_AGAIN if self.size + 1 == self._too_many else 1
                if self._after >= self.size * rounds:
                    self.size, self._after = self.size + 1, 0
            elif since == self._halvings - 1:
                self._all_the_same += 1
                if self._all_the_same >= _NEARLY_ALL * self._too_many:
                    self.size = max(self.size, self._too_many - 1)
            self._admit()

    def _give_back(self) -> None:
        with self._lock:
            self._used -= 1
            self._admit()

    def _admit(self) -> None:
        """Hand the free slots to the first who still wait."""
        while self._waiting and self._free():
            place = self._waiting.popleft()
            if isinstance(place, Future):
                if not place.set_running_or_notify_cancel():
                    continue
                place.set_result(None)
            else:
                place.release()
            self._used += 1

    def _forsake(self, place: threading.Lock) -> None:
        """Give up a place in the queue, or the slot that came with it meanwhile."""
        with self._lock:
            if place in self._waiting:
                self._waiting.remove(place)
                return
        self._give_back()

    def _free(self) -> bool:
        return self.size is None or self._used < self.size

    def __enter__(self) -> int:
        """Wait in this thread."""
        with self._lock:
            if self._free():
                self._used += 1
                return self._halvings
            place = threading.Lock()  # a tenth of what a future takes
            place.acquire()
            self._waiting.append(place)
        try:
            place.acquire()
        except BaseException:  # Ctrl-C in the main thread
            self._forsake(place)
            raise
        return self._halvings

    def __exit__(self, *_: object) -> None:
        """Give the slot back."""
        self._give_back()

    async def __aenter__(self) -> int:
        """Wait without holding up the loop."""
        with self._lock:
            if self._free():
                self._used += 1
                return self._halvings
            place = Future[None]()
            self._waiting.append(place)
        try:
            await asyncio.wrap_future(place)
        except asyncio.CancelledError:
            if not place.cancel() and not place.cancelled():
                self._give_back()
            raise
        return self._halvings

    async def __aexit__(self, *_: object) -> None:
        """Give the slot back."""
        self._give_back()
