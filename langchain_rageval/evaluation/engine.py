"""Evaluation: the workers of one call of `evaluate`, `aevaluate` or `astream_evaluate`, and the rows that they make.

A worker scores one metric of one sample at a time and holds a slot of the limiter only during a model call. Workers run
in threads or on an event loop and are otherwise the same.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Instrument, Provenance
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample, Score, Usage
from langchain_rageval.errors import BudgetExceeded, ConfigError, JudgeUnavailable, SampleError
from langchain_rageval.evaluation.audit import Audit, AuditDraw
from langchain_rageval.evaluation.canaries import aask, ask, judges_to_ask, notes_on
from langchain_rageval.evaluation.dry_run import Parts, dry_run, dry_run_context, plannable_parts
from langchain_rageval.evaluation.inputs import (
    AnyMetric,
    MixedMeasures,
    check_complete_sample,
    flatten_metrics,
    id_notes,
    in_random_order,
    locate_message,
    locate_sample_error,
    size_of,
)
from langchain_rageval.evaluation.options import STREAM_DEFAULTS, EvaluateOptions, OnFailure, StreamOptions
from langchain_rageval.evaluation.scheduler import PendingSample, Scheduler, Task
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.evaluation.until import Decided, SequentialRun, Until
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.panels import cascade_notes
from langchain_rageval.metrics.structure import (
    ascore_sample,
    called_models,
    failure_scores,
    instruments_in,
    judges_of,
    metrics_in,
    names_of,
    score_sample,
    scores_by_name,
    stages_of,
    update_instruments,
    with_instruments,
)
from langchain_rageval.report.files import Canaries, ReportFile, head_of
from langchain_rageval.report.free_checks import FreeChecks
from langchain_rageval.report.report import Report
from langchain_rageval.report.units import Units
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.run import Run, build_run, has_callbacks
from langchain_rageval.run.usage import model_label, tokens_in

T = TypeVar("T")

_ORDER_SEED = 0
_TOKENS_OF_A_PROMPT = 800  # instruction, examples and the reply
_TEXTS_COMPARED = 2


Result = PendingSample | BaseException | None
"""A sample whose last task is done, an error that ends the run, or None when a worker ends."""

STOPPED = ("run-stopped", "judge-stopped")
"""Codes of the note on a judge that is not called any more: for all metrics, or for some."""


@dataclass(frozen=True)
class Evaluation:
    """Execution of one call of `evaluate`, `aevaluate` or `astream_evaluate`.

    Attributes:
        metrics: the metrics, without suites.
        run: governor, retries, usage and threads shared by all metrics.
        on_failure: "record" or "raise".
        strict: True to raise for a sample that lacks a field.
        config: LangChain config with the callbacks.
        score_store: scores in the journal.
        mixed_measures: metrics whose scores have different meanings.
        free_checks: broken and repeated answers, and verdicts without citations.
        units: independent units of the samples.
        left_out: index of the sample and name of the metric of each score that did not fit the budget.
        gives_up: True to end the calls to judges that never answer.
        not_asked: index and name of each score that was left out because its judge is not called any more.
        sequential: the samples in random order, until a stopping rule is satisfied; None without a rule.
        own: number of metrics of the user, which those of an audit follow; None if there is no audit.
        draw: samples of the audit; None if there is no audit.
        unaudited: names of metrics whose judge cannot be replaced.
        audit_left_out: index and name of each score of the audit that did not fit the budget.
        canaries: answers of the judges to statements with known verdicts; None if they were not asked.
        order: note on the order of the samples of a run with a budget; None without one.
    """

    metrics: Sequence[AnyMetric]
    run: Run
    on_failure: OnFailure
    strict: bool
    config: RunnableConfig
    score_store: ScoreStore
    mixed_measures: MixedMeasures = field(default_factory=MixedMeasures)
    free_checks: FreeChecks = field(default_factory=FreeChecks)
    units: Units = field(default_factory=Units)
    left_out: list[tuple[int, str]] = field(default_factory=list)
    gives_up: bool = True
    not_asked: list[tuple[int, str]] = field(default_factory=list)
    sequential: SequentialRun | None = None
    own: int | None = None
    draw: AuditDraw | None = None
    unaudited: Sequence[str] = ()
    audit_left_out: list[tuple[int, str]] = field(default_factory=list)
    canaries: Canaries | None = None
    order: Note | None = None

    @classmethod
    def of(cls, metrics: AnyMetric | Sequence[AnyMetric], options: StreamOptions) -> Evaluation:
        """Check metrics and options, and build the evaluation; missing options have their default values.

        Raises:
            ConfigError: if a metric or the value of an option is invalid.
        """
        complete: StreamOptions = {**STREAM_DEFAULTS, **options}
        on_failure, callbacks, strict = complete["on_failure"], complete["callbacks"], complete["strict"]
        run = build_run(complete, complete["budget"])
        if on_failure not in ("record", "raise"):
            raise ConfigError(f"on_failure must be 'record' or 'raise', got {on_failure!r}")
        if not isinstance(strict, bool):
            raise ConfigError(f"strict must be True or False, got {strict!r}")
        if not isinstance(callbacks, list | BaseCallbackManager | None):
            raise ConfigError(f"callbacks must be a list of handlers, got {type(callbacks).__name__}")
        flat = flatten_metrics(metrics)
        update_instruments(flat)
        config: RunnableConfig = {"callbacks": callbacks} if callbacks else {}
        return cls(flat, run, on_failure, strict, config, ScoreStore(complete["journal"], flat))

    @cached_property
    def scheduler(self) -> Scheduler:
        """Scheduler of the tasks (one metric on one sample each) of this evaluation."""
        raises = self.on_failure == "raise" or self.strict
        return Scheduler(self.metrics, self.run, raises, self.own, self.draw)

    def audited(self, audit: Audit | None, samples: Any, *, exact: bool) -> Evaluation:
        """Return the evaluation in which a strong judge also scores some of the samples.

        Args:
            audit: the strong judge and the share of the samples; None for no audit.
            samples: all samples, in a list.
            exact: see `Audit.draw`.

        Raises:
            ConfigError: if the audit is invalid, or no metric has a judge to audit.
        """
        if audit is None:
            return self
        if not isinstance(audit, Audit):
            raise ConfigError(f"audit must be Audit(judge, share=0.1), got {type(audit).__name__}")
        strong, unaudited = audit.metrics(self.metrics)
        metrics = [*self.metrics, *strong]
        store, draw = self.score_store.with_metrics(metrics), audit.draw(samples, exact=exact)
        own = len(self.metrics)
        return replace(self, metrics=metrics, score_store=store, own=own, draw=draw, unaudited=unaudited)

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
                    self._do(task, results)
            except BaseException as error:
                results.put(error)
            results.put(None)

        left, workers = self.scheduler.n_workers(samples), []
        try:
            for _ in range(left):
                workers.append(self.run.threads.submit(work))
            while left:
                result = results.get()
                left -= result is None
                for row in self._rows_of(result):
                    yield row
                    del self.scheduler.begun[row.index]  # after the yield: an interrupted caller still finds the row
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
        left = self.scheduler.n_workers(samples)
        results: asyncio.Queue[Result] = asyncio.Queue(left)

        async def work() -> None:
            try:
                async for task in tasks_of_worker():
                    await self._ado(task, results)
            except BaseException as error:
                if stopping.is_set() and isinstance(error, asyncio.CancelledError):
                    raise
                await results.put(error)  # also a CancelledError or SystemExit raised by a judge or a custom metric
            await results.put(None)

        workers = [asyncio.create_task(work()) for _ in range(left)]
        try:
            while left:
                result = await results.get()
                left -= result is None
                for row in self._rows_of(result):
                    yield row
                    del self.scheduler.begun[row.index]  # after the yield: an interrupted caller still finds the row
            self.mixed_measures.warn()
        finally:
            stopping.set()
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            self.score_store.close()

    def open_output(self, out: str | Path | None, samples: Any) -> AbstractContextManager[list[Row] | ReportFile]:
        """Return a context manager that gives a list for the finished rows, or the file for them if there is `out`.

        Raises:
            ConfigError: if the file cannot be written, or is the file of the samples or the journal.
        """
        if out is None:
            return nullcontext([])
        if not isinstance(out, str | Path):
            raise ConfigError(f"out must be the path of a file, got {type(out).__name__}")
        journal = self.score_store.journal and self.score_store.journal.path
        for used, what in ((samples, "the file of samples"), (journal, "the journal")):
            if isinstance(used, str | Path) and Path(used).resolve() == Path(out).resolve():
                raise ConfigError(f"out={str(out)!r} is {what}; choose another path")
        return ReportFile(out)

    def until(self, rule: Until | None, samples: Any) -> Evaluation:
        """Return the evaluation with a stopping rule; its `sequential` are the samples in random order.

        Raises:
            ConfigError: if the rule is invalid, or does not fit the metrics.
        """
        if rule is None:
            return self
        if not isinstance(rule, Until):
            raise ConfigError(f"until must be Decided(...) or Precise(...), got {type(rule).__name__}")
        metrics = self.metrics[: self.own]
        audited = {name for metric in self.metrics[len(metrics) :] for name in names_of(metric)}
        share = self.draw.share if self.draw is not None else None
        return replace(self, sequential=SequentialRun(rule, samples, metrics, self._lead(samples), audited, share))

    def with_canaries(self, options: EvaluateOptions, samples: Any) -> Evaluation:
        """Return the evaluation after its judges were asked the canaries, if the options want it."""
        judges = self._judges_to_ask(options)
        asked = ask(judges, _questions(samples), self.run, self._complete_config) if judges else None
        self.run.governor.begin_scores()
        return replace(self, canaries=asked)

    async def awith_canaries(self, options: EvaluateOptions, samples: Any) -> Evaluation:
        """As `with_canaries`, through the models' async methods."""
        judges = self._judges_to_ask(options)
        asked = await aask(judges, _questions(samples), self.run, self._complete_config) if judges else None
        self.run.governor.begin_scores()
        return replace(self, canaries=asked)

    def _judges_to_ask(self, options: EvaluateOptions) -> list[Judge]:
        wanted = options["canaries"]
        if wanted not in (None, True, False):
            raise ConfigError(f"canaries must be True, False or None, got {wanted!r}")
        if not (isinstance(options["until"], Decided) if wanted is None else wanted):
            return []
        judges = [judge for metric in self.metrics[: self.own] for judge in judges_of(metric)]
        return judges_to_ask({id(judge): judge for judge in judges}.values())

    def in_order(self, samples: Any, *, is_file: bool) -> tuple[Evaluation, Any]:
        """Return the evaluation, and its samples in the order in which they are asked about.

        With a budget that order is random, so that the samples that it covers stand for all. That takes a list, a file
        or a sized data set; the number of samples of another source is unknown.

        Args:
            samples: the prepared samples.
            is_file: True if they are read from a file.
        """
        if self.sequential is not None:
            return self, self.sequential
        if self.run.governor.budget is None:
            return self, samples
        if size_of(samples) is None and not is_file:
            return replace(self, order=Note("file-order")), samples
        order = Note("random-order", seed=_ORDER_SEED)
        return replace(self, order=order), in_random_order(samples, _ORDER_SEED)

    def _lead(self, samples: Any) -> int:
        """Return how many samples may be drawn before the first of them is counted: one for each worker.

        More would cost scores that a stopping rule does not need, fewer would leave slots empty while one is slow.
        """
        return self.scheduler.n_workers(samples)

    def keep(self, row: Row, output: list[Row] | ReportFile) -> None:
        """Add a row to the rows of the report, and to what its notes say about the answers and the units."""
        self.free_checks.add(row)
        self.units.add(row.sample)
        output.append(row)

    def build_report(self, output: list[Row] | ReportFile, *, complete: bool = True) -> Report:
        """Return the report of the finished rows.

        Args:
            output: the finished rows.
            complete: False if the run was interrupted; samples with some of their scores are then added.
        """
        if not complete:
            for begun in list(self.scheduler.begun.values()):
                if any(begun.scores.values()):
                    self.keep(begun.row(), output)
        stopped = list(self._outage_notes())
        indexes = output.indexes if isinstance(output, ReportFile) else {row.index for row in output}
        interrupted = [] if complete else [Note("interrupted", count=len(indexes))]
        changed = self.score_store.note_changes()
        notes = [
            *interrupted,
            *(self._interruption_notes() if interrupted else []),
            *stopped,
            *(self.sequential.notes if self.sequential is not None else []),
            *self._notes(),
            *changed,
        ]
        if not isinstance(output, ReportFile):
            notes.extend(id_notes((row.sample for row in output), self.metrics))
        complete = complete and not stopped
        left_out = sorted(
            [*self.left_out, *self.not_asked, *(self.sequential.left_out if self.sequential is not None else [])]
        )
        decisions = self.sequential.decisions if self.sequential is not None else {}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        more: dict[str, Any] = {"finished": now, "version": __version__, "canaries": self.canaries}
        if isinstance(output, ReportFile) and interrupted and not indexes:
            output.discard()
            output = []
        if isinstance(output, ReportFile):
            run = Report([], notes, complete, left_out, self._provenance, decisions, **more)
            return replace(run, rows=output.finish(head_of(run)))
        rows = [row for _, row in sorted({row.index: row for row in output}.items())]
        return Report(rows, notes, complete, left_out, self._provenance, decisions, **more)

    def raise_if_left_out(self) -> None:
        """Raise BudgetExceeded if a score did not fit the budget, JudgeUnavailable if a judge never answered."""
        for note in self._outage_notes():
            raise JudgeUnavailable(note)
        for note in self._budget_notes():
            raise BudgetExceeded(note)

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
        stages = [stage for metric in self.metrics for part in metrics_in(metric) for stage in stages_of(part)]
        yield from dict.fromkeys(note for stage in stages for note in stage.report_notes)
        yield from dict.fromkeys(note for judge in self._judges if (note := judge._endpoint.note))
        yield from dict.fromkeys(note for judge in self._judges if (note := judge._endpoint.probabilities_note))
        yield from cascade_notes(self.run.meter.events)
        yield from self.mixed_measures.notes()
        yield from self.free_checks.notes()
        yield from notes_on(self.canaries)
        for embeddings, texts in self.run.embedding_queues.alike():
            yield Note("one-vector", model=model_label(embeddings), texts=texts)
        yield from self.units.notes()
        yield from self.score_store.notes()
        if self.score_store.journal is None:
            unknown = {name: one.unknown for part in self._instruments for name, one in part.items() if one.unknown}
            yield from (Note("unknown-instrument", metric=name, reason=reason) for name, reason in unknown.items())
        yield from self._budget_notes()
        if self.unaudited:
            yield Note("not-audited", metrics=self.unaudited)
        if self.audit_left_out:
            yield Note("audit-left-out", count=len(self.audit_left_out))
        lowest, limit = self.run.governor.limiter.lowest_size, self.run.governor.limiter.limit
        if limit is not None and lowest is not None and lowest < limit:
            yield Note("rejected-calls", low=lowest, high=limit)
        for problem in self.run.meter.unpriced:
            yield Note("money-unknown", reason=problem)
        if self.run.meter.abandoned:
            yield Note("abandoned-calls", count=self.run.meter.abandoned, seconds=self.run.timeout)

    def _outage_notes(self) -> Iterator[str]:
        """Yield a note for each judge that is not called any more, with the cause."""
        code = STOPPED[not self._is_unavailable(*self._endpoints)]
        names = {id(endpoint): (endpoint, name) for metric in self._endpoints for endpoint, name in metric}
        for endpoint, name in names.values():
            if outage := self.run.governor.outage(endpoint):
                failure = f"{outage.cause.error}: {outage.cause.message}"
                yield Note(code, judge=name, count=outage.failures, failure=failure)

    def _interruption_notes(self) -> Iterator[str]:
        """Yield sentences about what an interrupted run leaves behind."""
        yield from ()

    def _budget_notes(self) -> Iterator[str]:
        """Yield notes on the scores that did not fit the budget and the order of the samples, if there are any."""
        if self.left_out:
            code = "budget-spent-unread" if self.scheduler.stopped_reading.is_set() else "budget-spent"
            first, _ = min(self.left_out)
            yield Note(code, budget=self.run.governor.budget, count=len(self.left_out), first=first)
            if self.order is not None:
                yield self.order

    def _do(self, task: Task, results: SimpleQueue[Result]) -> None:
        """Do a task, and pass on its sample if the task was its last one; drop the scores if the run was stopped."""
        scores = self._score(task)
        if not self.run.stopped.is_set() and task.pending.add(task.number, scores):
            self._count(task.pending)
            results.put(task.pending)

    async def _ado(self, task: Task, results: asyncio.Queue[Result]) -> None:
        if task.pending.add(task.number, await self._ascore(task)):
            self._count(task.pending)
            await results.put(task.pending)

    def _count(self, pending: PendingSample) -> None:
        """Let a stopping rule take a finished sample into account."""
        if self.sequential is not None:
            is_audited = self.draw is not None and pending.sample in self.draw
            self.sequential.add(pending.row(), is_audited=is_audited)

    def _score(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failure_scores(metric, task.unreadable, Usage())
        if self.strict:
            check_complete_sample([metric], pending.index, pending.sample)
        stored = self.score_store.load(task.number, pending.sample)
        if stored is not None:
            return stored
        if self._is_unavailable(self._endpoints[task.number]):
            return self._leave_out(task)
        with self._admit(task) as run:
            if run is None:
                return {}
            scores = self._invoke(metric, pending, run)
        scores = with_instruments(scores, metric, self._instruments[task.number])
        scores = _with_places(scores, pending)
        scores = self._count_failure(task, scores)
        if scores:
            self.score_store.save(task.number, pending.sample, scores)
        return scores

    def _invoke(self, metric: AnyMetric, pending: PendingSample, run: Run) -> dict[str, Score]:
        if self.on_failure == "raise":
            with _sample_errors_located(pending):
                return scores_by_name(metric.invoke(pending.sample, run.into(self.config)))
        return score_sample(metric, pending.sample, run, self._complete_config, untraced=self._untraced)

    async def _ascore(self, task: Task) -> dict[str, Score]:
        metric, pending = self.metrics[task.number], task.pending
        if task.unreadable:
            return failure_scores(metric, task.unreadable, Usage())
        if self.strict:
            check_complete_sample([metric], pending.index, pending.sample)
        stored = await self._off_loop(partial(self.score_store.load, task.number, pending.sample))
        if stored is not None:
            return stored
        if self._is_unavailable(self._endpoints[task.number]):
            return self._leave_out(task)
        with self._admit(task) as run:
            if run is None:
                return {}
            if self.on_failure == "raise":
                with _sample_errors_located(pending):
                    scores = scores_by_name(await metric.ainvoke(pending.sample, run.into(self.config)))
            else:
                scores = await ascore_sample(
                    metric, pending.sample, run, self._complete_config, untraced=self._untraced
                )
        scores = with_instruments(scores, metric, self._instruments[task.number])
        scores = _with_places(scores, pending)
        scores = self._count_failure(task, scores)
        if scores:
            await self._off_loop(partial(self.score_store.save, task.number, pending.sample, scores))
        return scores

    @cached_property
    def _complete_config(self) -> RunnableConfig:
        """The config with LangChain's defaults and the values from the surrounding context."""
        return ensure_config(self.config)

    @cached_property
    def _untraced(self) -> bool:
        """True if no callback handler is attached. Cached: building a callback manager is slow."""
        return not has_callbacks(self._complete_config)

    @cached_property
    def _endpoints(self) -> list[list[tuple[object, str]]]:
        """Endpoint (its capabilities) and identity of each judge of each metric."""
        asked = [[member for judge in judges_of(metric) for member in judge.asked] for metric in self.metrics]
        return [[(member._endpoint.capabilities, member.identity) for member in members] for members in asked]

    def _is_unavailable(self, *metrics: list[tuple[object, str]]) -> bool:
        """Return True if each of these metrics, given by its endpoints, has one that is not called any more."""
        return all(any(self.run.governor.outage(endpoint) for endpoint, _ in metric) for metric in metrics)

    def _count_failure(self, task: Task, scores: dict[str, Score]) -> dict[str, Score]:
        """Count a score that failed in a step; return the scores, none if their judge is not called any more."""
        failures = [score.failure for score in scores.values() if score.failure]
        if not failures or len(failures) < len(scores) or failures[0].step in (None, "sample"):
            return scores
        if any(failure.error == JudgeUnavailable.__name__ for failure in failures):
            return self._leave_out(task)
        paid = any(score.usage.calls for score in scores.values())
        if not paid or not self.gives_up or failures[0].error == BudgetExceeded.__name__:
            return scores
        endpoints = [endpoint for endpoint, _ in self._endpoints[task.number]]
        if self.run.governor.record_failed_score(endpoints, failures[0]) and self._is_unavailable(*self._endpoints):
            self.scheduler.no_judge_left.set()
        return scores

    def _leave_out(self, task: Task) -> dict[str, Score]:
        """Leave out the scores of a task whose judge is not called any more."""
        self._list_left_out(self.not_asked, task)
        return {}

    def _list_left_out(self, left_out: list[tuple[int, str]], task: Task) -> None:
        """Add the scores of a task to a list of omitted ones; those of an audit have a list of their own."""
        is_own = self.own is None or task.number < self.own
        names = self._names[task.number]
        (left_out if is_own else self.audit_left_out).extend((task.pending.index, name) for name in names)

    @cached_property
    def _names(self) -> list[tuple[str, ...]]:
        """Names of the scores of each metric."""
        return [tuple(names_of(metric)) for metric in self.metrics]

    def _admit(self, task: Task) -> AbstractContextManager[Run | None]:
        """Return a context manager that gives the run for a task, or None if the task does not fit the budget."""
        return self._within_budget(task) if self.run.governor.budget else nullcontext(task.pending.run)

    @contextmanager
    def _within_budget(self, task: Task) -> Iterator[Run | None]:
        pending = task.pending
        reserved = self._reserve(task)
        if reserved is None:
            self._list_left_out(self.left_out, task)
            yield None
            return
        run = pending.run.metered()
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
        texts = [sample.question, sample.answer or "", *(sample.contexts or []), *sample.references]
        embeddings = sum(isinstance(model, Embeddings) for model in called_models(metric))
        return Cost(calls, calls * (_TOKENS_OF_A_PROMPT + tokens_in(*texts)), embeddings * _TEXTS_COMPARED)

    @cached_property
    def _plannable_parts(self) -> list[Parts]:
        return [plannable_parts(metric) for metric in self.metrics]

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
        else:
            del self.scheduler.begun[row.index]

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


def _with_places(scores: Mapping[str, Score], pending: PendingSample) -> dict[str, Score]:
    """Return the scores; a failure for a missing field names the place of the sample and the cause."""
    return {name: _with_place(score, pending) for name, score in scores.items()}


def _with_place(score: Score, pending: PendingSample) -> Score:
    failure = score.failure
    if failure is None or failure.error != SampleError.__name__:
        return score
    message = locate_message(failure.message, pending.index, pending.sample)
    return score.model_copy(update={"failure": failure.model_copy(update={"message": message})})


def _questions(samples: Any) -> list[str]:
    """Return the question of the first sample of a list, which names the language; [] for other sources."""
    first = samples[0] if isinstance(samples, Sequence) and len(samples) else None
    return [first.question] if isinstance(first, Sample) else []
