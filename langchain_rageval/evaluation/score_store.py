"""Scores that are known before a call: finished ones in a journal, and failures of a judge that never answers."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Failure, Sample, Score
from langchain_rageval.errors import JournalError
from langchain_rageval.judge.endpoint import Endpoint
from langchain_rageval.judge.judge import Judge
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import metrics_in, names_of, runnables_in_front
from langchain_rageval.prompts.answer_schemas import STEPS_WITH_HISTORY
from langchain_rageval.prompts.promptset import packaged_fingerprint
from langchain_rageval.run.journal import Journal, journal_key

STOPPED = ("run-stopped", "judge-stopped")
"""Codes of the note in the report of a run in which a breaker has opened: for all metrics, or for some."""

_FAILURES_TO_OPEN = 20


@dataclass
class _State:
    """Replies and errors of an endpoint in this run.

    Attributes:
        requests_before: number of requests to the endpoint before the run.
        replies_before: number of valid replies of the endpoint before the run.
        kind: type of the last failure.
        failures: number of failed scores in a row with a failure of this type.
        cause: the failure with which the breaker opened; None while it is closed.
    """

    requests_before: int
    replies_before: int
    kind: str = ""
    failures: int = 0
    cause: Failure | None = None


@dataclass
class JudgeBreaker:
    """Counts, per endpoint, the scores in a row that failed in the same way, until its first valid reply in the run."""

    _states: dict[int, _State] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, judges: Iterable[Judge]) -> list[Endpoint]:
        """Return the endpoints of judges, and note how many valid replies they have given before."""
        members = {id(member._endpoint): member for judge in judges for member in judge.asked}
        with self._lock:
            for key, member in members.items():
                if key not in self._states:
                    known = member._endpoint.capabilities
                    self._states[key] = _State(known.requests, known.valid_replies)
                    self._names[key] = member.identity
        return [member._endpoint for member in members.values()]

    def record(self, endpoints: Iterable[Endpoint], failure: Failure) -> bool:
        """Count a failed score against its endpoints that were asked and gave no valid reply.

        Returns:
            True if it opened the breaker of one.
        """
        opened = False
        with self._lock:
            for endpoint in endpoints:
                state = self._states[id(endpoint)]
                known = endpoint.capabilities
                if known.requests == state.requests_before:  # such as the strong judge of a cascade
                    continue
                if known.valid_replies > state.replies_before or state.cause is not None:
                    continue
                state.failures = state.failures + 1 if failure.error == state.kind else 1
                state.kind = failure.error
                if state.failures >= _FAILURES_TO_OPEN:
                    state.cause, opened = failure, True
        return opened

    def is_open(self, endpoints: Iterable[Endpoint]) -> bool:
        """Return True if no further calls are made to one of these endpoints."""
        return any(self._states[id(endpoint)].cause is not None for endpoint in endpoints)

    def notes(self, metrics: Sequence[Iterable[Endpoint]]) -> list[str]:
        """Return a sentence for each judge that is no longer called, with the cause.

        Args:
            metrics: the endpoints of each metric of the run.
        """
        code = STOPPED[0] if all(map(self.is_open, metrics)) else STOPPED[1]
        return [
            Note(
                code,
                judge=self._names[key],
                count=state.failures,
                failure=f"{state.cause.error}: {state.cause.message}",
            )
            for key, state in list(self._states.items())
            if state.cause is not None
        ]


class ScoreStore:
    """The scores of the metrics of a run in a journal.

    Args:
        journal: the journal; or the path of one, which `close` then closes; or None, which stores nothing.
        metrics: the metrics of the run. Scores are stored for a single `Metric`, also behind `with_retry` or
            `with_config`, whose instrument is known; nothing else identifies what its scores depend on.
    """

    def __init__(self, journal: str | Path | Journal | None, metrics: Sequence[Any]) -> None:
        self._owns_journal, self._closed = isinstance(journal, str | Path), False
        self.journal = Journal(journal) if isinstance(journal, str | Path) else journal
        self._reasons = [_obstacle(metric) for metric in metrics]
        journalled = zip(metrics, self._reasons, strict=True)
        self._metrics = [None if reason else metrics_in(metric)[0] for metric, reason in journalled]
        self._names = [names_of(metric) for metric in metrics]

    def with_metrics(self, metrics: Sequence[Any]) -> ScoreStore:
        """Return a store of other metrics in the same journal."""
        store = ScoreStore(self.journal, metrics)
        store._owns_journal = self._owns_journal
        return store

    def load(self, number: int, sample: Sample) -> dict[str, Score] | None:
        """Return the stored scores of a metric for a sample, or None if there are none.

        Args:
            number: the place of the metric in the run, from 0.
            sample: the sample.

        Raises:
            JournalError: if the journal cannot be read.
        """
        metric = self._metrics[number]
        if self.journal is None or metric is None:
            return None
        with self._closing_late_use():
            entry = self.journal.get(_key(metric, sample))
        if entry is None:
            return None
        try:
            return {metric.name: Score.model_validate_json(entry)}
        except ValidationError as error:
            raise JournalError(
                f"{self.journal} holds an entry that is not a score: {error}; name another path"
            ) from error

    def save(self, number: int, sample: Sample, scores: Mapping[str, Score]) -> None:
        """Store the scores of a metric for a sample; a failure is not stored, so that a later run tries again.

        Args:
            number: the place of the metric in the run, from 0.
            sample: the sample.
            scores: name to score.

        Raises:
            JournalError: if the journal cannot be written.
        """
        metric = self._metrics[number]
        if self.journal is None or metric is None:
            return
        score = scores[metric.name]
        if score.failure is None:
            with self._closing_late_use():
                self.journal.put(_key(metric, sample), score.model_dump_json())

    def close(self) -> None:
        """Close the journal if it was opened from a path."""
        self._closed = True
        if self._owns_journal and self.journal is not None:
            self.journal.close()

    @contextmanager
    def _closing_late_use(self) -> Iterator[None]:
        """Close the journal again if a call that outlives its interrupted run opens it."""
        try:
            yield
        finally:
            if self._closed:
                self.close()

    def notes(self) -> Iterator[str]:
        """Yield a sentence for each metric whose scores are not stored."""
        if self.journal is not None:
            for metric, names, reason in zip(self._metrics, self._names, self._reasons, strict=True):
                if metric is None:
                    yield Note("not-in-journal", metrics=names, reason=reason)


def _obstacle(metric: Any) -> str:
    """Return why the scores of a metric are not stored, or "" if they are."""
    parts = metrics_in(metric)
    if len(parts) != 1 or any(runnables_in_front(metric)):
        return "only a single metric, not a chain or a Runnable around several, identifies what its scores depend on"
    return str(parts[0].provenance.unknown)


def _key(metric: Metric, sample: Sample) -> str:
    """Return the key of a score; it ignores the sample's id, and its metadata unless the metric reads them.

    The instrument of a metric is the same with and without a history, so the prompts that only a history needs are part
    of the key.
    """
    ignored = {"id"} if "metadata" in metric.reads else {"id", "metadata"}
    content = sample.model_dump(mode="json", exclude=ignored, fallback=str)
    if sample.history:
        content["prompts"] = [packaged_fingerprint(step) for step in STEPS_WITH_HISTORY]
    return journal_key(metric.name, metric.instrument, content)
