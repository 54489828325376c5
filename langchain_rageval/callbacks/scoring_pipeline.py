"""Scoring pipeline: score sampled runs in the background, and deliver the rows to the sinks."""

from __future__ import annotations

import atexit
import inspect
import logging
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextvars import Context, ContextVar
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from langsmith import tracing_context

from langchain_rageval._internal.redaction import mask_data, redact_message
from langchain_rageval.chains.run_trees import RunRecord
from langchain_rageval.data.conversations import CONVERSATION
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, check_complete_sample
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.run.retry import is_transient, status_of
from langchain_rageval.run.threads import DaemonThreads

T = TypeVar("T")

in_worker: ContextVar[bool] = ContextVar("in_worker", default=False)
"""True in threads that process a queue, and in what they start: runs of chains there are not sampled."""

_LOG = logging.getLogger("langchain_rageval")


class WorkerQueue(Generic[T]):
    """A first-in, first-out queue of limited length, whose items are processed in threads that start on demand.

    Args:
        process: function that is called with each item, in a daemon thread. The thread sees none of the context
            variables of the thread that called `put`.
        n_workers: maximum number of threads. No thread exists while the queue is empty.
        limit: maximum number of items, waiting or being processed.
        threads: object that starts the threads.
        key: function that returns the key of an item. Items with the same key are processed one after the other; items
            with the key None are independent.
    """

    def __init__(
        self,
        process: Callable[[T], None],
        n_workers: int,
        limit: int,
        threads: DaemonThreads,
        key: Callable[[T], Hashable] = lambda _: None,
    ) -> None:
        self._process = process
        self._key = key
        self._busy: set[Hashable] = set()
        self._n_workers = n_workers
        self._limit = limit
        self._threads = threads
        self._waiting: deque[T] = deque()
        self._n_active = 0
        self._n_items = 0
        self._changed = threading.Condition()

    def put(self, item: T, timeout: float = 0.0) -> bool:
        """Add an item and return True; return False if the queue is still full after a timeout in seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._n_items < self._limit, timeout):
                return False
            needs_worker = self._n_active < self._n_workers
            self._n_active += needs_worker
            self._n_items += 1
            self._waiting.append(item)
        if needs_worker:
            try:
                Context().run(self._threads.submit, self._work)
            except RuntimeError as error:  # the system has no more threads, or the interpreter is shutting down
                with self._changed:
                    self._n_active -= 1
                _LOG.warning("no thread could be started to score or deliver: %s", error)
        return True

    def clear(self) -> list[T]:
        """Remove and return the waiting items, which no worker has begun to process."""
        with self._changed:
            waiting, self._waiting = list(self._waiting), deque()
            self._n_items -= len(waiting)
            return waiting

    def _work(self) -> None:
        in_worker.set(True)
        while True:
            with self._changed:
                free = (place for place, one in enumerate(self._waiting) if self._key(one) not in self._busy)
                if (place := next(free, None)) is None:  # nothing waits, or each for a worker that will go on with it
                    self._n_active -= 1
                    return
                item = self._waiting[place]
                del self._waiting[place]
                if (key := self._key(item)) is not None:
                    self._busy.add(key)
            try:
                self._process(item)
            except BaseException:
                _LOG.exception("a run or a row was lost, because its processing failed")
            finally:
                with self._changed:
                    self._busy.discard(key)
                    self._n_items -= 1
                    self._changed.notify()
                del item


Sink = Callable[[Row], Any]

_PUT_TIMEOUT = 10.0  # seconds to wait for room, if the sink is slower than the judge
_RETRY_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds


@dataclass(eq=False)
class Delivery:
    """A row (the scores of one run) that is being delivered to the sinks (receivers of rows).

    Attributes:
        number: number of the run, from 1, in the order in which the pipeline admitted runs for scoring.
        row: the row: the sample that was read from the run, its scores and its tags.
        outcome: name of the counter, such as "scored", to increase when every sink has accepted or finally rejected the
            row.
        n_pending: number of sinks that have neither accepted nor finally rejected the row.
    """

    number: int
    row: Row
    outcome: str
    n_pending: int


class SinkQueue(WorkerQueue[Delivery]):
    """A queue of limited length with the rows for one sink, which one thread delivers in order.

    If the sink raises an error for a row, the row is tried again up to five times, after growing delays. A row is not
    tried again after a permanent error (wrong arguments, missing rights, or a refusal of the sink's server), or if the
    previous row was not delivered. `put` waits up to 10 s while the queue is full, so the judge runs no faster than the
    sink. After a `put` that waited in vain, later calls return False at once until there is room again.

    Args:
        sink: the sink, which is called with each row.
        pipeline: the pipeline, which counts the errors of the sink and the finished deliveries.
    """

    def __init__(self, sink: Sink, pipeline: ScoringPipeline) -> None:
        super().__init__(self._deliver, 1, pipeline.max_pending, pipeline.threads)
        self._sink, self._pipeline = sink, pipeline
        self._is_down = self._hangs = False

    def put(self, item: Delivery, timeout: float = 0.0) -> bool:
        """Add a delivery (a row) and return True; return False if the queue stays full while the call waits.

        The call waits up to 10 s for room in the queue. After a call that returned False, further calls wait only up to
        `timeout` seconds, so that a sink that hangs does not delay each row by 10 s.
        """
        added = super().put(item, timeout if self._hangs else _PUT_TIMEOUT)
        self._hangs = not added
        return added

    def _deliver(self, delivery: Delivery) -> None:
        try:
            self._is_down = not self._try_to_send(delivery.row)
        finally:
            self._pipeline.finish_delivery(delivery)

    def _try_to_send(self, row: Row) -> bool:
        """Send a row, with retries unless the sink was down before; return True if it was sent."""
        for delay in (None,) if self._is_down else (*_RETRY_DELAYS, None):
            try:
                result = self._sink(row)
                if inspect.iscoroutine(result):  # it would not be awaited, and the row would be lost
                    result.close()
                    raise TypeError("the sink is async: pass a plain function, which is called in a thread of its own")
                return True
            except BaseException as error:
                delay = None if _is_permanent(error) else delay
                self._pipeline.count(sink_errors=1, lost=int(delay is None))
                self._pipeline.log_once("a sink failed", error)
            if delay is None:
                break
            time.sleep(delay)
        return False


def _is_permanent(error: BaseException) -> bool:
    """Return True if a sink will fail with a row again: wrong arguments or rights, or a refusal of its server."""
    if isinstance(error, ConfigError | TypeError | AttributeError | PermissionError):
        return True
    return isinstance(error, Exception) and status_of(error) is not None and not is_transient(error)


TRACE_ID = "trace_id"
SPAN_ID = "span_id"


def current_span() -> dict[str, str]:
    """Return `trace_id` and `span_id` of the current OpenTelemetry span as hexadecimal digits; {} without a span.

    The function does not import OpenTelemetry. If nothing else has imported it, there is no span.
    """
    trace = sys.modules.get("opentelemetry.trace")
    context = trace.get_current_span().get_span_context() if trace is not None else None
    if trace is None or context is None or not context.is_valid:
        return {}
    return {TRACE_ID: trace.format_trace_id(context.trace_id), SPAN_ID: trace.format_span_id(context.span_id)}


def span_in(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return `trace_id` and `span_id` from the metadata of a run, as far as the metadata has them."""
    return {name: str(metadata[name]) for name in (TRACE_ID, SPAN_ID) if metadata.get(name)}


Extract = Callable[[RunRecord], Mapping[str, Any] | Sample | None]
Redact = Callable[[Sample], Sample]

OUTCOMES = ("scored", "failed", "dropped", "unscorable")
"""Possible outcomes of a sampled run."""

_EXIT_SECONDS = 5.0

_pipelines: WeakSet[ScoringPipeline] = WeakSet()


@dataclass(frozen=True, eq=False)
class ScoringJob:
    """A run that was admitted to the queue of runs to score.

    Attributes:
        number: number of the run, in order of admission.
        metadata: metadata that is added to the sample.
        read: function that returns the sample of the run, or None if the run is to be left out.
    """

    number: int
    metadata: Mapping[str, Any]
    read: Callable[[], Sample | None]


@dataclass(eq=False)
class ScoringPipeline:
    """Scores the recorded runs of one process in background threads, and delivers the rows to the sinks.

    Attributes:
        build_evaluation: function that returns the scorer for all metrics, with its threads, limiter and budget.
        sinks: receivers of the rows.
        max_pending: maximum number of runs that wait for their scores.
        max_per_minute: maximum number of runs admitted within a minute; None sets no limit.
        n_workers: number of runs scored at a time.
        extract: function that reads the sample from the run tree; None for the rules of `RagEvalCallback`.
        redact: function that returns the sample that judge and sinks may see; None for no redaction.
        tags: names and values that are added to every row.
        counts: counted runs, scores and rows by the names that `RagEvalCallback.stats` explains, such as "scored".
        threads: the threads that score and deliver.
    """

    build_evaluation: Callable[[], Evaluation]
    sinks: Sequence[Sink]
    max_pending: int
    max_per_minute: int | None
    n_workers: int
    extract: Extract | None
    redact: Redact | None
    tags: Mapping[str, str]
    counts: Counter[str] = field(default_factory=Counter)
    threads: DaemonThreads = field(default_factory=DaemonThreads)

    def __post_init__(self) -> None:
        """Create the queues; threads start with the first run."""
        self._jobs: WorkerQueue[ScoringJob] = WorkerQueue(
            self._process,
            self.n_workers,
            self.max_pending,
            self.threads,
            key=lambda job: job.metadata.get(CONVERSATION),  # whose turns reach the sinks in their order
        )
        self._sink_queues = [SinkQueue(sink, self) for sink in self.sinks]
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._build_lock = threading.Lock()
        self._evaluations: dict[tuple[int, ...], Evaluation] = {}
        self._full_evaluation: Evaluation | None = None
        self._unfinished: dict[int, None] = {}  # an ordered set of run numbers
        self._n_unscored = 0
        self._last_number = 0
        self._admission_times: deque[float] = deque()
        self._closed = False
        self._logged: Counter[str] = Counter()  # errors by kind
        self._process_id = os.getpid()
        _pipelines.add(self)
        atexit.unregister(_finish_at_exit)
        atexit.register(_finish_at_exit)

    def count(self, **amounts: int) -> None:
        """Add amounts to counters, as in `count(seen=1)`."""
        with self._lock:
            self.counts.update(amounts)

    def stats(self) -> dict[str, int]:
        """Return a mapping from counter names to numbers of runs, scores or rows, as in {"scored": 9, "lost": 1}.

        `pending` is the number of unfinished runs. `RagEvalCallback.stats` explains the names.
        """
        with self._changed:
            return dict(self.counts) | {"pending": len(self._unfinished)}

    def submit(self, metadata: Mapping[str, Any], prepare: Callable[[], Callable[[], Sample | None]]) -> None:
        """Queue a run for scoring; if the queue is full or the rate exceeded, count the run as dropped.

        Args:
            metadata: metadata that is added to the sample.
            prepare: function that is called if the run is admitted. It returns a second function, which reads the
                sample of the run in a worker thread.
        """
        if (number := self._admit()) is None:
            return
        try:
            job = ScoringJob(number, metadata, prepare())
        except BaseException:
            self._finish(number, "failed", is_scored=False)
            raise
        if not self._jobs.put(job):
            self._finish(number, "dropped", is_scored=False)

    def _admit(self) -> int | None:
        with self._changed:
            is_full = self._n_unscored >= self.max_pending
            if self._closed or is_full or not self._is_within_rate():
                self.counts["dropped"] += 1
                return None
            self._last_number += 1
            self._n_unscored += 1
            self._unfinished[self._last_number] = None
            return self._last_number

    def flush(self, timeout: float | None) -> bool:
        """Wait until every run admitted so far is scored and delivered; return False after a timeout in seconds."""
        with self._changed:
            last = self._last_number
            return self._changed.wait_for(lambda: next(iter(self._unfinished), inf) > last, timeout)

    def close(self) -> None:
        """Admit no more runs, drop the runs whose scoring has not started, and log how many runs are lost."""
        with self._changed:
            self._closed = True
        dropped = self._jobs.clear()
        for job in dropped:
            self._finish(job.number, "dropped", is_scored=False)
        for kind, count in self._logged.items():
            if count > 1:
                _LOG.warning("%s: %d times in all", kind, count)
        n_pending = self.stats()["pending"]
        if dropped or n_pending:
            _LOG.warning(
                "RagEvalCallback was closed before all runs were scored; dropped: %d; still being scored or delivered, "
                "and lost if the process ends now: %d",
                len(dropped),
                n_pending,
            )

    def log_once(self, problem: str, error: BaseException) -> None:
        """Log the first error for each problem and type of error, with the secrets of metrics and sinks masked.

        With the option `redact`, the log omits the message of the error, because the message may quote the sample.
        """
        owners = (self._full_evaluation and self._full_evaluation.metrics, self.sinks)
        kind = f"{problem}: {type(error).__name__}"
        self._logged[kind] += 1
        if self._logged[kind] == 1:
            message = kind if self.redact else f"{kind}: {redact_message(error, *owners)}"
            _LOG.warning("%s", message)

    def _finish(self, number: int, outcome: str, *, is_scored: bool = True) -> None:
        """Count the outcome of a run, such as "scored"; one that was not scored leaves its place among those to be."""
        with self._changed:
            self._n_unscored -= not is_scored
            del self._unfinished[number]
            self.counts[outcome] += 1
            self._changed.notify_all()

    def _is_within_rate(self) -> bool:
        if self.max_per_minute is None:
            return True
        now = time.monotonic()
        while self._admission_times and self._admission_times[0] <= now - 60.0:
            self._admission_times.popleft()
        if len(self._admission_times) >= self.max_per_minute:
            return False
        self._admission_times.append(now)
        return True

    def _process(self, job: ScoringJob) -> None:
        row, outcome = None, "failed"
        try:
            with tracing_context(enabled=False):
                row, outcome = self._score(job)
        except SampleError as error:
            self.log_once("a run could not be read; pass extract= to read it", error)
        except BaseException as error:  # a SystemExit of a judge ends neither the thread nor the process
            self.log_once("a run could not be scored", error)
        if row is None:
            self._finish(job.number, outcome, is_scored=False)
            return
        with self._changed:
            self._n_unscored -= 1
        delivery = Delivery(job.number, row, outcome, len(self._sink_queues) + 1)
        for queue in self._sink_queues:
            if not queue.put(delivery):
                self.count(lost=1)
                self.finish_delivery(delivery)
        self.finish_delivery(delivery)

    def _score(self, job: ScoringJob) -> tuple[Row | None, str]:
        """Score a run; return its row for the sinks (None if there is none) and the outcome to count."""
        if (sample := job.read()) is None:
            return None, "unscorable"
        if self.redact is not None:
            sample = self.redact(sample)
            if not isinstance(sample, Sample):
                raise ConfigError(f"redact must return a Sample, got {type(sample).__name__}")
        sample = sample.model_copy(update={"metadata": mask_data({**sample.metadata, **job.metadata})})
        if (evaluation := self._evaluation_for(sample)) is None:
            return None, "unscorable"
        if not (rows := list(evaluation.rows([sample]))):
            return None, "dropped"  # the budget has no room for it
        row = rows[0].model_copy(update={"index": job.number - 1, "tags": dict(self.tags)})
        outcome = "failed" if all(score.failure for score in row.scores.values()) else "scored"
        return row, outcome

    def _evaluation_for(self, sample: Sample) -> Evaluation | None:
        """Return an evaluation of the metrics whose fields the sample has; None if there is no such metric."""
        with self._build_lock:
            self._full_evaluation = full = self._full_evaluation or self.build_evaluation()
        usable = tuple(number for number, metric in enumerate(full.metrics) if _can_read(metric, sample))
        skipped = [name for n, metric in enumerate(full.metrics) if n not in usable for name in names_of(metric)]
        self.count(skipped=len(skipped))
        if not usable:
            return None
        with self._build_lock:
            if usable not in self._evaluations:
                self._evaluations[usable] = full.part(full.run, [full.metrics[number] for number in usable])
        evaluation = self._evaluations[usable]
        run = replace(evaluation.run, stopped=threading.Event())  # an error ends the scoring of one sample only
        return evaluation.part(run)

    def finish_delivery(self, delivery: Delivery) -> None:
        """Record that a sink has accepted or finally rejected a row; after the last sink, count the run's outcome."""
        with self._changed:
            delivery.n_pending -= 1
            if not delivery.n_pending:
                self._finish(delivery.number, delivery.outcome)


def _finish_at_exit() -> None:
    """Flush the pipelines of this process, up to a time limit: daemon threads end with the interpreter."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for pipeline in list(_pipelines):
        if pipeline._process_id == os.getpid() and not pipeline._closed:
            pipeline.flush(max(0.0, deadline - time.monotonic()))
            pipeline.close()


def _can_read(metric: AnyMetric, sample: Sample) -> bool:
    """Return True if a sample has the fields that a metric reads; True for a chain, whose fields are unknown."""
    try:
        check_complete_sample([metric], 0, sample)
    except SampleError:
        return False
    return True
