"""Job: metrics, samples and options of one evaluation, the counts of the run, and the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from langchain_core.callbacks import BaseCallbackManager
from langchain_core.runnables import RunnableConfig
from langchain_core.runnables.config import ensure_config

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Provenance
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.errors import BudgetExceeded, ConfigError, JudgeUnavailable
from langchain_rageval.evaluation.audit import Audit
from langchain_rageval.evaluation.canaries import judges_to_ask, notes_on
from langchain_rageval.evaluation.dry_run import warn_of_long_requests
from langchain_rageval.evaluation.inputs import (
    AnyMetric,
    MixedMeasures,
    disjoint_ids,
    flatten_metrics,
    prepare_samples,
    size_of,
)
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, Batch, EvaluateOptions, StreamOptions
from langchain_rageval.evaluation.scheduler import Scheduler, in_random_order
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.evaluation.until import Decided, SequentialRun, Until
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.panels import cascade_notes
from langchain_rageval.metrics.structure import (
    called_models,
    instruments_in,
    judges_of,
    metrics_in,
    names_of,
    stages_of,
    update_instruments,
)
from langchain_rageval.report.files import Canaries, ReportFile, head_of
from langchain_rageval.report.free_checks import FreeChecks
from langchain_rageval.report.report import Report
from langchain_rageval.report.units import Units
from langchain_rageval.run.run import Run, build_run, has_callbacks
from langchain_rageval.run.usage import model_label

_ORDER_SEED = 0

STOPPED = ("run-stopped", "judge-stopped")
"""Codes of the note on a judge that is not called any more: for all metrics, or for some."""

_Endpoints = Sequence[tuple[object, str]]
"""Endpoint (its capabilities) and identity of each judge of a metric."""


class Job:
    """Metrics, samples and options of one evaluation, with its counts and report. `Evaluation` executes the job.

    Args:
        metrics: metrics and suites.
        options: options of `evaluate`; missing options have their default values.
        samples: samples in any form; () if they come later.

    Attributes:
        metrics: the metrics, with suites replaced by their metrics. The metrics of an audit follow those of the user.
        own: number of the user's metrics, without those of an audit.
        source: the parsed samples, in the order of the input.
        samples: the same samples in the order in which they are scored.
        sequential: iterator over the samples in random order that ends when the stopping rule is satisfied; None
            without a stopping rule.
        drawn: ids of the samples that the strong judge of an audit scores; empty without an audit.
        run: state that all metrics share: the governor (limits concurrency and cost), the retries, the usage and the
            threads.
        order: note about the order of the samples in a run with a budget; None if the samples are in the input order.
        config: LangChain config with the callback handlers of the options.
        score_store: finished scores in the journal; stores nothing if there is no journal.
        scheduler: gives the workers their tasks, one for each sample and metric.
        mixed_measures: counts what each metric compared chunks with: reference, answer or question.
        left_out: the scores that did not fit the budget, each as the index of the sample and the name of the metric.
        gives_up: True to end the calls to a judge after 20 failed scores in a row without a valid reply.
        canaries: results of the plain statements that the judges were asked first; None if they were not asked.

    Raises:
        ConfigError: if a metric or the value of an option is invalid.
        SampleError: as for `evaluate`.

    Warns:
        UserWarning: as for `evaluate`.
    """

    def __init__(
        self, metrics: AnyMetric | Sequence[AnyMetric], options: StreamOptions | EvaluateOptions, samples: Any = ()
    ) -> None:
        self.options: EvaluateOptions = {**EVALUATE_DEFAULTS, **options}
        self.run = build_run(self.options, self.options["budget"])
        _check(self.options)
        callbacks = self.options["callbacks"]
        self.config: RunnableConfig = {"callbacks": callbacks} if callbacks else {}
        self.gives_up = True
        self.canaries: Canaries | None = None
        self.metrics = flatten_metrics(metrics)
        update_instruments(self.metrics)
        self.own = len(self.metrics)
        self.source = self._prepared(samples)
        self.drawn = self._with_audit(self.options["audit"])
        self.score_store = ScoreStore(self.options["journal"], self.metrics)
        warn_of_long_requests(self.source, self.metrics)
        self._set_metrics(self.metrics)
        self.begin()
        self.sequential: SequentialRun | None = None
        if (rule := self.options["until"]) is not None:
            own, audited = self.metrics[: self.own], {name for names in self._names[self.own :] for name in names}
            self.sequential = SequentialRun(rule, self.source, own, self._lead(), audited, self._share)
        self.order, self.samples = self._ordered(is_file=isinstance(samples, str | Path))

    def _prepared(self, samples: Any) -> Any:
        """Return the samples; in a list, so that all are known before the first call, if some are drawn at random."""
        strict, needs_list = self.options["strict"], self.options["until"] or self.options["audit"]
        source = prepare_samples(samples, self.metrics, strict=strict, fields=self.options["fields"])
        if needs_list is None or isinstance(source, Sequence):
            return source
        return prepare_samples(list(source), self.metrics, strict=strict)

    def _with_audit(self, audit: Audit | None) -> frozenset[str]:
        """Add the metrics of an audit; return the ids of the samples that the strong judge scores."""
        self._unaudited: Sequence[str] = ()
        self._share = None if audit is None else audit.share_of(len(self.source))
        if audit is None:
            return frozenset()
        strong, self._unaudited = audit.metrics(self.metrics)
        self.metrics = [*self.metrics, *strong]
        return audit.draw(self.source, exact=self.options["until"] is None)

    def _lead(self) -> int:
        """Return how many samples may be drawn before the first of them is counted: one for each worker.

        More would cost scores that a stopping rule does not need, fewer would leave slots empty while one is slow.
        """
        return self.scheduler.n_workers(self.source)

    def _ordered(self, *, is_file: bool) -> tuple[Note | None, Any]:
        """Return the samples in the order in which they are asked about, and a note on it.

        With a budget that order is random, so that the samples that it covers stand for all. That takes a list, a file
        or a sized data set; the number of samples of another source is unknown.
        """
        if self.sequential is not None or self.run.governor.budget is None:
            return None, self.source if self.sequential is None else self.sequential
        if size_of(self.source) is None and not is_file:
            return Note("file-order"), self.source
        return Note("random-order", seed=_ORDER_SEED), in_random_order(self.source, _ORDER_SEED)

    def _set_metrics(self, metrics: list[AnyMetric]) -> None:
        """Read the metrics: names and instruments of scores, judges and endpoints, and whether models are asked."""
        self.metrics = metrics
        self._names = [tuple(names_of(metric)) for metric in metrics]
        self._instruments = [instruments_in(metric) for metric in metrics]
        self._asks_models = [bool(called_models(metric)) for metric in metrics]
        self._judges = list({id(judge): judge for metric in metrics for judge in judges_of(metric)}.values())
        self._endpoints: list[_Endpoints] = [
            [(one._endpoint.capabilities, one.identity) for judge in judges_of(metric) for one in judge.asked]
            for metric in metrics
        ]

    def begin(self, run: Run | None = None) -> None:
        """Discard what the job has counted, left out and scheduled, so that samples can be scored from the beginning.

        If `run` (the state that the metrics share, such as limits and usage) is given, it replaces that of the job.
        """
        self.run = run or self.run
        self.mixed_measures, self._free_checks, self._units = MixedMeasures(), FreeChecks(), Units()
        self.left_out: list[tuple[int, str]] = []
        self._not_asked: list[tuple[int, str]] = []
        self._audit_left_out: list[tuple[int, str]] = []
        raises = self.options["on_failure"] == "raise" or self.options["strict"]
        self.scheduler = Scheduler(self.metrics, self.run, raises, self.own, self.drawn)

    def part(self, run: Run, metrics: list[AnyMetric] | None = None) -> Self:
        """Return a job with the same settings that has scored no samples and counts its own rows.

        Args:
            run: the run of the new job.
            metrics: the metrics of the new job. Their scores are not stored in the journal, and their judges are always
                called. None for the metrics of this job, whose scores are stored and reused as before.
        """
        part = copy(self)
        if metrics is not None:
            part.own, part.score_store, part.gives_up = len(metrics), ScoreStore(None, metrics), False
            part._set_metrics(metrics)
        part.begin(run)
        return part

    @cached_property
    def _complete_config(self) -> RunnableConfig:
        """The config with LangChain's defaults and the values from the surrounding context."""
        return ensure_config(self.config)

    @cached_property
    def _untraced(self) -> bool:
        """True if no callback handler is attached. Cached: building a callback manager is slow."""
        return not has_callbacks(self._complete_config)

    @property
    def _asked_canaries(self) -> list[Judge]:
        """Judges that are asked canaries first."""
        wanted, until = self.options["canaries"], self.options["until"]
        if not (isinstance(until, Decided) if wanted is None else wanted):
            return []
        return judges_to_ask(self.metrics[: self.own])

    @property
    def _questions(self) -> list[str]:
        """Question of the first sample of a list, which names the language; none of other sources."""
        first = self.source[0] if isinstance(self.source, Sequence) and len(self.source) else None
        return [first.question] if isinstance(first, Sample) else []

    def open_output(self, samples: Any) -> AbstractContextManager[list[Row] | ReportFile]:
        """Return a context manager that gives the container of finished rows: the file `out` if it is set, or a list.

        Raises:
            ConfigError: if the file cannot be written, or is the file of the samples or the journal.
        """
        out = self.options["out"]
        if out is None:
            return nullcontext([])
        if not isinstance(out, str | Path):
            raise ConfigError(f"out must be the path of a file, got {type(out).__name__}")
        journal = self.score_store.journal and self.score_store.journal.path
        for used, what in ((samples, "the file of samples"), (journal, "the journal")):
            if isinstance(used, str | Path) and Path(used).resolve() == Path(out).resolve():
                raise ConfigError(f"out={str(out)!r} is {what}; choose another path")
        return ReportFile(out)

    def keep(self, row: Row, output: list[Row] | ReportFile) -> None:
        """Add a finished row to the output, and count its suspicious answers and verdicts for the report."""
        self._free_checks.add(row)
        self._units.add(row.sample)
        output.append(row)

    def build_report(self, output: list[Row] | ReportFile, *, complete: bool = True) -> Report:
        """Return the report of the finished rows.

        Args:
            output: the finished rows.
            complete: False if the run was interrupted. Samples with only some of their scores are then added.
        """
        for begun in [] if complete else list(self.scheduler.begun.values()):
            if any(begun.scores.values()):
                self.keep(begun.row(), output)
        stopped, changed, sequential = list(self._outage_notes()), self.score_store.note_changes(), self.sequential
        count = len(output.indexes if isinstance(output, ReportFile) else {row.index for row in output})
        notes = [] if complete else [Note("interrupted", count=count), *self._interruption_notes()]
        notes += [*stopped, *(sequential.notes if sequential else []), *self._notes(), *changed]
        provenance = Provenance()
        for name, instrument in (pair for instruments in self._instruments for pair in instruments.items()):
            provenance = provenance.with_instrument(name, instrument)
        if not isinstance(output, ReportFile) and (problem := disjoint_ids((r.sample for r in output), self.metrics)):
            notes.append(problem)
        report = Report(
            [],
            notes,
            complete and not stopped,
            sorted([*self.left_out, *self._not_asked, *(sequential.left_out if sequential else [])]),
            provenance,
            sequential.decisions if sequential else {},
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            version=__version__,
            canaries=self.canaries,
        )
        if isinstance(output, ReportFile):
            if complete or count:
                return replace(report, rows=output.finish(head_of(report)))
            output.discard()
            return report
        return replace(report, rows=[row for _, row in sorted({row.index: row for row in output}.items())])

    def raise_if_left_out(self) -> None:
        """Raise BudgetExceeded if a score did not fit the budget, or JudgeUnavailable if a judge never answered."""
        for note in self._outage_notes():
            raise JudgeUnavailable(note)
        for note in self._budget_notes():
            raise BudgetExceeded(note)

    def notes_on_rows(self) -> Iterator[str]:
        """Yield the notes that depend on the rows alone, so that a stored report can compute them again."""
        yield from self.mixed_measures.notes()
        yield from self._free_checks.notes()

    def _notes(self) -> Iterator[str]:
        models = {id(model): model for metric in self.metrics for model in called_models(metric)}
        yield from _unique(getattr(model, "report_note", None) for model in models.values())
        stages = [stage for metric in self.metrics for part in metrics_in(metric) for stage in stages_of(part)]
        yield from _unique(note for stage in stages for note in stage.report_notes)
        yield from _unique(judge._endpoint.note for judge in self._judges)
        yield from _unique(judge._endpoint.probabilities_note for judge in self._judges)
        yield from cascade_notes(self.run.meter.events)
        yield from self.notes_on_rows()
        yield from notes_on(self.canaries)
        for embeddings, texts in self.run.embedding_queues.alike():
            yield Note("one-vector", model=model_label(embeddings), texts=texts)
        yield from self._units.notes()
        yield from self.score_store.notes()
        if self.score_store.journal is None:
            unknown = {name: one.unknown for part in self._instruments for name, one in part.items() if one.unknown}
            yield from (Note("unknown-instrument", metric=name, reason=reason) for name, reason in unknown.items())
        yield from self._budget_notes()
        if self._unaudited:
            yield Note("not-audited", metrics=self._unaudited)
        if self._audit_left_out:
            yield Note("audit-left-out", count=len(self._audit_left_out))
        lowest, limit = self.run.governor.limiter.lowest_size, self.run.governor.limiter.limit
        if limit is not None and lowest is not None and lowest < limit:
            yield Note("rejected-calls", low=lowest, high=limit)
        for problem in self.run.meter.unpriced:
            yield Note("money-unknown", reason=problem)
        if self.run.meter.abandoned:
            yield Note("abandoned-calls", count=self.run.meter.abandoned, seconds=self.run.timeout)

    def _outage_notes(self) -> Iterator[Note]:
        """Yield a note for each judge that is not called any more, with the cause."""
        code = STOPPED[not self._is_unavailable(*self._endpoints)]
        names = {id(endpoint): (endpoint, name) for metric in self._endpoints for endpoint, name in metric}
        for endpoint, name in names.values():
            if outage := self.run.governor.outage(endpoint):
                count, cause = outage
                yield Note(code, judge=name, count=count, failure=cause.text)

    def _interruption_notes(self) -> Iterable[str]:
        """Return notes on what an interrupted run leaves behind."""
        return ()

    def _budget_notes(self) -> Iterator[Note]:
        """Yield notes on the scores that did not fit the budget and the order of the samples, if there are any."""
        if self.left_out:
            code = "budget-spent-unread" if self.scheduler.stopped_reading.is_set() else "budget-spent"
            first, _ = min(self.left_out)
            yield Note(code, budget=self.run.governor.budget, count=len(self.left_out), first=first)
            if self.order is not None:
                yield self.order

    def _is_unavailable(self, *metrics: _Endpoints) -> bool:
        """Return True if each of these metrics, given by its endpoints, has one that is not called any more."""
        return all(any(self.run.governor.outage(endpoint) for endpoint, _ in metric) for metric in metrics)


