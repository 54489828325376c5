"""Adaptive concurrency limit (AIMD): a fair semaphore for threads and event loops, whose size follows the endpoint.

The standard library has a semaphore for threads and one for a single event loop. A run may be entered from both at
once: a user's metric may call a sync metric from an executor thread inside `aevaluate`, and judges are shared.

After a rejection such as HTTP 429 the number of slots is halved; each round of successful calls adds one, as in TCP
congestion control. If nearly all calls that were under way at the halving succeed, the limit was hardly too high, and
all slots but one are restored. Slots in use are never revoked, and waiting callers are served in their order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress

_ROUNDS_BEFORE_RETRY = 4  # rounds before the size at which calls were rejected is tried again
_NEARLY_ALL = 0.75


class AdaptiveLimiter:
    """Limits the number of concurrent holders, first come first served.

    Entering returns the number of halvings so far, which the caller passes to `record_success` or `record_rejection`. A
    call that was admitted before the last halving does not cause another one, so many simultaneous rejections count as
    one.

    Args:
        limit: largest and initial number of slots; None for no limit.

    Attributes:
        limit: as given.
        size: current number of slots.
        lowest_size: smallest number of slots so far; equal to `limit` if no call was rejected.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.size = limit
        self.lowest_size = limit
        self._halvings = 0
        self._rejected_size = 0  # slots before the last halving
        self._late_successes = 0  # calls admitted before the last halving that succeeded after it
        self._successes = 0  # calls admitted after it that succeeded since a slot was added
        self._used = 0
        self._waiting: deque[Future[None]] = deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[AdaptiveLimiter], tuple[int | None]]:
        """Copy and pickle only the limit; the copy starts with all slots free."""
        return AdaptiveLimiter, (self.limit,)

    @property
    def idle(self) -> int:
        """Number of free slots at this moment; 0 if there is no limit."""
        return 0 if self.size is None else max(0, self.size - self._used - len(self._waiting))

    def record_rejection(self, halvings: int) -> None:
        """Record a call that was rejected because of too many calls: halve the slots, to at least one.

        Args:
            halvings: as returned when the slot was acquired.
        """
        with self._lock:
            if self.size is None or self.lowest_size is None or halvings != self._halvings:
                return
            self._halvings += 1
            self._rejected_size, self.size = self.size, max(1, self.size // 2)
            self._successes = self._late_successes = 0
            self.lowest_size = min(self.lowest_size, self.size)

    def record_success(self, halvings: int) -> None:
        """Record a successful call: a round of as many successes as slots adds one slot, up to the limit.

        Args:
            halvings: as returned when the slot was acquired.
        """
        with self._lock:
            if self.size is None or self.size == self.limit:
                return
            if halvings == self._halvings:
                self._successes += 1
                rounds = _ROUNDS_BEFORE_RETRY if self.size + 1 == self._rejected_size else 1
                if self._successes >= self.size * rounds:
                    self.size, self._successes = self.size + 1, 0
            elif halvings == self._halvings - 1:
                self._late_successes += 1
                if self._late_successes >= _NEARLY_ALL * self._rejected_size:
                    self.size = max(self.size, self._rejected_size - 1)
            self._admit()

    def _release(self) -> None:
        with self._lock:
            self._used -= 1
            self._admit()

    def _admit(self) -> None:
        """Assign free slots to the first callers that are still waiting."""
        while self._waiting and self._free():
            waiter = self._waiting.popleft()
            if waiter.set_running_or_notify_cancel():
                waiter.set_result(None)
                self._used += 1

    def _free(self) -> bool:
        return self.size is None or self._used < self.size

    def _acquire(self) -> Future[None] | None:
        """Take a free slot and return None, or return a future that ends when a slot is assigned."""
        with self._lock:
            if self._free():
                self._used += 1
                return None
            waiter = Future[None]()
            self._waiting.append(waiter)
            return waiter

    def _withdraw(self, waiter: Future[None]) -> None:
        """Remove a cancelled caller from the queue, or release its slot if one was assigned meanwhile."""
        if not waiter.cancel():
            self._release()
        with self._lock, suppress(ValueError):
            self._waiting.remove(waiter)

    def __enter__(self) -> int:
        """Acquire a slot, blocking this thread; returns the number of halvings so far."""
        if (waiter := self._acquire()) is not None:
            try:
                waiter.result()
            except BaseException:  # Ctrl-C in the main thread
                self._withdraw(waiter)
                raise
        return self._halvings

    def __exit__(self, *_: object) -> None:
        """Release the slot."""
        self._release()

    async def __aenter__(self) -> int:
        """Acquire a slot without blocking the event loop; returns the number of halvings so far."""
        if (waiter := self._acquire()) is not None:
            try:
                await asyncio.wrap_future(waiter)
            except asyncio.CancelledError:
                self._withdraw(waiter)
                raise
        return self._halvings

    async def __aexit__(self, *_: object) -> None:
        """Release the slot."""
        self._release()
