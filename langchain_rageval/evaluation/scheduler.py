"""Scheduler: the tasks of an evaluation (one metric on one sample), in the order in which workers take them."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.loading import DuplicateIdError, SampleIds, describe_place, parse_record
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import SampleError
from langchain_rageval.evaluation.inputs import AnyMetric, Drawn, check_unique, iterate_samples, size_of
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import metrics_in, sequential_steps, shared_steps_key
from langchain_rageval.run.embedding import BATCH_SIZE
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import CACHED


def in_random_order(samples: Iterable[Any], seed: int) -> list[Drawn]:
    """Return samples in random order, each with its place in the input.

    If an id occurs again, a number is appended to it, as in "q1-2", so that all ids are distinct.

    Raises:
        SampleError: if two samples with different questions have one id.
    """
    ids, places = SampleIds(), []
    for index, item in enumerate(samples):
        checked = ids.checked(item, describe_place(index, item)) if isinstance(item, Sample) else item
        places.append(Drawn(index, checked))
    return random.Random(seed).sample(places, len(places))


@dataclass
class PendingSample:
    """A sample with its finished scores, while other scores are still missing.

    Attributes:
        index: place of the sample in the input.
        sample: the sample.
        run: the run shared by the metrics of this sample.
        left: number of metrics that are not finished.
        own: number of metrics without those of an audit; the metrics of an audit come last.
        scores: scores of the finished metrics, by the number of the metric.
        time: time when the last score was finished; None before the first score.
        asked: numbers of the metrics whose models were called, because the journal did not have the score.
    """

    index: int
    sample: Sample
    run: Run
    left: int
    own: int
    scores: dict[int, dict[str, Score]] = field(default_factory=dict)
    time: datetime | None = None
    asked: set[int] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, number: int, scores: dict[str, Score]) -> bool:
        """Add the scores of a metric; return True if all metrics of the sample are then finished.

        `number` is the place of the metric in the run, from 0.
        """
        with self.lock:
            self.scores[number] = scores
            self.left -= 1
            self.time = datetime.now(UTC).replace(microsecond=0)
            return not self.left

    def row(self) -> Row:
        """Return the row of the sample, with its scores in the order of the metrics.

        Raises:
            ConfigError: if two custom metrics returned scores with the same name.
        """
        own: list[tuple[str, Score]] = []
        of_audit: list[tuple[str, Score]] = []
        for number, part in sorted(self.scores.copy().items()):
            (own if number < self.own else of_audit).extend(part.items())
        check_unique([name for name, _ in own])
        anew = [
            name for number in sorted(self.asked.copy()) if number < self.own for name in self.scores.get(number, {})
        ]
        asked = [] if self.run.meter.has_counted(CACHED) else anew
        row = {"scores": dict(own), "audit": dict(of_audit), "time": self.time, "asked": asked}
        return Row(index=self.index, sample=self.sample, **row)


@dataclass(frozen=True)
class Task:
    """Task of a worker: score one sample with one metric.

    Attributes:
        pending: the sample.
        number: the place of the metric in the run, from 0.
        unreadable: error of a sample that could not be parsed; None if it was parsed.
    """

    pending: PendingSample
    number: int
    unreadable: SampleError | None


TaskGroup = Sequence[Task]
"""Tasks that one worker does one after the other."""


@dataclass(frozen=True)
class Scheduler:
    """Tasks of an evaluation, given to workers one at a time.

    Args:
        metrics: metrics of the evaluation; each sample has one task for each metric.
        run: the run of the evaluation. When its budget is spent, no more samples are read from a source of unknown
            length.
        raise_unreadable: True to raise the error of a sample that cannot be parsed, False to record it as a failure.
            Two different questions with the same id always raise an error.
        own: number of metrics without those of an audit; the metrics of an audit come last.
        audited: ids of the samples of the audit.

    Attributes:
        ids: ids of the samples read so far.
        begun: samples that workers have started and whose rows are not finished, by index.
        no_judge_left: set when no metric can be scored any more, because all judges became unavailable.
        stopped_reading: set when samples were left unread because the budget was spent or no judge was left.
    """

    metrics: Sequence[AnyMetric]
    run: Run
    raise_unreadable: bool
    own: int
    audited: frozenset[str] = frozenset()
    ids: SampleIds = field(default_factory=SampleIds)
    begun: dict[int, PendingSample] = field(default_factory=dict)
    no_judge_left: threading.Event = field(default_factory=threading.Event)
    stopped_reading: threading.Event = field(default_factory=threading.Event)

    def n_workers(self, samples: Any) -> int:
        """Return the number of workers that keeps every slot of the run's limiter busy; a slot allows one model call.

        More workers than slots are needed: a worker that waits for the result of another worker, or between two
        attempts, holds no slot. For up to 64 slots, there are twice as many workers as slots, so that workers waiting
        for embeddings can share one request, which holds up to 64 texts. For 65 to 128 slots, there are 64 more workers
        than slots. For more than 128 slots, there are 1.5 times as many workers as slots.

        Args:
            samples: the samples. If their number is known, there are at most as many workers as groups of tasks (the
                tasks of one sample that one worker does one after the other).
        """
        slots = self.run.governor.limiter.limit or 1
        limit = slots + min(slots, max(BATCH_SIZE, slots // 2))
        size = size_of(samples)
        return limit if size is None else max(1, min(limit, size * len(self._groups)))

    def tasks(self, samples: Iterable[Any], stopped: threading.Event) -> Callable[[], Iterator[Task]]:
        """Return a function that each worker thread calls to iterate over its tasks.

        A task is to score one sample with one metric. Each task goes to exactly one worker.

        Args:
            samples: the samples; only one worker reads them at a time.
            stopped: event that ends the iteration of every worker when set.
        """
        groups, lock = self._task_groups(samples), threading.Lock()

        def tasks_of_worker() -> Iterator[Task]:
            while not stopped.is_set():
                with lock:
                    group = next(groups, None)
                if group is None:
                    return
                for task in group:
                    if not stopped.is_set():
                        yield task

        return tasks_of_worker

    def atasks(self, samples: Any) -> Callable[[], AsyncIterator[Task]]:
        """Return a function that each async worker calls to iterate over its tasks on the caller's event loop.

        A task is to score one sample with one metric. `samples` is an iterable or an async iterable.
        """
        groups, lock = self._atask_groups(samples), asyncio.Lock()

        async def tasks_of_worker() -> AsyncIterator[Task]:
            while True:
                async with lock:
                    group = await anext(groups, None)
                if group is None:
                    return
                for task in group:
                    yield task

        return tasks_of_worker

    def tasks_by_sample(self, samples: Iterable[Any]) -> Iterator[list[Task]]:
        """Yield, for each sample in turn, the list of its tasks; a task is to score the sample with one metric.

        The order of the tasks is the same whenever the same samples are scored with the same metrics.
        """
        for place, item in enumerate(samples):
            if self._stops_reading(samples):
                return
            yield [task for group in self._groups_of(place, item) for task in group]

    def _task_groups(self, samples: Iterable[Any]) -> Iterator[TaskGroup]:
        last = list[TaskGroup]()
        for place, item in enumerate(samples):
            if self._stops_reading(samples):
                return
            yield from self._ready(place, item, samples, last)
        yield from self._longest_first(last)

    async def _atask_groups(self, samples: Any) -> AsyncIterator[TaskGroup]:
        last, places = list[TaskGroup](), count()
        async for item in iterate_samples(samples):
            if self._stops_reading(samples):
                return
            for group in self._ready(next(places), item, samples, last):
                yield group
        for group in self._longest_first(last):
            yield group

    def _ready(self, place: int, item: Any, samples: Any, last: list[TaskGroup]) -> Iterable[TaskGroup]:
        """Return the tasks of a sample; add them to `last` if all tasks from it on can be in progress together.

        Only those of a sequence: collecting samples from a slow source would keep the workers waiting.
        """
        groups = self._groups_of(place, item)
        if isinstance(samples, Sequence) and (len(samples) - place) * len(self._groups) <= self.n_workers(samples):
            last += groups
            return ()
        return groups

    def _longest_first(self, groups: list[TaskGroup]) -> list[TaskGroup]:
        """Sort the last tasks by their number of sequential calls, so that the longest ones start first."""
        depths = [sum(len(sequential_steps(part)) for part in parts) for parts in self._parts]
        return sorted(groups, key=lambda group: depths[group[0].number], reverse=True)

    def _stops_reading(self, samples: Any) -> bool:
        """Return True if the budget is spent or no judge is left, and the source may be endless."""
        if (self.run.governor.exhausted or self.no_judge_left.is_set()) and size_of(samples) is None:
            self.stopped_reading.set()
        return self.stopped_reading.is_set()

    def _groups_of(self, place: int, read: Any) -> Iterator[TaskGroup]:
        """Parse a sample, give it an id that is not among those of the earlier ones, and return its tasks."""
        index, item = (read.index, read.item) if isinstance(read, Drawn) else (place, read)
        unreadable = None
        try:
            if isinstance(item, SampleError):  # of a line of a file
                raise item
            sample = parse_record(item)
            sample = self.ids.checked(sample, describe_place(index, sample))
        except SampleError as error:
            if self.raise_unreadable or isinstance(error, DuplicateIdError):
                raise
            unreadable = error
            placeholder = Sample(id=f"row-{index}", question="", metadata={"unreadable": _short_repr(item)})
            sample = self.ids.distinct(placeholder)
        numbers_of = self._groups if sample.id in self.audited else self._own_groups
        left = sum(map(len, numbers_of))
        pending = self.begun[index] = PendingSample(index, sample, self.run.for_sample().metered(), left, self.own)
        return ([Task(pending, number, unreadable) for number in numbers] for numbers in numbers_of)

    @cached_property
    def _groups(self) -> list[list[int]]:
        """Indices of the metrics; metrics that share steps form one group.

        One worker does all tasks of a group: other workers would only wait for the shared results.
        """
        groups: dict[Hashable, list[int]] = {}
        for number, parts in enumerate(self._parts):
            groups.setdefault(next(filter(None, map(shared_steps_key, parts)), number), []).append(number)
        return list(groups.values())

    @cached_property
    def _own_groups(self) -> list[list[int]]:
        """The groups without the metrics of an audit."""
        return [numbers for numbers in self._groups if numbers[0] < self.own]

    @cached_property
    def _parts(self) -> list[list[Metric]]:
        return [metrics_in(metric) for metric in self.metrics]


def _short_repr(item: Any) -> str:
    """Return the first 1000 characters of the repr of an unreadable item, or its type if the repr fails."""
    try:
        return repr(item)[:1000]
    except Exception:  # nested too deeply, or an object whose own repr raises
        return f"a {type(item).__name__} that cannot be shown"
