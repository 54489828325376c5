"""Finished: the scores of a run that its journal already holds, and those it is to hold.

A score is known by the content of its sample, the metric's name and its instrument, so that another model, prompt or
option never finds it, and neither the sample's place nor its id matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import JournalError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.provenance import runnables_in_front
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.run.journal import Journal, journal_key


class ScoreStore:
    """The scores of some metrics in a journal.

    Args:
        journal: or the path of one, which is then closed in the end; None keeps nothing.
        metrics: of the run. Only those that are one metric of ours, also behind `with_retry` or `with_config`, are
            journalled, and of these the ones whose instrument is known: only it distinguishes configurations.
    """

    def __init__(self, journal: str | Path | Journal | None, metrics: Sequence[Any]) -> None:
        self._own = isinstance(journal, str | Path)
        self.journal = Journal(journal) if isinstance(journal, str | Path) else journal
        self._reasons = [_obstacle(metric) for metric in metrics]
        journalled = zip(metrics, self._reasons, strict=True)
        self._metrics = [None if reason else metrics_in(metric)[0] for metric, reason in journalled]
        self._names = [names_of(metric) for metric in metrics]

    def score(self, number: int, sample: Sample) -> dict[str, Score] | None:
        """The scores of the metric with this number, None when they are still to be had.

        Raises:
            JournalError: if the journal cannot be read.
        """
        metric = self._metrics[number]
        if self.journal is None or metric is None:
            return None
        found = self.journal.get(_key(metric, sample))
        if found is None:
            return None
        try:
            return {metric.name: Score.model_validate_json(found)}
        except ValidationError as error:
            raise JournalError(f"{self.journal} holds what is no score: {error}; name another place") from error

    def keep(self, number: int, sample: Sample, scores: Mapping[str, Score]) -> None:
        """Keep the scores of the metric with this number, unless it failed: failures are tried again.

        Raises:
            JournalError: if the journal cannot be written.
        """
        metric = self._metrics[number]
        if self.journal is None or metric is None:
            return
        score = scores[metric.name]
        if score.failure is None:
            self.journal.put(_key(metric, sample), score.model_dump_json())

    def close(self) -> None:
        """Close the journal, unless it is the user's."""
        if self._own and self.journal is not None:
            self.journal.close()

    def notes(self) -> Iterator[str]:
        """Which metrics are not journalled."""
        if self.journal is not None:
            for metric, names, reason in zip(self._metrics, self._names, self._reasons, strict=True):
                if metric is None:
                    yield f"{', '.join(names)} is not journalled: {reason}."


def _obstacle(metric: Any) -> str:
    """Return why the scores of a metric are not stored, or ""."""
    parts = metrics_in(metric)
    if len(parts) != 1 or any(runnables_in_front(metric)):
        return "only a single metric, not a chain or a Runnable around several, identifies what its scores depend on"
    return str(parts[0].provenance.unknown)


def _key(metric: Metric, sample: Sample) -> str:
    """Of a sample all counts but its name; the metadata only for a metric that reads them."""
    unread = {"id"} if "metadata" in metric.reads else {"id", "metadata"}
    return journal_key(metric.name, metric.instrument, sample.model_dump(mode="json", exclude=unread, fallback=str))
