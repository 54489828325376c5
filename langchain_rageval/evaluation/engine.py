"""Evaluation: workers score the samples in one call of `evaluate`, `aevaluate` or `astream_evaluate`.

The result is a row (a sample with its scores) for each sample. A worker scores one metric of one sample at a time.
During a model call, the worker counts towards `max_concurrency`, the maximum number of calls at a time. Workers run in
threads or on an event loop and are otherwise the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from langchain_core.embeddings import Embeddings

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Row, Score, Usage
from langchain_rageval.errors import BudgetExceeded, ConfigError, JudgeUnavailable, SampleError
from langchain_rageval.evaluation.canaries import aask, ask
from langchain_rageval.evaluation.dry_run import Parts, dry_run, dry_run_context, plannable_parts, texts_of
from langchain_rageval.evaluation.inputs import AnyMetric, check_complete_sample, locate_message, locate_sample_error
from langchain_rageval.evaluation.job import Job
from langchain_rageval.evaluation.scheduler import PendingSample, Task
from langchain_rageval.metrics.structure import (
    ascore_sample,
    called_models,
    failure_scores,
    judges_of,
    score_sample,
    scores_by_name,
    with_instruments,
)
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import tokens_in

T = TypeVar("T")

_TOKENS_OF_A_PROMPT = 800  # instruction, examples and the reply
_TEXTS_COMPARED = 2

Result = PendingSample | BaseException | None
"""A sample whose last task is done, an error that ends the run, or None when a worker ends."""


class Evaluation(Job):
    """Runs the metrics of a `Job` on samples with several workers."""

    def rows(self, samples: Iterable[Any]) -> Generator[Row]:
        """Score samples in worker threads and yield each row when it is finished.

        Raises:
            ConfigError: if the samples are an async iterator.
        """
        if hasattr(samples, "__aiter__") and not hasattr(samples, "__iter__"):
            raise ConfigError("evaluate cannot wait for an async iterator; use `await aevaluate(...)`")
        stopped, results = threading.Event(), SimpleQueue[Result]()
        tasks_of_worker = self.scheduler.tasks(samples, stopped)

        def work() -> None:
            try:
                for task in tasks_of_worker():
                    if pending := self._do(task):
                        results.put(pending)
            except BaseException as error:
                results.put(error)
            results.put(None)

        left, workers = self.scheduler.n_workers(samples), []
        try:
            self._ask_canaries()
            for _ in range(left):
                workers.append(self.run.threads.submit(work))
            while left:
                result = results.get()
                left -= result is None
                yield from self._rows_of(result)
            self.mixed_measures.warn()
            wait(workers)  # so that the next run uses their threads
        except BaseException:
            self.run.stop()
            raise
        finally:
            stopped.set()
            if self.sequential is not None:
                self.sequential.end()
            self.score_store.close()

    async def arows(self, samples: Any) -> AsyncGenerator[Row]:
        """Score samples on the caller's loop and yield each row when it is finished."""
        tasks_of_worker, stopping = self.scheduler.atasks(samples), asyncio.Event()
        left, workers = self.scheduler.n_workers(samples), list[asyncio.Task[None]]()
        results: asyncio.Queue[Result] = asyncio.Queue(left)

        async def work() -> None:
            try:
                async for task in tasks_of_worker():
                    if pending := self._finished(task, await self._ascore(task)):
                        await results.put(pending)
            except BaseException as error:
                if stopping.is_set() and isinstance(error, asyncio.CancelledError):
                    raise
                await results.put(error)  # also a CancelledError or SystemExit raised by a judge or a custom metric
            await results.put(None)

        try:
            if judges := self._asked_canaries:
                self.canaries = await aask(judges, self._questions, self.run, self._complete_config)
                self.run.governor.begin_scores()
            workers += [asyncio.create_task(work()) for _ in range(left)]
            while left:
                result = await results.get()
                left -= result is None
                for row in self._rows_of(result):
                    yield row
            self.mixed_measures.warn()
        finally:
            stopping.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self.score_store.close()

    def _ask_canaries(self) -> None:
        if judges := self._asked_canaries:
            self.canaries = ask(judges, self._questions, self.run, self._complete_config)
            self.run.governor.begin_scores()

    def _rows_of(self, result: Result) -> Iterator[Row]:
        """Yield the row of a finished sample if it has scores; raise the error of a worker."""
        if isinstance(result, BaseException):
            raise result
        if result is None:
            return
        row = result.row()
        if row.scores:
            self.mixed_measures.add(row)
            yield row
        del self.scheduler.begun[row.index]  # after the yield: an interrupted caller still finds the row

    def _do(self, task: Task) -> PendingSample | None:
        """Do a task; return its sample if the task was its last one. Drop the scores if the run was stopped."""
        scores = self._score(task)
        return None if self.run.stopped.is_set() else self._finished(task, scores)

    def _finished(self, task: Task, scores: dict[str, Score]) -> PendingSample | None:
        """Add the scores of a task to its sample; return the sample if they were the last ones."""
        pending = task.pending
        if not pending.add(task.number, scores):
            return None
        if self.sequential is not None:
            self.sequential.add(pending.row(), is_audited=pending.sample.id in self.drawn)
        return pending

    def _score(self, task: Task) -> dict[str, Score]:
        scores = self._known(task) or self.score_store.load(task.number, task.pending.sample)
        if scores is not None:
            return scores
        with self._admit(task) as run:
            if run is None:
                return {}
            scores = self._invoke(self.metrics[task.number], task.pending, run)
        if scores := self._checked(task, scores):
            self.score_store.save(task.number, task.pending.sample, scores)
        return scores

    async def _ascore(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        scores = self._known(task) or await self._off_loop(partial(self.score_store.load, task.number, pending.sample))
        if scores is not None:
            return scores
        with self._admit(task) as run:
            if run is None:
                return {}
            if self.options["on_failure"] == "raise":
                with _sample_errors_located(pending):
                    scores = scores_by_name(await metric.ainvoke(pending.sample, run.into(self.config)))
            else:
                config, untraced = self._complete_config, self._untraced
                scores = await ascore_sample(metric, pending.sample, run, config, untraced=untraced)
        if scores := self._checked(task, scores):
            await self._off_loop(partial(self.score_store.save, task.number, pending.sample, scores))
        return scores

    def _known(self, task: Task) -> dict[str, Score] | None:
        """Return the failures of a sample that could not be parsed; None if the task is to be done."""
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failure_scores(metric, task.unreadable, Usage())
        if self.options["strict"]:
            check_complete_sample([metric], pending.index, pending.sample)
        return None

    def _invoke(self, metric: AnyMetric, pending: PendingSample, run: Run) -> dict[str, Score]:
        if self.options["on_failure"] == "raise":
            with _sample_errors_located(pending):
                return scores_by_name(metric.invoke(pending.sample, run.into(self.config)))
        return score_sample(metric, pending.sample, run, self._complete_config, untraced=self._untraced)

    def _checked(self, task: Task, scores: dict[str, Score]) -> dict[str, Score]:
        """Return the scores of a task with instruments and places of failures; none if their judge is given up.

        A score that failed in a step counts against its judge.
        """
        if self._asks_models[task.number]:
            task.pending.asked.add(task.number)
        scores = with_instruments(scores, self.metrics[task.number], self._instruments[task.number])
        scores = {name: _with_place(score, task.pending) for name, score in scores.items()}
        failures = [score.failure for score in scores.values() if score.failure]
        if not failures or len(failures) < len(scores) or failures[0].step in (None, "sample"):
            return scores
        if any(failure.error == JudgeUnavailable.__name__ for failure in failures):
            self._leave_out(self._not_asked, task)
            return {}
        paid = any(score.usage.calls for score in scores.values())
        if paid and self.gives_up and failures[0].error != BudgetExceeded.__name__:
            endpoints = [endpoint for endpoint, _ in self._endpoints[task.number]]
            if self.run.governor.record_failed_score(endpoints, failures[0]) and self._is_unavailable(*self._endpoints):
                self.scheduler.no_judge_left.set()
        return scores

    def _leave_out(self, left_out: list[tuple[int, str]], task: Task) -> None:
        """Add the scores of a task to a list of omitted ones; those of an audit have a list of their own."""
        left_out = left_out if task.number < self.own else self._audit_left_out
        left_out.extend((task.pending.index, name) for name in self._names[task.number])

    @contextmanager
    def _admit(self, task: Task) -> Iterator[Run | None]:
        """Give the run for a task, or None if the task is left out.

        It is left out if its judge is not called any more, or if it does not fit the budget.
        """
        run = task.pending.run
        if self._is_unavailable(self._endpoints[task.number]):
            self._leave_out(self._not_asked, task)
            yield None
        elif not self.run.governor.budget:
            yield run
        elif (reserved := self._reserve(task)) is None:
            self._leave_out(self.left_out, task)
            yield None
        else:
            run = run.metered()
            try:
                yield run
            finally:
                self._settle(task, reserved, Cost.of(run.meter.usage, run.meter.unreported))

    def _reserve(self, task: Task) -> Cost | None:
        """Return the reserved cost of a task; None if it does not fit the budget."""
        return self.run.governor.admit(self._names[task.number], partial(self._estimate_cost, task))

    def _settle(self, task: Task, reserved: Cost, cost: Cost) -> None:
        """Replace the reserved cost of a task that was done."""
        self.run.governor.settle(self._names[task.number], reserved, cost)

    def _estimate_cost(self, task: Task) -> Cost:
        """Return the cost of a task in a dry run; without a successful one, that of one call per judge and step."""
        metric, sample = self.metrics[task.number], task.pending.sample
        scores = dry_run(self._plannable_parts[task.number], sample, dry_run_context()).values()
        if scores and not any(score.failure and score.failure.step != "sample" for score in scores):
            return Cost.of(sum((score.usage for score in scores), Usage()))
        calls = len(judges_of(metric))
        embeddings = sum(isinstance(model, Embeddings) for model in called_models(metric))
        return Cost(calls, calls * (_TOKENS_OF_A_PROMPT + tokens_in(*texts_of(sample))), embeddings * _TEXTS_COMPARED)

    @cached_property
    def _plannable_parts(self) -> list[Parts]:
        return [plannable_parts(metric) for metric in self.metrics]

    async def _off_loop(self, job: Callable[[], T]) -> T:
        """Run a job on the journal in a thread, because it may wait for the disk; without a journal run it directly."""
        if self.score_store.journal is None:
            return job()
        return await asyncio.wrap_future(self.run.threads.submit(job))


@contextmanager
def _sample_errors_located(pending: PendingSample) -> Iterator[None]:
    """Add the place of the sample to a SampleError that a metric raises."""
    try:
        yield
    except SampleError as error:
        raise locate_sample_error(error, pending.index, pending.sample) from error


def _with_place(score: Score, pending: PendingSample) -> Score:
    """Return the score; a failure for a missing field names the place of the sample and the cause."""
    failure = score.failure
    if failure is None or failure.error != SampleError.__name__:
        return score
    message = locate_message(failure.message, pending.index, pending.sample)
    return score.model_copy(update={"failure": failure.model_copy(update={"message": message})})
