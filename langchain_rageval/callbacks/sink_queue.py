"""Sink queue: deliver rows to one sink, with retries."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from langchain_rageval.callbacks.worker_queue import WorkerQueue
from langchain_rageval.data.schema import Row
from langchain_rageval.run.threads import DaemonThreads

Sink = Callable[[Row], Any]

_PUT_TIMEOUT = 10.0  # seconds to wait for room, if the sink is slower than the judge
_RETRY_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds


@dataclass(eq=False)
class Delivery:
    """A row on its way to several sinks.

    Attributes:
        number: number of the run.
        row: the row.
        outcome: counter that is increased when every sink is done with the row, such as "scored".
        n_pending: number of sinks that are not done with it.
    """

    number: int
    row: Row
    outcome: str
    n_pending: int = 0


class SinkQueue:
    """A bounded queue of deliveries to one sink, with its own thread.

    A row that the sink rejects is tried again after growing delays. While the sink rejects every row, each row is tried
    once. `put` blocks while the queue is full, so the judge runs no faster than the sink; if a sink hangs, only the
    first call blocks, until the sink continues.

    Args:
        sink: called with each row.
        on_error: called with each error of the sink, and `gave_up=True` if the row is not tried again.
        on_done: called with each delivery when it is accepted or given up.
        limit: maximum number of deliveries in the queue.
        threads: source of the thread.
    """

    def __init__(
        self,
        sink: Sink,
        on_error: Callable[..., None],
        on_done: Callable[[Delivery], None],
        limit: int,
        threads: DaemonThreads,
    ) -> None:
        self._sink = sink
        self._on_error = on_error
        self._on_done = on_done
        self._queue: WorkerQueue[Delivery] = WorkerQueue(self._deliver, 1, limit, threads)
        self._is_down = False
        self._hangs = False

    def put(self, delivery: Delivery) -> bool:
        """Add a delivery (a row for the sink) to the queue; return False if the queue stays full."""
        added = self._queue.put(delivery, 0.0 if self._hangs else _PUT_TIMEOUT)
        self._hangs = not added
        return added

    def _deliver(self, delivery: Delivery) -> None:
        try:
            self._send(delivery.row)
        finally:
            self._on_done(delivery)

    def _send(self, row: Row) -> None:
        for delay in (None,) if self._is_down else (*_RETRY_DELAYS, None):
            try:
                _call(self._sink, row)
            except BaseException as error:
                self._on_error(error, gave_up=delay is None)
            else:
                self._is_down = False
                return
            if delay is not None:
                time.sleep(delay)
        self._is_down = True


def _call(sink: Sink, row: Row) -> None:
    """Call a sink with a row.

    Raises:
        TypeError: if the sink is async. It would not be awaited, and the row would be lost.
    """
    result = sink(row)
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("the sink is async: pass a plain function, which is called in a thread of its own")
