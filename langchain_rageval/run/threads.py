"""Reusable daemon threads, shared by the runs of a process.

`concurrent.futures` joins its threads at exit. One hanging server would then block Ctrl-C.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, wait
from contextvars import copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from langchain_rageval._internal.cached import PerProcess

T = TypeVar("T")
Job = tuple[Callable[[], Any], "Future[Any]"]

_IDLE_SECONDS = 5.0
_THREAD_NAME = "rageval"


class DaemonThreads:
    """Unbounded pool of daemon threads: one thread per concurrent job. A hanging job does not block the exit.

    Jobs run in a copy of the submitting thread's context variables. Threads end after 5 seconds without a job.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[Job]] = []
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], T]) -> Future[T]:
        """Start a job at once, in an idle thread or a new one.

        From Python 3.12 on, no thread can be started while the interpreter shuts down. A job that a pool thread submits
        then runs in that thread, so that work begun before the end of the program is finished.

        Raises:
            RuntimeError: if no thread can be started.
        """
        future: Future[T] = Future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            try:
                threading.Thread(target=self._work, args=(inbox,), name=_THREAD_NAME, daemon=True).start()
            except RuntimeError as error:
                if "interpreter shutdown" not in str(error) or threading.current_thread().name != _THREAD_NAME:
                    raise
                _run_job(partial(copy_context().run, job), future)()
                return future
        inbox.put((partial(copy_context().run, job), future))
        return future

    def gather(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs concurrently, wait for all jobs and return the results; raise the first error."""
        if len(jobs) == 1:
            return [jobs[0]()]
        futures = [self.submit(job) for job in jobs]
        wait(futures)
        return [future.result() for future in futures]

    def stream(self, jobs: Sequence[Callable[[], T]], at_once: int) -> Generator[T]:
        """Run jobs, at most `at_once` of them concurrently, and yield their results in the order of `jobs`.

        Each result is yielded as soon as it and all earlier results are there. If a job failed, its error is raised in
        the place of its result. After an error or an interrupt, no further job is started.
        """
        futures: list[Future[T]] = [Future() for _ in jobs]
        waiting = deque(zip(jobs, futures, strict=True))

        def work() -> None:
            while True:
                try:
                    job, future = waiting.popleft()
                except IndexError:
                    return
                _run_job(job, future)()

        try:
            for _ in range(min(at_once, len(jobs))):
                self.submit(work)
            for future in futures:
                yield future.result()
        finally:
            waiting.clear()

    def _work(self, inbox: SimpleQueue[Job]) -> None:
        while True:
            try:
                job, future = inbox.get(timeout=_IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if inbox not in self._idle:  # a job was assigned to this thread meanwhile
                        continue
                    self._idle.remove(inbox)
                return
            finish = _run_job(job, future)
            with self._lock:
                self._idle.append(inbox)
            finish()
            del job, future, finish  # an idle thread must not keep the last job's objects alive


def _run_job(job: Callable[[], Any], future: Future[Any]) -> Callable[[], None]:
    """Run a job and return a function that passes its result or error to the future; skip a cancelled future.

    The future is marked as running first. It can then no longer be cancelled, which would make `set_result` raise and
    end the thread.
    """
    if not future.set_running_or_notify_cancel():
        return lambda: None
    try:
        return partial(future.set_result, job())
    except StopIteration as error:  # an asyncio future rejects it, and its waiter would wait for ever
        problem = RuntimeError("the call raised StopIteration")
        problem.__cause__ = error
        return partial(future.set_exception, problem)
    except BaseException as error:
        return partial(future.set_exception, error)


_SHARED: PerProcess[DaemonThreads] = PerProcess(DaemonThreads)


def shared_threads() -> DaemonThreads:
    """Return the threads that all runs of this process share."""
    return _SHARED.value
