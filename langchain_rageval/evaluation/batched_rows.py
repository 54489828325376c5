"""Rows of a run through batch APIs: all samples run to their next request, the wave is sent, and they run on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from langchain_rageval.errors import RagevalError
from langchain_rageval.evaluation.scheduler import PendingSample, Task
from langchain_rageval.run.batch.wave_files import FileWaves
from langchain_rageval.run.batch.waves import Waves
from langchain_rageval.run.threads import DaemonThreads

_FIRST_SAMPLES = 50  # of a run with a stopping rule; the next waves are of twice as many samples each
_MOST_SAMPLES = 20_000  # in memory at a time

Advance = Callable[[list[Task]], tuple[list[PendingSample], list[Task]]]
"""Does the tasks of a sample as far as replies are known; returns the sample if it is finished, and the other tasks."""


def rows_in_waves(
    tasks_by_sample: Iterator[list[Task]],
    advance: Advance,
    waves: Waves | FileWaves,
    threads: DaemonThreads,
    at_once: int,
    *,
    may_stop: bool,
) -> Iterator[PendingSample]:
    """Yield each sample when it is finished.

    Args:
        tasks_by_sample: tasks of each sample, drawn as they are needed.
        advance: does the tasks of one sample, in a worker thread.
        waves: sends the recorded requests and waits for their replies.
        threads: worker threads.
        at_once: number of samples that are worked on at a time.
        may_stop: True if a stopping rule may end the run; few samples are then drawn at first.
    """
    waves.resume()
    most = sys.maxsize if isinstance(waves, FileWaves) else _MOST_SAMPLES
    size = _FIRST_SAMPLES if may_stop else most
    while samples := list(islice(tasks_by_sample, size)):
        while samples:
            jobs = [partial(advance, tasks) for tasks in samples]
            samples = []
            for finished, waiting in threads.stream(jobs, at_once):
                yield from finished
                if waiting:
                    samples.append(waiting)
            if samples and not waves.send():
                raise RagevalError("samples wait for replies, but no request was recorded; please report this")
        size = min(2 * size, most)