def _unique(notes: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(filter(None, notes)))


_KINDS: Mapping[str, tuple[Any, str]] = {
    "callbacks": (list | BaseCallbackManager, "a list of handlers"),
    "until": (Until, "Decided(...) or Precise(...)"),
    "audit": (Audit, "Audit(judge, share=0.1)"),
    "batch": (Batch, "Batch()"),
}


def _check(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if an option of `evaluate` is invalid; `build_run` checks those of a run."""
    on_failure, strict, canaries = (options[name] for name in ("on_failure", "strict", "canaries"))
    if on_failure not in ("record", "raise"):
        raise ConfigError(f"on_failure must be 'record' or 'raise', got {on_failure!r}")
    if not isinstance(strict, bool):
        raise ConfigError(f"strict must be True or False, got {strict!r}")
    if canaries not in (None, True, False):
        raise ConfigError(f"canaries must be True, False or None, got {canaries!r}")
    check_kinds({name: options[name] for name in _KINDS})


def check_kinds(options: Mapping[str, Any]) -> None:
    """Raise ConfigError if one of the options `callbacks`, `until`, `audit` and `batch` has a value of another type."""
    for name, value in options.items():
        kind, expected = _KINDS[name]
        if not isinstance(value, kind | None):
            raise ConfigError(f"{name} must be {expected}, got {type(value).__name__}")
