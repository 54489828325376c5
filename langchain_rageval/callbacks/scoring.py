"""Scoring: sampled runs on their way to the judge and on to the sinks, in threads of their own.

A run that is admitted is counted once in the end: scored, failed, dropped, or unscorable. Each sink has a lane of its
own, so that one that fails or hangs holds up neither the judge nor the others.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any
from weakref import WeakSet

from langchain_core.runnables import RunnableSequence
from langsmith import tracing_context

from langchain_rageval.callbacks.run_tree import Tree
from langchain_rageval.callbacks.worker_queue import WorkerQueue
from langchain_rageval.data.schema import Row, Sample
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.mixed_measures import MixedMeasures
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.metrics.outcome import names_of, parts_of
from langchain_rageval.run.budget import BudgetTracker
from langchain_rageval.run.threads import DaemonThreads

Sink = Callable[[Row], Any]
Extract = Callable[[Tree], Mapping[str, Any] | Sample | None]
Redact = Callable[[Sample], Sample]

OUTCOMES = ("scored", "failed", "dropped", "unscorable")
"""What becomes of a sampled run, in the end."""

judging: ContextVar[bool] = ContextVar("judging", default=False)
"""Set in the threads that score and deliver: what runs there is never watched."""

_EXIT_SECONDS = 5.0
_MINUTE = 60.0
_PATIENCE = 10.0  # seconds with a sink that is slower than the judge
_WAITS = (0.1, 0.2, 0.4, 0.8, 1.6)  # seconds between the tries of a sink

_at_work: WeakSet[Scoring] = WeakSet()

log = logging.getLogger("langchain_rageval")


@dataclass(frozen=True)
class ScoringOptions:
    """What is done with a sampled run; the same in every process.

    Args:
        evaluation: makes the evaluation of all metrics, with its threads, slots and budget.
        sinks: take each row.
        max_pending: most runs that wait for their scores.
        max_per_minute: most runs admitted within a minute.
        workers: runs scored at a time.
        extract: reads the sample from the tree of runs.
        redact: is shown each sample before the judge and the sinks are.
    """

    evaluation: Callable[[], Evaluation]
    sinks: Sequence[Sink]
    max_pending: int
    max_per_minute: int | None
    workers: int
    extract: Extract | None
    redact: Redact | None


@dataclass(frozen=True, eq=False)
class Job:
    """An admitted run: its sample, or the tree of runs in which to find it."""

    number: int
    about: Mapping[str, Any]
    sample: Sample | None = None
    tree: Tree | None = None


@dataclass(eq=False)
class Delivery:
    """A row on its way to several sinks."""

    job: Job
    row: Row
    outcome: str
    left: int = 0


@dataclass(eq=False)
class Scoring:
    """The work of one process: what waits, what is done, and the counts."""

    plan: ScoringOptions
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Set up the lanes; no thread starts before there is something to do."""
        plan, self._threads = self.plan, DaemonThreads()
        self._jobs: WorkerQueue[Job] = WorkerQueue(self._work, plan.workers, plan.max_pending, self._threads)
        self._ways = [
            SinkQueue(sink, self._failed_sink, self._arrived, plan.max_pending, self._threads) for sink in plan.sinks
        ]
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._making = threading.Lock()
        self._evaluations: dict[tuple[int, ...], Evaluation] = {}
        self._base: Evaluation | None = None
        self._unfinished: dict[int, None] = {}  # numbers of the runs, in order
        self._unscored = 0
        self._number = 0
        self._admissions: deque[float] = deque()
        self._closed = False
        self._told: set[str] = set()
        self._process = os.getpid()
        _at_work.add(self)
        atexit.unregister(_finish_at_exit)
        atexit.register(_finish_at_exit)

    def count(self, **amounts: int) -> None:
        """Add to the counts."""
        with self._lock:
            for name, amount in amounts.items():
                self.counts[name] += amount

    def stats(self) -> dict[str, int]:
        """The counts, and what is pending."""
        with self._changed:
            return dict(self.counts) | {"pending": len(self._unfinished)}

    def admit(self) -> int | None:
        """A number for a run, None when there is no room for it: it is then counted as dropped."""
        with self._changed:
            if self._closed or self._unscored >= self.plan.max_pending or not self._within_rate():
                self.counts["dropped"] += 1
                return None
            self._number += 1
            self._unscored += 1
            self._unfinished[self._number] = None
            return self._number

    def put(self, job: Job) -> None:
        """Have an admitted run scored."""
        if not self._jobs.put(job):
            self.scored(job.number)
            self.finish(job.number, "dropped")

    def scored(self, number: int) -> None:
        """A run waits for no score any more."""
        with self._changed:
            self._unscored -= 1

    def finish(self, number: int, outcome: str) -> None:
        """Count what became of a run."""
        with self._changed:
            del self._unfinished[number]
            self.counts[outcome] += 1
            self._changed.notify_all()

    def flush(self, timeout: float | None) -> bool:
        """Wait until every run admitted so far is scored and delivered; whether that came in time."""
        with self._changed:
            last = self._number
            return self._changed.wait_for(lambda: next(iter(self._unfinished), inf) > last, timeout)

    def close(self) -> None:
        """Admit nothing more, and give up what nobody has begun to score."""
        with self._changed:
            self._closed = True
        for job in self._jobs.clear():
            self.scored(job.number)
            self.finish(job.number, "dropped")

    def tell(self, what: str, error: BaseException) -> None:
        """Log an error, the first of its kind; with its message only where nobody redacts, for it may quote a text."""
        kind = f"{what}: {type(error).__name__}"
        if kind not in self._told:
            self._told.add(kind)
            log.warning("%s", kind if self.plan.redact else f"{kind}: {error}")

    def _within_rate(self) -> bool:
        if self.plan.max_per_minute is None:
            return True
        now = time.monotonic()
        while self._admissions and self._admissions[0] <= now - _MINUTE:
            self._admissions.popleft()
        if len(self._admissions) >= self.plan.max_per_minute:
            return False
        self._admissions.append(now)
        return True

    def _work(self, job: Job) -> None:
        judging.set(True)
        delivery, outcome = None, "failed"
        try:
            with tracing_context(enabled=False):
                delivery, outcome = self._judged(job)
        except SampleError as error:
            self.tell("a run could not be read; say how with extract=", error)
        except Exception as error:
            self.tell("a run could not be scored", error)
        finally:
            self.scored(job.number)
        if delivery is None:
            self.finish(job.number, outcome)
        else:
            self._deliver(delivery)

    def _judged(self, job: Job) -> tuple[Delivery | None, str]:
        """The row on its way, or what became of the run without one."""
        sample = job.sample if job.tree is None else self._extracted(job.tree)
        if sample is None:
            return None, "unscorable"
        if self.plan.redact is not None:
            sample = self.plan.redact(sample)
            if not isinstance(sample, Sample):
                raise ConfigError(f"redact gives the Sample that may be shown, it gave a {type(sample).__name__}")
        sample = sample.model_copy(update={"metadata": {**sample.metadata, **job.about}})
        evaluation = self._evaluation(sample)
        if evaluation is None:
            return None, "unscorable"
        rows = list(evaluation.rows([sample]))
        if not rows:
            return None, "dropped"  # the budget has no room for it
        row = rows[0].model_copy(update={"index": job.number - 1})
        outcome = "failed" if all(score.failure for score in row.scores.values()) else "scored"
        return Delivery(job, row, outcome), outcome

    def _extracted(self, tree: Tree) -> Sample | None:
        found = self.plan.extract(tree) if self.plan.extract else None
        if found is None:
            return None
        sample = Sample.parse(found)
        named = isinstance(found, Sample) or "id" in found
        return sample if named else sample.model_copy(update={"id": tree["id"]})

    def _evaluation(self, sample: Sample) -> Evaluation | None:
        """Of the metrics whose fields the sample has, one sample long; None when there is no such metric."""
        with self._making:
            self._base = base = self._base or self.plan.evaluation()
        able = tuple(number for number, metric in enumerate(base.metrics) if _reads(metric, sample))
        left_out = [name for n, metric in enumerate(base.metrics) if n not in able for name in names_of(metric)]
        self.count(skipped=len(left_out))
        if not able:
            return None
        with self._making:
            if able not in self._evaluations:
                self._evaluations[able] = _part(base, [base.metrics[number] for number in able])
        found = self._evaluations[able]
        return replace(found, mixed_measures=MixedMeasures(), left_out=[])

    def _deliver(self, delivery: Delivery) -> None:
        delivery.left = len(self._ways) + 1
        for way in self._ways:
            if not way.put(delivery):
                self.count(lost=1)
                self._arrived(delivery)
        self._arrived(delivery)

    def _failed_sink(self, error: Exception, *, gave_up: bool) -> None:
        self.count(sink_errors=1, lost=int(gave_up))
        self.tell("a sink failed", error)

    def _arrived(self, delivery: Delivery) -> None:
        with self._changed:
            delivery.left -= 1
            left = delivery.left
        if not left:
            self.finish(delivery.job.number, delivery.outcome)


