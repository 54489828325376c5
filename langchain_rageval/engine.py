"""Evaluation: one call of `evaluate` or its kin, the workers that keep the pool of model calls full, and its rows.

Workers take one metric of one sample after the other, and hold a slot only during a model call. The two ways of running
them, in threads and on a loop, differ in nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.loading import read_samples
from langchain_rageval.metrics.outcome import aoutcome, failures, judges_of, named, names_of, outcome, parts_of
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.report.report import Report
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.slots import Slots
from langchain_rageval.schema import Row, Sample, Score, Usage

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
        for _, part in sorted(self.scores.items()):
            _refuse_doubled([*scores, *part])
            scores |= part
        return Row(index=self.index, sample=self.sample, scores=scores)


@dataclass(frozen=True)
class Task:
    """One metric on one sample; or the error by which the sample could not be read."""

    pending: Pending
    number: int
    unreadable: SampleError | None


Result = tuple[Task, dict[str, Score]] | BaseException | None
"""What a worker hands over: the scores of a task, what ended it, or None when it has nothing more to do."""


@dataclass(frozen=True)
class Evaluation:
    """One call of `evaluate` or its kin."""

    metrics: Sequence[AnyMetric]
    run: Run
    on_failure: OnFailure
    config: RunnableConfig

    @classmethod
    def of(
        cls,
        metrics: AnyMetric | Sequence[AnyMetric],
        max_concurrency: int,
        on_failure: OnFailure,
        timeout: float | None,
        retry: RetryPolicy | None,
        callbacks: list[BaseCallbackHandler] | None,
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
        run = Run(slots=Slots(max_concurrency), retry=retry or RetryPolicy(), timeout=timeout)
        return cls(_flat(metrics), run, on_failure, {"callbacks": callbacks} if callbacks else {})

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
                    results.put((task, self._done(task)))
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
                yield from _finished(result)
        finally:
            stopped.set()

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
                    await results.put((task, await self._adone(task)))
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
                    yield row
        finally:
            stopping.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    def report(self, rows: Iterable[Row]) -> Report:
        """The report of the finished rows."""
        return Report(sorted(rows, key=lambda row: row.index), list(self._notes()))

    @cached_property
    def _judges(self) -> list[Any]:
        judges = [judge for metric in self.metrics for judge in judges_of(metric)]
        return list({id(judge): judge for judge in judges}.values())

    def _notes(self) -> Iterator[str]:
        models = {id(model): model for judge in self._judges for model in inner_models(judge.model)}
        yield from dict.fromkeys(note for model in models.values() if (note := getattr(model, "report_note", None)))
        ways = {judge.identity: judge.memory.way for judge in self._judges if judge.memory.way}
        yield from (f"{identity} was asked by {way.rung}." for identity, way in ways.items() if way.rung != "prompt")
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
        pending = Pending(index, sample, self.run.for_sample(), left=len(self.metrics))
        return (Task(pending, number, unreadable) for number in range(len(self.metrics)))

    def _done(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        if self.on_failure == "raise":
            return named(metric.invoke(pending.sample, pending.run.into(self.config)))
        return outcome(metric, pending.sample, pending.run, self.config)

    async def _adone(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        if self.on_failure == "raise":
            return named(await metric.ainvoke(pending.sample, pending.run.into(self.config)))
        return await aoutcome(metric, pending.sample, pending.run, self.config)


def _finished(result: Result) -> Iterator[Row]:
    """The row, when this was the last of its metrics; raises what a worker raised."""
    if result is None:
        return
    if isinstance(result, BaseException):
        raise result
    task, scores = result
    pending = task.pending
    pending.scores[task.number] = scores
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
