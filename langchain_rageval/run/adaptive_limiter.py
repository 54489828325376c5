"""Adaptive concurrency limit: a semaphore for threads and event loops that adapts to rejections by the endpoint.

The standard library has a semaphore for threads and one for a single event loop. A run may be entered from both at
once: a user's metric may call a sync metric from an executor thread inside `aevaluate`, and judges are shared.

A few rejections such as HTTP 429 among many answers say nothing about the number of calls: only the rejected call
waits.

- At the start, eight calls are sent at once. If more than four calls under way at a time were answered, twice that
  number is sent. Further calls are sent one by one, so that rejections arrive before all calls are sent.
- If a third of the latest calls is rejected, the slots (calls that may be under way) fall to the number of calls under
  way, and each further rejection takes one away.
- Recovery: the slots grow by half in each round of successes (as many answered calls as slots), but stay below the
  number at which calls were rejected. That number is tried again only after several rounds; the wait grows with each
  failure.
- A limit of calls per second: if calls are rejected with one or two slots, they are sent at the pace at which calls
  were answered, or at the pace that the headers of a rejection state.
- A call that takes many times as long as usual no longer takes up a slot.

Slots in use are never revoked, and waiting callers are served in their order.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress

_LATEST = 12  # calls, at least, of which the share of rejections is known
_SIGNIFICANT, _LEAST_REJECTED = 1 / 3, 3
_SIGNIFICANT_IN_PROBE, _LEAST_IN_PROBE = 0.15, 2
_ROUNDS_BEFORE_RETRY = 8  # rounds before the size at which calls were rejected is tried again
_MOST_ROUNDS = 256
_LATE, _LEAST_LATE = 10, 1.0  # times the usual duration of a call, and seconds, after which it counts no more
_LEAST_SECONDS = 2.0  # in which a pace is measured
_BELOW = 0.98  # of a pace that the endpoint states
_STEP_AT_FIRST, _STEP = 1.05, 1.005  # factor by which a measured pace changes, until calls are rejected, and after
_LEAST = 0.9  # of a measured pace
_MANY, _MANY_AT_FIRST = 0.1, 0.03  # of the answers
_FEW = 2  # places; with more, fewer of them are tried first
_AT_ONCE, _SPACING = 8, 0.004  # calls sent at once at the start; seconds between the further ones
_TICK = 0.02  # seconds until a call looks again whether one was answered
_INTERVAL = 5.0  # seconds between two changes of a pace


class Slot:
    """Context manager, sync and async, for one call: waits for a free place on entry, and releases the place on exit.

    Attributes:
        since: time when the call was sent; before that, time when the place was taken.
        epoch: number of times that the limiter had changed its size before the place was taken.
        number: number of calls that had taken a place before this call.
        beside: number of calls under way when this call was sent, itself included.
        sent: True once the call was sent.
        rejected: True if the endpoint rejected the call.
    """

    __slots__ = ("_has_turn", "_limiter", "_waiter", "beside", "epoch", "number", "rejected", "sent", "since")

    def __init__(self, limiter: AdaptiveLimiter) -> None:
        self._limiter, self.since, self.epoch, self.number, self.beside = limiter, 0.0, 0, 0, 0
        self.sent = self.rejected = self._has_turn = False
        self._waiter: Future[None] | None = None

    def __enter__(self) -> Slot:
        """Take a place, blocking this thread."""
        try:
            for wait in self._waits():
                if isinstance(wait, float):
                    time.sleep(wait)
                else:
                    with suppress(TimeoutError):
                        wait.result(self._limiter._patience)
        except BaseException:  # Ctrl-C in the main thread
            self._limiter._withdraw(self)
            raise
        return self

    async def __aenter__(self) -> Slot:
        """Take a place without blocking the event loop."""
        try:
            for wait in self._waits():
                if isinstance(wait, float):
                    await asyncio.sleep(wait)
                else:
                    await asyncio.wait([asyncio.wrap_future(wait)], timeout=self._limiter._patience)
        except asyncio.CancelledError:  # not GeneratorExit: garbage may be collected while the lock is held
            self._limiter._withdraw(self)
            raise
        return self

    def _waits(self) -> Iterator[Future[None] | float]:
        """Take a place and yield what to wait for until the call may be sent: a future, or a number of seconds."""
        while True:
            with self._limiter._lock:
                wait = self._limiter._next_wait(self)
            if wait is None:
                return
            yield wait

    def __exit__(self, *_: object) -> None:
        """Release the place."""
        self._limiter._release(self)

    async def __aexit__(self, *_: object) -> None:
        """Release the place."""
        self._limiter._release(self)


class AdaptiveLimiter:
    """Limit on the number of calls under way and on the calls per second; callers are served in order of arrival.

    Args:
        limit: largest and initial number of slots; None for no limit.

    Attributes:
        limit: largest number of slots; None for no limit.
        size: current number of slots.
        lowest_size: smallest `size` since `limit` was set. Rejections reduce `size` only if many of the latest calls
            were rejected (usually a third); after fewer rejections, `lowest_size` is still equal to `limit`.
        pace: maximum number of calls per second; None for no such limit.
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = self.size = self.lowest_size = limit
        self.pace: float | None = None
        self._measured, self._step = 0.0, _STEP_AT_FIRST  # pace that was measured last, and its next change
        self._is_stated = False  # the pace, by headers of the endpoint
        self._many = _MANY_AT_FIRST  # share of rejections after which the pace is measured again
        self._epoch = self._taken = 0
        self._began = 0.0
        self._answered_beside = 0  # most calls that were under way when one was sent that was answered
        self._latest: deque[Slot] = deque()  # calls of this epoch
        self._too_large: int | None = None  # size at which calls were rejected
        self._probe = 0  # places that were added beyond the sizes that are known to be right
        self._rounds = _ROUNDS_BEFORE_RETRY
        self._successes = 0  # of this epoch
        self._is_shrinking = False  # since the last change
        self._usual: float | None = None  # seconds of a call
        self._begin_measure()
        self._next = self._closed_until = 0.0
        self._holders: set[Slot] = set()
        self._waiting: deque[tuple[Slot, Future[None]]] = deque()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[AdaptiveLimiter], tuple[int | None]]:
        """Copy and pickle only the limit; the copy starts with all slots free."""
        return AdaptiveLimiter, (self.limit,)

    @property
    def idle(self) -> int:
        """Number of free slots that no caller waits for; 0 also if the number of slots has no limit."""
        return 0 if self.size is None else max(0, self.size - len(self._holders) - len(self._waiting))

    def slot(self) -> Slot:
        """Return the context manager for a call, which is also the slot for `record_success` or `record_rejection`."""
        return Slot(self)

    def set_limit(self, limit: int | None) -> None:
        """Set the largest number of slots (calls that may be under way); None changes nothing."""
        with self._lock:
            if limit is not None and limit != self.limit:
                is_full = self.size is None or self.size == self.limit
                self.size = limit if is_full or self.size is None else min(self.size, limit)
                self.limit, self.lowest_size = limit, self.size
                self._admit()

    def state_pace(self, pace: float) -> None:
        """Send slightly fewer than `pace` calls per second, because the endpoint states `pace` as its limit."""
        with self._lock:
            self._is_stated, self.pace = True, pace * _BELOW

    def record_rejection(self, slot: Slot, retry_after: float | None = None) -> None:
        """Record a call that was rejected because of too many calls.

        Args:
            slot: slot of the call.
            retry_after: seconds that the endpoint asks to wait; None if it names none.
        """
        with self._lock:
            slot.rejected = True
            self._rejections += 1
            if self.size is None:
                return
            self._shrink(slot, self.size, retry_after)
            is_paced = self.pace is not None or (self.size <= _FEW and self._epoch > 0)
            is_due = is_paced and self._rejections >= max(_LEAST_REJECTED, self._many * self._answered)
            if is_due and (seconds := time.monotonic() - self._measured_since) >= _LEAST_SECONDS:
                if not self._is_stated:  # the calls answered lately are all that the endpoint answers in a time
                    self.pace = self._measured = max(self._answered, 1) / seconds
                    self._step = _STEP_AT_FIRST
                    self._many = min(_MANY, 1.5 * self._many)  # at first, calls that were saved up make a pace too high
                self._begin_measure()

    def _shrink(self, slot: Slot, size: int, retry_after: float | None) -> None:
        """Take places away if many of the latest calls were rejected."""
        if slot.epoch < self._epoch:  # one more of those that were too many
            if slot.epoch == self._epoch - 1 and self._is_shrinking:
                self._resize(size - 1)
                self._close(retry_after)
            return
        rejected, sent = sum(one.rejected for one in self._latest), len(self._latest)
        are_some = rejected >= max(_LEAST_IN_PROBE, _SIGNIFICANT_IN_PROBE * sent)
        if self._probe and are_some:
            self._rounds = min(self._rounds * 2, _MOST_ROUNDS)
            self._begin_epoch(size - self._probe)
        elif (self._usual is None and are_some) or rejected >= max(_LEAST_REJECTED, _SIGNIFICANT * sent):
            if not self._epoch:  # what was answered before says nothing of a limit
                self._begin_measure()
            self._begin_epoch(min(size - rejected, self._under_way()))
            self._is_shrinking = True
            self._close(retry_after)

    def _close(self, retry_after: float | None) -> None:
        """Send no call for as long as the endpoint asks to wait, if it rejected all calls."""
        if self.size == 1 and retry_after:
            self._closed_until = max(self._closed_until, time.monotonic() + retry_after)

    def _begin_epoch(self, size: int, probe: int = 0) -> None:
        is_smaller = self.size is not None and size < self.size
        self._epoch, self._probe, self._successes, self._is_shrinking = self._epoch + 1, probe, 0, False
        self._latest.clear()
        self._resize(size)
        if is_smaller and self.size is not None:
            self._too_large = self.size + 1

    def _resize(self, size: int) -> None:
        self.size = max(1, size)
        self.lowest_size = min(self.lowest_size or self.size, self.size)
        if self._is_shrinking:
            self._too_large = self.size + 1

    def _begin_measure(self) -> None:
        self._measured_since, self._answered, self._rejections = time.monotonic(), 0, 0

    def record_success(self, slot: Slot) -> None:
        """Record an answered call, and add slots after enough answered calls; the limit is never exceeded.

        Slots are added after as many answered calls as there are slots, or after several times as many if calls were
        rejected with one more slot.

        Args:
            slot: slot of the call.
        """
        with self._lock:
            seconds = time.monotonic() - slot.since
            self._usual = seconds if self._usual is None else self._usual + (seconds - self._usual) / _LATEST
            self._answered += 1
            self._answered_beside = max(self._answered_beside, slot.beside)
            if self.pace is not None and not self._is_stated and time.monotonic() - self._measured_since >= _INTERVAL:
                if self._rejections:
                    self.pace = max(self.pace / self._step, self._measured * _LEAST)
                    self._step = _STEP
                else:
                    self.pace *= self._step
                self._begin_measure()
            if self.size is None or self.limit is None or slot.epoch != self._epoch:
                return
            self._successes += 1
            if self.size < self.limit:
                self._grow(self.size, self.limit)

    def _grow(self, size: int, limit: int) -> None:
        """Add places after a round of successes; more after each round, up to a size that was too large."""
        is_retry = self._too_large == size + 1
        if self._successes < size * (self._rounds if is_retry else 1):
            return
        if is_retry or self._too_large is None:
            self._too_large, probe = None, 1 if is_retry else max(1, 2 * self._probe)
            if not is_retry:
                self._rounds = _ROUNDS_BEFORE_RETRY
            self._begin_epoch(min(limit, size + probe), min(limit - size, probe))
        else:
            self._begin_epoch(min(self._too_large - 1, size + max(1, size // 2)))
        self._admit()

    def _next_wait(self, slot: Slot) -> Future[None] | float | None:
        """Return what a call waits for next, a place or a number of seconds; None if it is sent now.

        The caller holds the lock.
        """
        if not slot._has_turn and (wait := self._wait_for_place(slot)):
            return wait
        if (seconds := self._delay(has_turn=slot._has_turn)) > 0:
            slot._has_turn = True
            return seconds
        self._send(slot)
        return None

    def _wait_for_place(self, slot: Slot) -> Future[None] | float | None:
        """Return what a call waits for until it has a place and may use it; None if it has one."""
        if slot._waiter is not None and not slot._waiter.done():
            self._admit()  # the places of calls that have become late are free
        elif slot._waiter is None and slot not in self._holders:
            slot._waiter = self._acquire(slot)
        if slot._waiter is not None and not slot._waiter.done():
            return slot._waiter
        slot._waiter = None
        if (seconds := self._first_delay(slot)) > 0:
            return seconds
        return None if self._is_open(slot) else slot._waiter

    def _delay(self, *, has_turn: bool) -> float:
        """Return the seconds that a call waits in its place before it is sent; 0 or less if it does not.

        Args:
            has_turn: True if the call has waited for its turn at the pace already.
        """
        if has_turn or self.pace is None:
            return self._closed_until and self._closed_until - time.monotonic()
        now = time.monotonic()
        start = max(now, self._next, self._closed_until)
        self._next = start + 1 / self.pace
        return start - now

    def _acquire(self, slot: Slot) -> Future[None] | None:
        """Take a free place and return None, or return a future that ends when one is assigned."""
        if self._free():
            self._hold(slot)
            return None
        waiter = Future[None]()
        self._waiting.append((slot, waiter))
        return waiter

    def _hold(self, slot: Slot) -> None:
        slot.since, slot.epoch, slot.number = time.monotonic(), self._epoch, self._taken
        self._began, self._taken = self._began or slot.since, self._taken + 1
        self._holders.add(slot)

    def _first_delay(self, slot: Slot) -> float:
        """Return the seconds that a call waits at the start; 0 or less if it does not.

        Eight calls, or twice as many as were answered at a time, are sent at once, and the others one by one. After a
        rejection they wait, but for a quarter more than were answered at a time.
        """
        if self.limit is None or self._epoch > 0 or self._answered_beside >= self.limit:
            return 0.0
        if self._under_way() < max(_AT_ONCE, self._answered_beside * (1.25 if self._rejections else 2)):
            return 0.0
        if self._rejections:
            return _TICK
        return self._began + (slot.number - _AT_ONCE) * _SPACING - time.monotonic()

    def _under_way(self) -> int:
        return sum(one.sent and not one.rejected for one in self._holders)

    def _is_open(self, slot: Slot) -> bool:
        """Return True if a call keeps its place; False if the places became fewer, and it waits again as the first."""
        if self.size is None or slot.epoch == self._epoch or len(self._holders) <= self.size:
            return True
        self._holders.remove(slot)
        slot._waiter = Future[None]()
        self._waiting.appendleft((slot, slot._waiter))
        self._admit()
        return False

    def _send(self, slot: Slot) -> None:
        """Record that a call is sent."""
        slot.since, slot.sent = time.monotonic(), True
        if self.limit is not None and slot.epoch == self._epoch:
            slot.beside = self._under_way() if self._answered_beside < self.limit else 0  # no more is to be known
            self._latest.append(slot)
            if len(self._latest) > max(_LATEST, self.size or 0):
                self._latest.popleft()

    def _release(self, slot: Slot) -> None:
        with self._lock:
            self._holders.remove(slot)
            self._admit()

    def _admit(self) -> None:
        """Assign free places to the first callers that are still waiting."""
        while self._waiting and self._free():
            slot, waiter = self._waiting.popleft()
            self._hold(slot)
            waiter.set_result(None)

    def _withdraw(self, slot: Slot) -> None:
        """Remove a cancelled caller from the queue, or release its place if it has one, also since a moment ago."""
        with self._lock:
            self._waiting = deque(waiting for waiting in self._waiting if waiting[0] is not slot)
            self._holders.discard(slot)
            self._admit()

    def _free(self) -> bool:
        """Return True if a place is free; late calls, at most as many as half of the limit, take up none."""
        if self.size is None or len(self._holders) < self.size:
            return True
        if (patience := self._patience) is None or self.limit is None:
            return False
        latest = time.monotonic() - patience
        late = sum([slot.since <= latest for slot in self._holders])
        return len(self._holders) - min(self.limit // 2, late) < self.size

    @property
    def _patience(self) -> float | None:
        """Seconds after which a call is late; None if no call has ended."""
        return None if self._usual is None else max(_LEAST_LATE, _LATE * self._usual)
