"""Lane: a bounded queue that a few daemon threads work off."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Generic, TypeVar

from langchain_rageval.run.threads import DaemonThreads

T = TypeVar("T")

log = logging.getLogger("langchain_rageval")


class WorkerQueue(Generic[T]):
    """Items on their way, in order, to a function that takes one at a time.

    Args:
        work: takes an item, in a daemon thread that sees none of the context variables of whoever put it in.
        workers: most threads at once; there are none while there is nothing to do.
        limit: most items at once, those that are being worked on included.
        threads: where they come from.
    """

    def __init__(self, work: Callable[[T], None], workers: int, limit: int, threads: DaemonThreads) -> None:
        self._work = work
        self._workers = workers
        self._limit = limit
        self._threads = threads
        self._waiting: deque[T] = deque()
        self._active = 0
        self._inside = 0
        self._changed = threading.Condition()

    def put(self, item: T, wait: float = 0.0) -> bool:
        """Take an item in; False when there is no room for it, nor will be within so many seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._inside < self._limit, wait):
                return False
            starts = self._active < self._workers
            self._active += starts
            self._inside += 1
            self._waiting.append(item)
        if starts:
            self._start()
        return True

    def clear(self) -> list[T]:
        """Take out what nobody works on yet."""
        with self._changed:
            waiting, self._waiting = list(self._waiting), deque()
            self._inside -= len(waiting)
            return waiting

    def _start(self) -> None:
        try:
            Context().run(self._threads.submit, self._drain)
        except RuntimeError as error:  # no more threads: of this machine, or because the interpreter is shutting down
            with self._changed:
                self._active -= 1
            log.warning("no thread to score or deliver in: %s", error)

    def _drain(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._active -= 1
                    return
                item = self._waiting.popleft()
            try:
                self._work(item)
            except Exception:
                log.exception("an item was lost")
            finally:
                with self._changed:
                    self._inside -= 1
                    self._changed.notify()
                del item
