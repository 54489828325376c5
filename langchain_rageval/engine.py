"""Evaluation: one call of `evaluate` or its kin, the workers that keep the pool of model calls full, and its rows.

Workers take one metric of one sample after the other, and hold a slot only during a model call. The two ways of running
them, in threads and on a loop, differ in nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.finished import Finished
from langchain_rageval.grounds import Grounds
from langchain_rageval.loading import read_samples
from langchain_rageval.metrics.outcome import (
    aoutcome,
    failures,
    judges_of,
    models_of,
    named,
    names_of,
    outcome,
    parts_of,
)
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.report.report import Report
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.slots import Slots
from langchain_rageval.schema import Row, Sample, Score, Usage

T = TypeVar("T")
OnFailure = Literal["record", "raise"]
Samples = Iterable[Any] | str | Path
AnyMetric = Runnable[Any, Any]

_WORKERS_PER_SLOT = 2  # those that wait for another's answer, or between two tries, hold no slot


@dataclass
class Pending:
    """A sample some of whose metrics are still at work."""

    index: int
    sample: Sample
    run: Run
    left: int
    scores: dict[int, dict[str, Score]] = field(default_factory=dict)

    def row(self) -> Row:
        """The finished row, scores in the order of the metrics.

        Raises:
            ConfigError: if two of a user's own metrics gave scores of one name.
        """
        scores: dict[str, Score] = {}
        for _, part in sorted(self.scores.copy().items()):
            _refuse_doubled([*scores, *part])
            scores |= part
        return Row(index=self.index, sample=self.sample, scores=scores)


@dataclass(frozen=True)
class Task:
    """One metric on one sample; or the error by which the sample could not be read."""

    pending: Pending
    number: int
    unreadable: SampleError | None


Result = Task | BaseException | None
"""What a worker hands over: a task it has done, what ended it, or None when it has nothing more to do."""


@dataclass(frozen=True)
class Evaluation:
    """One call of `evaluate` or its kin."""

    metrics: Sequence[AnyMetric]
    run: Run
    on_failure: OnFailure
    config: RunnableConfig
    finished: Finished
    grounds: Grounds = field(default_factory=Grounds)
    begun: dict[int, Pending] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        metrics: AnyMetric | Sequence[AnyMetric],
        max_concurrency: int,
        on_failure: OnFailure,
        timeout: float | None,
        retry: RetryPolicy | None,
        callbacks: list[BaseCallbackHandler] | None,
        journal: str | Path | Journal | None = None,
    ) -> Evaluation:
        """Check the options and make the run.

        Raises:
            ConfigError: if one cannot be used.
        """
        if not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise ConfigError(f"max_concurrency takes a whole number from 1 on, got {max_concurrency!r}")
        if timeout is not None and not (isinstance(timeout, int | float) and timeout > 0):
            raise ConfigError(f"timeout takes seconds above 0, or None, got {timeout!r}")
        if on_failure not in ("record", "raise"):
            raise ConfigError(f"on_failure is 'record' or 'raise', got {on_failure!r}")
        if not isinstance(retry, RetryPolicy | None):
            raise ConfigError(f"retry takes a RetryPolicy(attempts=...), got {retry!r}")
        if not isinstance(callbacks, list | BaseCallbackManager | None):
            raise ConfigError(f"callbacks takes a list of handlers, got {type(callbacks).__name__}")
        if not isinstance(journal, str | Path | Journal | None):
            raise ConfigError(f"journal takes the path of a file, got {type(journal).__name__}")
        run = Run(slots=Slots(max_concurrency), retry=retry or RetryPolicy(), timeout=timeout)
        flat = _flat(metrics)
        config: RunnableConfig = {"callbacks": callbacks} if callbacks else {}
        return cls(flat, run, on_failure, config, Finished(journal, flat))

    def checked(self, samples: Any) -> Any:
        """The samples to iterate; those of a list or DataFrame parsed, and complete for every metric.

        Raises:
            SampleError: if one is not.
            ConfigError: if there is nothing to iterate.
        """
        if isinstance(samples, str | Path):
            return read_samples(samples)
        if hasattr(samples, "to_dict") and hasattr(samples, "columns"):
            samples = samples.to_dict("records")
        if isinstance(samples, Mapping | Sample):
            raise ConfigError("samples takes several; put a single one in a list, or call the metric's invoke")
        if not any(hasattr(samples, name) for name in ("__iter__", "__aiter__", "__getitem__")):
            took = "samples takes a list, an iterator, a path, a DataFrame or a data set"
            raise ConfigError(f"{took}, got {type(samples).__name__}")
        if not isinstance(samples, Sequence):
            return samples
        parsed = [self._complete(item) for item in samples]
        _refuse_one_id_for_two(parsed)
        return parsed

    def rows(self, samples: Iterable[Any]) -> Generator[Row]:
        """The rows as they are finished, scored in worker threads.

        Raises:
            ConfigError: if only a loop can iterate the samples.
        """
        if hasattr(samples, "__aiter__") and not hasattr(samples, "__iter__"):
            raise ConfigError("evaluate cannot wait for an async iterator; use `await aevaluate(...)`")
        tasks, lock, stopped = self._tasks(samples), threading.Lock(), threading.Event()
        results: SimpleQueue[Result] = SimpleQueue()

        def work() -> None:
            try:
                while not stopped.is_set():
                    with lock:
                        task = next(tasks, None)
                    if task is None:
                        break
                    task.pending.scores[task.number] = self._done(task)
                    results.put(task)
            except BaseException as error:
                results.put(error)
            results.put(None)

        left = self._workers(samples)
        for _ in range(left):
            self.run.threads.submit(work)
        try:
            while left:
                result = results.get()
                left -= result is None
                for row in _finished(result):
                    self.grounds.see(row)
                    yield row
                    del self.begun[row.index]  # whoever breaks off before this finds it there
            self.grounds.warn()
        finally:
            stopped.set()
            self.finished.close()

    async def arows(self, samples: Any) -> AsyncGenerator[Row]:
        """The rows as they are finished, scored on the caller's loop."""
        tasks, lock, stopping = self._atasks(samples), asyncio.Lock(), asyncio.Event()
        left = self._workers(samples)
        results: asyncio.Queue[Result] = asyncio.Queue(left)

        async def work() -> None:
            try:
                while True:
                    async with lock:
                        task = await anext(tasks, None)
                    if task is None:
                        break
                    task.pending.scores[task.number] = await self._adone(task)
                    await results.put(task)
            except asyncio.CancelledError as error:
                if stopping.is_set():
                    raise
                await results.put(error)  # of a task in the judge's client or a user's metric, not of this worker
            except Exception as error:
                await results.put(error)
            await results.put(None)

        workers = [asyncio.create_task(work()) for _ in range(left)]
        try:
            while left:
                result = await results.get()
                left -= result is None
                for row in _finished(result):
                    self.grounds.see(row)
                    yield row
                    del self.begun[row.index]  # whoever breaks off before this finds it there
            self.grounds.warn()
        finally:
            stopping.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self.finished.close()

    def report(self, rows: Iterable[Row], *, complete: bool = True) -> Report:
        """The report of the finished rows; of a run that was broken off, also of rows with some of their scores."""
        finished = {row.index: row for row in rows}
        notes = list(self._notes())
        if not complete:
            finished |= {index: begun.row() for index, begun in list(self.begun.items()) if begun.scores}
            notes.insert(0, f"The run was interrupted: {len(finished)} samples have scores.")
        return Report([row for _, row in sorted(finished.items())], notes, complete)

    @cached_property
    def _judges(self) -> list[Any]:
        judges = [judge for metric in self.metrics for judge in judges_of(metric)]
        return list({id(judge): judge for judge in judges}.values())

    def _notes(self) -> Iterator[str]:
        models = {id(model): model for metric in self.metrics for model in models_of(metric)}
        yield from dict.fromkeys(note for model in models.values() if (note := getattr(model, "report_note", None)))
        asked = [(judge, judge.memory.way) for judge in self._judges if judge.memory.way]
        ways = {judge.identity: way for judge, way in asked if way.rung != "prompt" or len(judge.ways) > 1}
        yield from (f"{identity} was asked by {way.rung}." for identity, way in ways.items())
        yield from self.grounds.notes()
        yield from self.finished.notes()
        slots = self.run.slots
        if slots.limit is not None and slots.least is not None and slots.least < slots.limit:
            yield f"The endpoint turned calls away: it was given {slots.least} to {slots.limit} at a time."
        if self.run.meter.abandoned:
            yield f"{self.run.meter.abandoned} calls took longer than {self.run.timeout:g} s and were left behind."

    def _workers(self, samples: Any) -> int:
        limit = _WORKERS_PER_SLOT * (self.run.slots.limit or 1)
        size = size_of(samples)
        return limit if size is None else max(1, min(limit, size * len(self.metrics)))

    def _complete(self, item: Any) -> Sample:
        sample = Sample.parse(item)
        for metric in self.metrics:
            if not isinstance(metric, RunnableSequence):  # in a chain, the metric reads what comes before it
                for part in parts_of(metric):
                    part.read(sample)
        return sample

    def _tasks(self, samples: Iterable[Any]) -> Iterator[Task]:
        for index, item in enumerate(samples):
            yield from self._admitted(index, item)

    async def _atasks(self, samples: Any) -> AsyncIterator[Task]:
        index = 0
        async for item in _each(samples):
            for task in self._admitted(index, item):
                yield task
            index += 1

    def _admitted(self, index: int, item: Any) -> Iterator[Task]:
        unreadable = None
        try:
            if isinstance(item, SampleError):  # a line of a file
                raise item
            sample = Sample.parse(item)
        except SampleError as error:
            if self.on_failure == "raise":
                raise
            unreadable = error
            sample = Sample(id=f"row-{index}", question="", metadata={"unreadable": repr(item)[:1000]})
        pending = self.begun[index] = Pending(index, sample, self.run.for_sample(), left=len(self.metrics))
        return (Task(pending, number, unreadable) for number in range(len(self.metrics)))

    def _done(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        known = self.finished.score(task.number, pending.sample)
        if known is not None:
            return known
        if self.on_failure == "raise":
            scores = named(metric.invoke(pending.sample, pending.run.into(self.config)))
        else:
            scores = outcome(metric, pending.sample, pending.run, self.config)
        self.finished.keep(task.number, pending.sample, scores)
        return scores

    async def _adone(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        known = await self._beside(partial(self.finished.score, task.number, pending.sample))
        if known is not None:
            return known
        if self.on_failure == "raise":
            scores = named(await metric.ainvoke(pending.sample, pending.run.into(self.config)))
        else:
            scores = await aoutcome(metric, pending.sample, pending.run, self.config)
        await self._beside(partial(self.finished.keep, task.number, pending.sample, scores))
        return scores

    async def _beside(self, job: Callable[[], T]) -> T:
        """Do what may have to wait for the disk or for another process, without holding up the loop."""
        if self.finished.journal is None:
            return job()
        return await asyncio.wrap_future(self.run.threads.submit(job))


def _finished(result: Result) -> Iterator[Row]:
    """The row, when this was the last of its metrics; raises what a worker raised."""
    if result is None:
        return
    if isinstance(result, BaseException):
        raise result
    pending = result.pending
    pending.left -= 1
    if not pending.left:
        yield pending.row()


def _flat(metrics: AnyMetric | Sequence[AnyMetric]) -> list[AnyMetric]:
    """The metrics, those of a suite one by one.

    Raises:
        ConfigError: if there are none, one is no Runnable, or two have one name.
    """
    single = isinstance(metrics, Runnable) or not isinstance(metrics, Iterable)
    given: list[Any] = [metrics] if single else list(metrics)  # type: ignore[arg-type]
    if not given:
        raise ConfigError("evaluate takes at least one metric, such as faithfulness(judge)")
    for metric in given:
        if not isinstance(metric, Runnable):
            hint = "; call it with a judge" if callable(metric) else ""
            raise ConfigError(f"a metric is a Runnable, got {type(metric).__name__}{hint}")
    flat = [part for metric in given for part in (metric.parts if isinstance(metric, Suite) else [metric])]
    _refuse_doubled([name for metric in flat for name in names_of(metric)])
    return flat


def _refuse_doubled(names: Sequence[str]) -> None:
    doubled = sorted(name for name, times in Counter(names).items() if times > 1)
    if doubled:
        raise ConfigError(f"two metrics are named {doubled}; give one of them another with name=...")


def _refuse_one_id_for_two(samples: Sequence[Sample]) -> None:
    seen: dict[str, Sample] = {}
    for sample in samples:
        first = seen.setdefault(sample.id, sample)
        if first is not sample and _content(first) != _content(sample):
            raise SampleError(
                f"two different samples have the id {sample.id!r}; give each its own, or leave the ids out", "id"
            )


def _content(sample: Sample) -> dict[str, Any]:
    """What the id of a sample without one is made of: equal rows stay separate rows, whatever their metadata."""
    return sample.model_dump(exclude={"metadata", "relevance"})


async def _each(samples: Any) -> AsyncIterator[Any]:
    if hasattr(samples, "__aiter__"):
        async for item in samples:
            yield item
    else:
        for item in samples:
            yield item


def size_of(samples: Any) -> int | None:
    """Number of samples, where it is known beforehand."""
    return len(samples) if hasattr(samples, "__len__") else None