def _finish_at_exit() -> None:
    """Give what is pending in this process a last chance: daemon threads end with the interpreter."""
    deadline = time.monotonic() + _EXIT_SECONDS
    for scoring in list(_at_work):
        if scoring._process == os.getpid():
            scoring.flush(max(0.0, deadline - time.monotonic()))
            scoring.close()


class SinkQueue:
    """The way to one sink. A row that it does not take is tried again; while it takes none, each one only once.

    Whoever brings a row waits when many are on the way: the judge is to be no faster than the sink. A sink that hangs
    is waited for once, until it goes on.

    Args:
        sink: takes the rows.
        failed: called with each error.
        arrived: called with each delivery, taken or not.
        limit: most rows on the way.
        threads: one of them hands the rows over.
    """

    def __init__(
        self,
        sink: Sink,
        failed: Callable[..., None],
        arrived: Callable[[Delivery], None],
        limit: int,
        threads: DaemonThreads,
    ) -> None:
        self._sink = sink
        self._failed = failed
        self._arrived = arrived
        self._lane: WorkerQueue[Delivery] = WorkerQueue(self._hand_over, 1, limit, threads)
        self._down = False
        self._hangs = False

    def put(self, delivery: Delivery) -> bool:
        """Send a delivery on its way; False when there is no room for it."""
        taken = self._lane.put(delivery, 0.0 if self._hangs else _PATIENCE)
        self._hangs = not taken
        return taken

    def _hand_over(self, delivery: Delivery) -> None:
        judging.set(True)
        try:
            self._try(delivery.row)
        finally:
            self._arrived(delivery)

    def _try(self, row: Row) -> None:
        for wait in (None,) if self._down else (*_WAITS, None):
            try:
                self._sink(row)
            except Exception as error:
                self._failed(error, gave_up=wait is None)
            else:
                self._down = False
                return
            if wait is not None:
                time.sleep(wait)
        self._down = True


def _reads(metric: AnyMetric, sample: Sample) -> bool:
    """Whether a metric finds what it reads in a sample; what a chain makes of it cannot be known."""
    if isinstance(metric, RunnableSequence):
        return True
    try:
        for part in parts_of(metric):
            part.read(sample)
    except SampleError:
        return False
    return True


def _part(base: Evaluation, metrics: Sequence[AnyMetric]) -> Evaluation:
    """An evaluation of some of the metrics, that spends from the same budget."""
    budget_tracker = BudgetTracker(base.budget_tracker.budget, base.run.meter)
    return replace(base, metrics=metrics, score_store=ScoreStore(None, metrics), budget_tracker=budget_tracker)
