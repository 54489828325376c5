"""Evaluation: one call of `evaluate` or its kin, the workers that keep the pool of model calls full, and its rows.

Workers take one metric of one sample after the other, and hold a slot only during a model call. The two ways of running
them, in threads and on a loop, differ in nothing else.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.data.schema import Row, Score, Usage
from langchain_rageval.errors import BudgetExceeded, ConfigError
from langchain_rageval.evaluation.dry_run import Parts, dry_run, dry_run_context, plannable_parts
from langchain_rageval.evaluation.inputs import AnyMetric, flattened
from langchain_rageval.evaluation.mixed_measures import MixedMeasures
from langchain_rageval.evaluation.options import STREAM_DEFAULTS, OnFailure, StreamOptions
from langchain_rageval.evaluation.scheduler import Pending, Scheduler, Task
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.metrics.provenance import instruments_in, with_instruments
from langchain_rageval.metrics.sample_scores import ascore_sample, failure_scores, score_sample, scores_by_name
from langchain_rageval.metrics.structure import called_models, judges_of, names_of
from langchain_rageval.report.files import ReportFile
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import BudgetTracker, Cost
from langchain_rageval.run.options import build_run
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import has_callbacks
from langchain_rageval.run.usage_meter import tokens_in

T = TypeVar("T")

_TOKENS_OF_A_PROMPT = 800  # instruction, examples, and what the judge writes
_TEXTS_COMPARED = 2


Result = Pending | BaseException | None
"""What a worker hands over: a sample whose last task it has done, what ended it, or None when it has no more to do."""


@dataclass(frozen=True)
class Evaluation:
    """One call of `evaluate` or its kin."""

    metrics: Sequence[AnyMetric]
    run: Run
    on_failure: OnFailure
    config: RunnableConfig
    finished: ScoreStore
    budget_tracker: BudgetTracker
    grounds: MixedMeasures = field(default_factory=MixedMeasures)
    left_out: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, metrics: AnyMetric | Sequence[AnyMetric], options: StreamOptions) -> Evaluation:
        """Check metrics and options, and build the evaluation; missing options have their default values.

        Raises:
            ConfigError: if a metric or the value of an option is invalid.
        """
        complete: StreamOptions = {**STREAM_DEFAULTS, **options}
        on_failure, callbacks = complete["on_failure"], complete["callbacks"]
        run = build_run(complete)
        if on_failure not in ("record", "raise"):
            raise ConfigError(f"on_failure is 'record' or 'raise', got {on_failure!r}")
        if not isinstance(callbacks, list | BaseCallbackManager | None):
            raise ConfigError(f"callbacks takes a list of handlers, got {type(callbacks).__name__}")
        flat = flattened(metrics)
        config: RunnableConfig = {"callbacks": callbacks} if callbacks else {}
        store, tracker = ScoreStore(complete["journal"], flat), BudgetTracker(complete["budget"], run.meter)
        return cls(flat, run, on_failure, config, store, tracker)

    @cached_property
    def tasks(self) -> Scheduler:
        """What there is to do."""
        return Scheduler(self.metrics, self.run, self.on_failure == "raise", self.budget_tracker)

    def rows(self, samples: Iterable[Any]) -> Generator[Row]:
        """The rows as they are finished, scored in worker threads.

        Raises:
            ConfigError: if only a loop can iterate the samples.
        """
        if hasattr(samples, "__aiter__") and not hasattr(samples, "__iter__"):
            raise ConfigError("evaluate cannot wait for an async iterator; use `await aevaluate(...)`")
        stopped, results = threading.Event(), SimpleQueue[Result]()
        tasks_of_one_worker = self.tasks.each(samples, stopped)

        def work() -> None:
            try:
                for task in tasks_of_one_worker():
                    self._finish(task, results)
            except BaseException as error:
                results.put(error)
            results.put(None)

        left = self.tasks.workers(samples)
        for _ in range(left):
            self.run.threads.submit(work)
        try:
            while left:
                result = results.get()
                left -= result is None
                for row in self._rows(result):
                    yield row
                    del self.tasks.begun[row.index]  # whoever breaks off before this finds it there
            self.grounds.warn()
        finally:
            stopped.set()
            self.finished.close()

    async def arows(self, samples: Any) -> AsyncGenerator[Row]:
        """The rows as they are finished, scored on the caller's loop."""
        tasks_of_one_worker, stopping = self.tasks.aeach(samples), asyncio.Event()
        left = self.tasks.workers(samples)
        results: asyncio.Queue[Result] = asyncio.Queue(left)

        async def work() -> None:
            try:
                async for task in tasks_of_one_worker():
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
                    del self.tasks.begun[row.index]  # whoever breaks off before this finds it there
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
            for begun in list(self.tasks.begun.values()):
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
            instruments = self._provenance.as_json()
            head = {"notes": notes, "complete": complete, "left_out": left_out, "instruments": instruments}
            return Report(kept.finish(head), notes, complete, left_out, self._provenance)
        in_order = sorted({row.index: row for row in kept}.items())
        return Report([row for _, row in in_order], notes, complete, left_out, self._provenance)

    def refuse_left_out(self) -> None:
        """Raise BudgetExceeded if the budget had no room for a score, where no report can tell it."""
        for told in self._of_budget():
            raise BudgetExceeded(told)

    @cached_property
    def _judges(self) -> list[Any]:
        judges = [judge for metric in self.metrics for judge in judges_of(metric)]
        return list({id(judge): judge for judge in judges}.values())

    @cached_property
    def _instruments(self) -> list[dict[str, Instrument]]:
        return [instruments_in(metric) for metric in self.metrics]

    @property
    def _provenance(self) -> Provenance:
        provenance = Provenance()
        for instruments in self._instruments:
            for name, instrument in instruments.items():
                provenance = provenance.with_instrument(name, instrument)
        return provenance

    def _notes(self) -> Iterator[str]:
        models = {id(model): model for metric in self.metrics for model in called_models(metric)}
        yield from dict.fromkeys(note for model in models.values() if (note := getattr(model, "report_note", None)))
        asked = [
            (judge, judge._endpoint.capabilities.mode) for judge in self._judges if judge._endpoint.capabilities.mode
        ]
        ways = {judge.identity: way for judge, way in asked if way.rung != "prompt" or len(judge._endpoint.modes) > 1}
        yield from (f"{identity} was asked by {way.rung}." for identity, way in ways.items())
        yield from self.grounds.notes()
        yield from self.finished.notes()
        yield from self._of_budget()
        limiter = self.run.limiter
        if limiter.limit is not None and limiter.lowest_size is not None and limiter.lowest_size < limiter.limit:
            yield f"The endpoint turned calls away: it was given {limiter.lowest_size} to {limiter.limit} at a time."
        if self.run.meter.abandoned:
            yield f"{self.run.meter.abandoned} calls took longer than {self.run.timeout:g} s and were left behind."

    def _of_budget(self) -> Iterator[str]:
        """What the budget had no room for."""
        if self.left_out:
            spent = f"The budget of {self.budget_tracker.budget} is spent"
            told = f"{spent}: {len(self.left_out)} scores were left out, from sample {min(self.left_out)[0]} on"
            yield told + (", and what came after was not read." if self.tasks.unread.is_set() else ".")

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
            return failure_scores(metric, task.unreadable, Usage())
        known = self.finished.score(task.number, pending.sample)
        if known is not None:
            return known
        with self._admission(task) as run:
            if run is None:
                return {}
            if self.on_failure == "raise":
                scores = scores_by_name(metric.invoke(pending.sample, run.into(self.config)))
            else:
                scores = score_sample(metric, pending.sample, run, self._complete, untraced=self._unheard)
        scores = with_instruments(scores, metric, self._instruments[task.number])
        self.finished.keep(task.number, pending.sample, scores)
        return scores

    async def _adone(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failure_scores(metric, task.unreadable, Usage())
        known = await self._beside(partial(self.finished.score, task.number, pending.sample))
        if known is not None:
            return known
        with self._admission(task) as run:
            if run is None:
                return {}
            if self.on_failure == "raise":
                scores = scores_by_name(await metric.ainvoke(pending.sample, run.into(self.config)))
            else:
                scores = await ascore_sample(metric, pending.sample, run, self._complete, untraced=self._unheard)
        scores = with_instruments(scores, metric, self._instruments[task.number])
        await self._beside(partial(self.finished.keep, task.number, pending.sample, scores))
        return scores

    @cached_property
    def _complete(self) -> RunnableConfig:
        """The config with LangChain's defaults, and what the context around this call adds."""
        return ensure_config(self.config)

    @cached_property
    def _unheard(self) -> bool:
        """Whether nobody listens to the metrics: asked once, for LangChain takes its time to tell."""
        return not has_callbacks(self._complete)

    def _admission(self, task: Task) -> AbstractContextManager[Run | None]:
        """The run for a task, or None when the budget has no room for it: it is then left out."""
        return self._affordable(task) if self.budget_tracker.budget else nullcontext(task.pending.run)

    @contextmanager
    def _affordable(self, task: Task) -> Iterator[Run | None]:
        metric, pending = self.metrics[task.number], task.pending
        reserved = self.budget_tracker.admit(task.number, partial(self._guessed, task))
        if reserved is None:
            self.left_out.extend((pending.index, name) for name in names_of(metric))
            yield None
            return
        run = pending.run.metered()
        try:
            yield run
        finally:
            self.budget_tracker.settle(task.number, reserved, Cost.of(run.meter.usage, run.meter.unreported))

    def _guessed(self, task: Task) -> Cost:
        """What a task costs in a rehearsal; where that fails or cannot be, a call for each judge of each step."""
        metric, sample = self.metrics[task.number], task.pending.sample
        scores = dry_run(self._parts[task.number], sample, dry_run_context()).values()
        if scores and not any(score.failure and score.failure.step != "sample" for score in scores):
            return Cost.of(sum((score.usage for score in scores), Usage()))
        calls = len(judges_of(metric))
        texts = [sample.question, sample.answer or "", *(sample.contexts or []), *sample.references]
        embeddings = sum(isinstance(model, Embeddings) for model in called_models(metric))
        return Cost(calls, calls * (_TOKENS_OF_A_PROMPT + tokens_in(*texts)), embeddings * _TEXTS_COMPARED)

    @cached_property
    def _parts(self) -> list[Parts]:
        return [plannable_parts(metric) for metric in self.metrics]

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
            del self.tasks.begun[row.index]

    async def _beside(self, job: Callable[[], T]) -> T:
        """Do what may have to wait for the disk or for another process, without holding up the loop."""
        if self.finished.journal is None:
            return job()
        return await asyncio.wrap_future(self.run.threads.submit(job))
