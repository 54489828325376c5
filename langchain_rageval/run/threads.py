"""Daemon threads, reused. `concurrent.futures` joins its threads at exit: one hanging server would hold up Ctrl-C."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[Callable[[], Any], "Future[Any]"]

_IDLE_SECONDS = 5.0


class DaemonThreads:
    """As many threads as there are jobs at once; one whose job hangs is left behind, never waited for.

    Jobs see the context variables of whoever submits them. Idle threads end by themselves.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Job]] = []
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Start a job now, in an idle thread or in a new one."""
        future: Future[T] = Future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._work, args=(inbox,), name="rageval", daemon=True).start()
        inbox.put((partial(copy_context().run, job), future))
        return future

    def gather(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Do jobs side by side and wait for all; raises what the first failing one raised."""
        if len(jobs) == 1:
            return [jobs[0]()]
        futures = [self.submit(job) for job in jobs]
        wait(futures)
        return [future.result() for future in futures]

    def spread(self, jobs: Sequence[Callable[[], T]], at_once: int) -> list[T]:
        """Do jobs, so many side by side, and wait for all; raises what the first failing one raised.

        Whoever waits may be interrupted: jobs that have not begun are then not begun.
        """
        futures: list[Future[T]] = [Future() for _ in jobs]
        waiting = deque(zip(jobs, futures, strict=True))

        def work() -> None:
            while True:
                try:
                    job, future = waiting.popleft()
                except IndexError:
                    return
                _done(job, future)()

        try:
            for _ in range(min(at_once, len(jobs))):
                self.submit(work)
            return [future.result() for future in futures]
        finally:
            waiting.clear()

    def _work(self, inbox: SimpleQueue[Job]) -> None:
        while True:
            try:
                job, future = inbox.get(timeout=_IDLE_SECONDS)
            except Empty:
                if self._retire(inbox):
                    return
                continue
            finish = _done(job, future)
            with self._lock:
                self._idle.append(inbox)
            finish()
            del job, future, finish  # or an idle thread would keep the last job's objects alive

    def _retire(self, inbox: SimpleQueue[Job]) -> bool:
        """Leave the idle ones, unless a job is already on its way."""
        with self._lock:
            if inbox not in self._idle:
                return False
            self._idle.remove(inbox)
            return True


def _done(job: Callable[[], Any], future: Future[Any]) -> Callable[[], None]:
    """Do a job; gives what hands its result, or what it raised, to the future. One given up before it began is skipped.

    A future that runs can no longer be cancelled: its result would then find no taker, and end the thread.
    """
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        return partial(future.set_result, job())
    except BaseException as error:
        return partial(future.set_exception, error)
