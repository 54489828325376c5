"""Worker queue: a bounded queue whose items a few daemon threads process."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Generic, TypeVar

from langchain_rageval.run.threads import DaemonThreads

T = TypeVar("T")

in_worker: ContextVar[bool] = ContextVar("in_worker", default=False)
"""True in threads that process a queue, and in what they start: runs of chains there are not sampled."""

_LOG = logging.getLogger("langchain_rageval")


class WorkerQueue(Generic[T]):
    """A bounded first-in, first-out queue with worker threads that start on demand.

    Args:
        process: called with each item, in a daemon thread that sees none of the context variables of the producer.
        n_workers: maximum number of threads; there are none while the queue is empty.
        limit: maximum number of items, those being processed included.
        threads: source of the threads.
    """

    def __init__(self, process: Callable[[T], None], n_workers: int, limit: int, threads: DaemonThreads) -> None:
        self._process = process
        self._n_workers = n_workers
        self._limit = limit
        self._threads = threads
        self._waiting: deque[T] = deque()
        self._n_active = 0
        self._n_items = 0
        self._changed = threading.Condition()

    def put(self, item: T, timeout: float = 0.0) -> bool:
        """Add an item; return False if the queue is still full after a timeout in seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._n_items < self._limit, timeout):
                return False
            needs_worker = self._n_active < self._n_workers
            self._n_active += needs_worker
            self._n_items += 1
            self._waiting.append(item)
        if needs_worker:
            self._start_worker()
        return True

    def clear(self) -> list[T]:
        """Remove and return the items that no worker has started."""
        with self._changed:
            waiting, self._waiting = list(self._waiting), deque()
            self._n_items -= len(waiting)
            return waiting

    def _start_worker(self) -> None:
        try:
            Context().run(self._threads.submit, self._work)
        except RuntimeError as error:  # the system has no more threads, or the interpreter is shutting down
            with self._changed:
                self._n_active -= 1
            _LOG.warning("no thread could be started to score or deliver: %s", error)

    def _work(self) -> None:
        in_worker.set(True)
        while True:
            with self._changed:
                if not self._waiting:
                    self._n_active -= 1
                    return
                item = self._waiting.popleft()
            try:
                self._process(item)
            except BaseException:
                _LOG.exception("an item was lost")
            finally:
                with self._changed:
                    self._n_items -= 1
                    self._changed.notify()
                del item
