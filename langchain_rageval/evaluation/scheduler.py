"""Tasks: one metric on one sample each, in the order in which workers take them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Row, Sample, Score
from langchain_rageval.errors import SampleError
from langchain_rageval.evaluation.inputs import AnyMetric, each_of, refuse_doubled, size_of
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import metrics_in, sequential_steps, shared_steps_key
from langchain_rageval.run.budget import BudgetTracker
from langchain_rageval.run.embedding import BATCH_SIZE
from langchain_rageval.run.run import Run

_LONGEST_SHOWN = 1000


@dataclass
class Pending:
    """A sample some of whose metrics are still at work."""

    index: int
    sample: Sample
    run: Run
    left: int
    scores: dict[int, dict[str, Score]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, number: int, scores: dict[str, Score]) -> bool:
        """Keep the scores of the metric with this number; gives whether it was the last one."""
        with self.lock:
            self.scores[number] = scores
            self.left -= 1
            return not self.left

    def row(self) -> Row:
        """The finished row, scores in the order of the metrics.

        Raises:
            ConfigError: if two of a user's own metrics gave scores of one name.
        """
        pairs = [pair for _, part in sorted(self.scores.copy().items()) for pair in part.items()]
        refuse_doubled([name for name, _ in pairs])
        return Row(index=self.index, sample=self.sample, scores=dict(pairs))


@dataclass(frozen=True)
class Task:
    """One metric on one sample; or the error by which the sample could not be read."""

    pending: Pending
    number: int
    unreadable: SampleError | None


TaskGroup = Sequence[Task]
"""Tasks that one worker does one after the other."""


@dataclass(frozen=True)
class Scheduler:
    """What an evaluation has to do.

    Args:
        metrics: one task of each for a sample.
        run: what they share.
        refuse: whether a sample that cannot be read ends the run, rather than fail alone.
        allowance: samples of which nobody knows how many there are end when it is spent.

    Attributes:
        begun: the samples that were handed out and whose rows were not, by their index.
        unread: set when no more samples are read for want of money.
    """

    metrics: Sequence[AnyMetric]
    run: Run
    refuse: bool
    budget_tracker: BudgetTracker
    begun: dict[int, Pending] = field(default_factory=dict)
    unread: threading.Event = field(default_factory=threading.Event)

    def workers(self, samples: Any) -> int:
        """How many workers keep every slot busy, as those do not that wait for another's answer or between two tries.

        Twice as many as slots, for those that wait for vectors at the same time share a request; where more wait than a
        request holds, half as many again will do, and a thread has its price.
        """
        slots = self.run.limiter.limit or 1
        limit = slots + min(slots, max(BATCH_SIZE, slots // 2))
        size = size_of(samples)
        return limit if size is None else max(1, min(limit, size * len(self._kin)))

    def each(self, samples: Iterable[Any], stopped: threading.Event) -> Callable[[], Iterator[Task]]:
        """What each worker calls in its thread for the next tasks there are, again and again, until it is stopped."""
        kin, lock = self._of(samples), threading.Lock()

        def of_one_worker() -> Iterator[Task]:
            while not stopped.is_set():
                with lock:
                    tasks = next(kin, None)
                if tasks is None:
                    return
                for task in tasks:
                    if not stopped.is_set():
                        yield task

        return of_one_worker

    def aeach(self, samples: Any) -> Callable[[], AsyncIterator[Task]]:
        """As `each`, on the caller's loop."""
        kin, lock = self._aof(samples), asyncio.Lock()

        async def of_one_worker() -> AsyncIterator[Task]:
            while True:
                async with lock:
                    tasks = await anext(kin, None)
                if tasks is None:
                    return
                for task in tasks:
                    yield task

        return of_one_worker

    def _of(self, samples: Iterable[Any]) -> Iterator[TaskGroup]:
        closing: list[TaskGroup] = []
        for index, item in enumerate(samples):
            if self._stops_reading(samples):
                return
            admitted = self._admitted(index, item)
            if self._closes(index, samples):
                closing += admitted
            else:
                yield from admitted
        yield from self._longest_first(closing)

    async def _aof(self, samples: Any) -> AsyncIterator[TaskGroup]:
        closing: list[TaskGroup] = []
        index = 0
        async for item in each_of(samples):
            if self._stops_reading(samples):
                return
            admitted = self._admitted(index, item)
            if self._closes(index, samples):
                closing += admitted
            else:
                for kin in admitted:
                    yield kin
            index += 1
        for kin in self._longest_first(closing):
            yield kin

    def _closes(self, index: int, samples: Any) -> bool:
        """Whether the tasks of a sample are among the last, which are all under way together.

        Only a sequence is asked: what takes its time to give a sample would hold up the workers meanwhile.
        """
        return isinstance(samples, Sequence) and (len(samples) - index) * len(self._kin) <= self.workers(samples)

    def _longest_first(self, closing: list[TaskGroup]) -> list[TaskGroup]:
        """The last tasks, in such an order that none is left at the end whose calls wait for each other."""
        return sorted(closing, key=lambda kin: self._depths[kin[0].number], reverse=True)

    def _stops_reading(self, samples: Any) -> bool:
        """Whether the budget is spent and there is no telling how many samples there are: they may never end."""
        if self.budget_tracker.exhausted and size_of(samples) is None:
            self.unread.set()
        return self.unread.is_set()

    def _admitted(self, index: int, item: Any) -> Iterator[TaskGroup]:
        unreadable = None
        try:
            if isinstance(item, SampleError):  # a line of a file
                raise item
            sample = Sample.parse(item)
        except SampleError as error:
            if self.refuse:
                raise
            unreadable = error
            sample = Sample(id=f"row-{index}", question="", metadata={"unreadable": _shown(item)})
        pending = self.begun[index] = Pending(index, sample, self.run.for_sample(), left=len(self.metrics))
        return ([Task(pending, number, unreadable) for number in numbers] for numbers in self._kin)

    @cached_property
    def _kin(self) -> list[list[int]]:
        """The numbers of the metrics, those together that go through the same steps once for them all.

        One worker takes these one after the other: in several, all but the first would wait for its answers.
        """
        kin: dict[Hashable, list[int]] = {}
        for number, parts in enumerate(self._parts):
            kin.setdefault(next(filter(None, map(shared_steps_key, parts)), number), []).append(number)
        return list(kin.values())

    @cached_property
    def _depths(self) -> list[int]:
        return [sum(len(sequential_steps(part)) for part in parts) for parts in self._parts]

    @cached_property
    def _parts(self) -> list[list[Metric]]:
        return [metrics_in(metric) for metric in self.metrics]


def _shown(item: Any) -> str:
    """What could not be read, as far as it can be shown."""
    try:
        return repr(item)[:_LONGEST_SHOWN]
    except Exception:  # nested too deep, or an object whose own repr fails
        return f"a {type(item).__name__} that cannot be shown"
