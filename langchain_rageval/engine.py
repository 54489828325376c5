"""Evaluation: one call of `evaluate` or its kin, the workers that keep the pool of model calls full, and its rows.

Workers take one metric of one sample after the other, and hold a slot only during a model call. The two ways of running
them, in threads and on a loop, differ in nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, TypeVar

from langchain_core.callbacks import BaseCallbackHandler, BaseCallbackManager
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from langchain_rageval.cached import cached_property
from langchain_rageval.errors import BudgetExceeded, ConfigError, SampleError
from langchain_rageval.finished import Finished
from langchain_rageval.grounds import Grounds
from langchain_rageval.intake import AnyMetric, each_of, flattened, refuse_doubled, size_of
from langchain_rageval.metrics.metric import Metric
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
from langchain_rageval.rehearsal import Parts, parts_to_rehearse, rehearsal_run, rehearse
from langchain_rageval.report.files import ReportFile
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import Allowance, Budget, Cost
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.meter import tokens_in
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.slots import Slots
from langchain_rageval.run.traced import heard
from langchain_rageval.schema import Row, Sample, Score, Usage

T = TypeVar("T")
OnFailure = Literal["record", "raise"]

_WORKERS_PER_SLOT = 2  # those that wait for another's answer, or between two tries, hold no slot
_TOKENS_OF_A_PROMPT = 800  # instruction, examples, and what the judge writes
_TEXTS_COMPARED = 2
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


Result = Pending | BaseException | None
"""What a worker hands over: a sample whose last task it has done, what ended it, or None when it has no more to do."""


@dataclass(frozen=True)
class Evaluation:
    """One call of `evaluate` or its kin."""

    metrics: Sequence[AnyMetric]
    run: Run
    on_failure: OnFailure
    config: RunnableConfig
    finished: Finished
    allowance: Allowance
    grounds: Grounds = field(default_factory=Grounds)
    begun: dict[int, Pending] = field(default_factory=dict)
    left_out: list[tuple[int, str]] = field(default_factory=list)
    unread: threading.Event = field(default_factory=threading.Event)

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
        budget: Budget | None = None,
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
        if not isinstance(budget, Budget | None):
            raise ConfigError(f"budget takes a Budget(calls=..., tokens=...), got {budget!r}")
        run = Run(slots=Slots(max_concurrency), retry=retry or RetryPolicy(), timeout=timeout)
        flat = flattened(metrics)
        config: RunnableConfig = {"callbacks": callbacks} if callbacks else {}
        return cls(flat, run, on_failure, config, Finished(journal, flat), Allowance(budget, run.meter))

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
                for task in _of_one_worker(tasks, lock, stopped):
                    self._finish(task, results)
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
                for row in self._rows(result):
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
                async for task in _aof_one_worker(tasks, lock):
                    await self._afinish(task, results)
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
                for row in self._rows(result):
                    yield row
                    del self.begun[row.index]  # whoever breaks off before this finds it there
            self.grounds.warn()
        finally:
            stopping.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self.finished.close()

    def keeping(self, out: str | Path | None, samples: Any) -> AbstractContextManager[list[Row] | ReportFile]:
        """Where rows go until there is a report: into memory, or beside the place of its file.

        Raises:
            ConfigError: if there can be no file, or it would take the place of the samples or the journal.
        """
        if out is None:
            return nullcontext([])
        if not isinstance(out, str | Path):
            raise ConfigError(f"out takes the path of a file, got {type(out).__name__}")
        journal = self.finished.journal and self.finished.journal.path
        for taken, what in ((samples, "the file of samples"), (journal, "the journal")):
            if isinstance(taken, str | Path) and Path(taken).resolve() == Path(out).resolve():
                raise ConfigError(f"out={str(out)!r} is {what}; choose another place")
        return ReportFile(out)

    def report(self, kept: list[Row] | ReportFile, *, complete: bool = True) -> Report:
        """The report of the finished rows; of a run that was broken off, also of rows with some of their scores."""
        if not complete:
            for begun in list(self.begun.values()):
                if any(begun.scores.values()):
                    kept.append(begun.row())
        indexes = kept.indexes if isinstance(kept, ReportFile) else {row.index for row in kept}
        interrupted = [] if complete else [f"The run was interrupted: {len(indexes)} samples have scores."]
        notes = [*interrupted, *self._notes()]
        left_out = sorted(self.left_out)
        if isinstance(kept, ReportFile) and not complete and not indexes:
            kept.discard()
            kept = []
        if isinstance(kept, ReportFile):
            rows = kept.finish({"notes": notes, "complete": complete, "left_out": left_out})
            return Report(rows, notes, complete, left_out)
        in_order = sorted({row.index: row for row in kept}.items())
        return Report([row for _, row in in_order], notes, complete, left_out)

    def refuse_left_out(self) -> None:
        """Raise BudgetExceeded if the budget had no room for a score, where no report can tell it."""
        for told in self._of_budget():
            raise BudgetExceeded(told)

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
        yield from self._of_budget()
        slots = self.run.slots
        if slots.limit is not None and slots.least is not None and slots.least < slots.limit:
            yield f"The endpoint turned calls away: it was given {slots.least} to {slots.limit} at a time."
        if self.run.meter.abandoned:
            yield f"{self.run.meter.abandoned} calls took longer than {self.run.timeout:g} s and were left behind."

    def _of_budget(self) -> Iterator[str]:
        """What the budget had no room for."""
        if self.left_out:
            spent = f"The budget of {self.allowance.budget} is spent"
            told = f"{spent}: {len(self.left_out)} scores were left out, from sample {min(self.left_out)[0]} on"
            yield told + (", and what came after was not read." if self.unread.is_set() else ".")

    def _workers(self, samples: Any) -> int:
        limit = _WORKERS_PER_SLOT * (self.run.slots.limit or 1)
        size = size_of(samples)
        return limit if size is None else max(1, min(limit, size * len(self._kin)))

    @cached_property
    def _kin(self) -> list[list[int]]:
        """The numbers of the metrics, those together that go through the same steps once for them all.

        One worker takes these one after the other: in several, all but the first would wait for its answers.
        """
        kin: dict[Hashable, list[int]] = {}
        for number, metric in enumerate(self.metrics):
            shared = [part.kin for part in parts_of(metric) if isinstance(part, Metric)]
            kin.setdefault(next(filter(None, shared), number), []).append(number)
        return list(kin.values())

    def _tasks(self, samples: Iterable[Any]) -> Iterator[Sequence[Task]]:
        for index, item in enumerate(samples):
            if self._stops_reading(samples):
                return
            yield from self._admitted(index, item)

    async def _atasks(self, samples: Any) -> AsyncIterator[Sequence[Task]]:
        index = 0
        async for item in each_of(samples):
            if self._stops_reading(samples):
                return
            for kin in self._admitted(index, item):
                yield kin
            index += 1

    def _stops_reading(self, samples: Any) -> bool:
        """Whether the budget is spent and there is no telling how many samples there are: they may never end."""
        if self.allowance.spent and size_of(samples) is None:
            self.unread.set()
        return self.unread.is_set()

    def _admitted(self, index: int, item: Any) -> Iterator[Sequence[Task]]:
        unreadable = None
        try:
            if isinstance(item, SampleError):  # a line of a file
                raise item
            sample = Sample.parse(item)
        except SampleError as error:
            if self.on_failure == "raise":
                raise
            unreadable = error
            sample = Sample(id=f"row-{index}", question="", metadata={"unreadable": _shown(item)})
        pending = self.begun[index] = Pending(index, sample, self.run.for_sample(), left=len(self.metrics))
        return ([Task(pending, number, unreadable) for number in numbers] for numbers in self._kin)

    def _finish(self, task: Task, results: SimpleQueue[Result]) -> None:
        """Do a task, and hand over its sample if that was the last."""
        if task.pending.take(task.number, self._done(task)):
            results.put(task.pending)

    async def _afinish(self, task: Task, results: asyncio.Queue[Result]) -> None:
        if task.pending.take(task.number, await self._adone(task)):
            await results.put(task.pending)

    def _done(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        known = self.finished.score(task.number, pending.sample)
        if known is not None:
            return known
        with self._admission(task) as run:
            if run is None:
                return {}
            if self.on_failure == "raise":
                scores = named(metric.invoke(pending.sample, run.into(self.config)))
            else:
                scores = outcome(metric, pending.sample, run, self._complete, unheard=self._unheard)
        self.finished.keep(task.number, pending.sample, scores)
        return scores

    async def _adone(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failures(metric, task.unreadable, Usage())
        known = await self._beside(partial(self.finished.score, task.number, pending.sample))
        if known is not None:
            return known
        with self._admission(task) as run:
            if run is None:
                return {}
            if self.on_failure == "raise":
                scores = named(await metric.ainvoke(pending.sample, run.into(self.config)))
            else:
                scores = await aoutcome(metric, pending.sample, run, self._complete, unheard=self._unheard)
        await self._beside(partial(self.finished.keep, task.number, pending.sample, scores))
        return scores

    @cached_property
    def _complete(self) -> RunnableConfig:
        """The config with LangChain's defaults, and what the context around this call adds."""
        return ensure_config(self.config)

    @cached_property
    def _unheard(self) -> bool:
        """Whether nobody listens to the metrics: asked once, for LangChain takes its time to tell."""
        return not heard(self._complete)

    def _admission(self, task: Task) -> AbstractContextManager[Run | None]:
        """The run for a task, or None when the budget has no room for it: it is then left out."""
        return self._affordable(task) if self.allowance.budget else nullcontext(task.pending.run)

    @contextmanager
    def _affordable(self, task: Task) -> Iterator[Run | None]:
        metric, pending = self.metrics[task.number], task.pending
        reserved = self.allowance.admit(task.number, partial(self._guessed, task))
        if reserved is None:
            self.left_out.extend((pending.index, name) for name in names_of(metric))
            yield None
            return
        run = pending.run.metered()
        try:
            yield run
        finally:
            self.allowance.settle(task.number, reserved, Cost.of(run.meter.usage, run.meter.unreported))

    def _guessed(self, task: Task) -> Cost:
        """What a task costs in a rehearsal; where that fails or cannot be, a call for each judge of each step."""
        metric, sample = self.metrics[task.number], task.pending.sample
        scores = rehearse(self._parts[task.number], sample, rehearsal_run()).values()
        if scores and not any(score.failure and score.failure.step != "sample" for score in scores):
            return Cost.of(sum((score.usage for score in scores), Usage()))
        calls = len(judges_of(metric))
        texts = [sample.question, sample.answer or "", *(sample.contexts or []), *sample.references]
        embeddings = sum(isinstance(model, Embeddings) for model in models_of(metric))
        return Cost(calls, calls * (_TOKENS_OF_A_PROMPT + tokens_in(*texts)), embeddings * _TEXTS_COMPARED)

    @cached_property
    def _parts(self) -> list[Parts]:
        return [parts_to_rehearse(metric) for metric in self.metrics]

    def _rows(self, result: Result) -> Iterator[Row]:
        """The row of a sample that is done, if it has scores; raises what a worker raised."""
        if isinstance(result, BaseException):
            raise result
        if result is None:
            return
        row = result.row()
        if row.scores:
            self.grounds.see(row)
            yield row
        else:
            del self.begun[row.index]

    async def _beside(self, job: Callable[[], T]) -> T:
        """Do what may have to wait for the disk or for another process, without holding up the loop."""
        if self.finished.journal is None:
            return job()
        return await asyncio.wrap_future(self.run.threads.submit(job))


def _of_one_worker(tasks: Iterator[Sequence[Task]], lock: threading.Lock, stopped: threading.Event) -> Iterator[Task]:
    """The next tasks there are, again and again, those of kin one after the other."""
    while not stopped.is_set():
        with lock:
            kin = next(tasks, None)
        if kin is None:
            return
        for task in kin:
            if not stopped.is_set():
                yield task


async def _aof_one_worker(tasks: AsyncIterator[Sequence[Task]], lock: asyncio.Lock) -> AsyncIterator[Task]:
    """As `_of_one_worker`, on the caller's loop."""
    while True:
        async with lock:
            kin = await anext(tasks, None)
        if kin is None:
            return
        for task in kin:
            yield task


def _shown(item: Any) -> str:
    """What could not be read, as far as it can be shown."""
    try:
        return repr(item)[:_LONGEST_SHOWN]
    except Exception:  # nested too deep, or an object whose own repr fails
        return f"a {type(item).__name__} that cannot be shown"
