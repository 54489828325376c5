"""Store the finished scores of a run in a journal (an SQLite file), so that a later run computes only the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import JournalError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import (
    instruments_in,
    metrics_in,
    names_of,
    runnables_in_front,
    update_instruments,
)
from langchain_rageval.prompts.answer_schemas import STEPS_WITH_HISTORY
from langchain_rageval.prompts.promptset import packaged_fingerprint
from langchain_rageval.run.journal import Journal, journal_key

_SEVERAL = "only a single metric, not a chain or a Runnable around several, identifies what its scores depend on"


class _Entry(NamedTuple):
    """A metric of a run, and how its scores are stored.

    Attributes:
        whole: the metric, with what is around it.
        metric: the single metric whose scores are stored; None if they are not.
        reason: why they are not stored; "" if they are.
        instrument: digests of what the scores depend on.
    """

    whole: Any
    metric: Metric | None
    reason: str
    instrument: str


class ScoreStore:
    """Store of the scores of a run's metrics in a journal.

    Args:
        journal: the journal, or its path, or None to store nothing. A journal given as a path is closed by `close`.
        metrics: the metrics of the run. Scores are stored only for a `Metric`, which `with_retry` or `with_config` may
            wrap, and only if everything that its scores depend on (models, prompts, functions) can be identified. The
            scores of chains and of Runnables around several metrics are not stored; see `notes`.
    """

    def __init__(self, journal: str | Path | Journal | None, metrics: Sequence[Any]) -> None:
        self._owns_journal, self._closed = isinstance(journal, str | Path), False
        self.journal = Journal(journal) if isinstance(journal, str | Path) else journal
        self._entries: list[_Entry] = []
        self._unreliable: dict[str, bool] = {}  # by instrument: whether it changed during a run that the journal knows
        for metric in metrics:
            parts, reason, instrument = metrics_in(metric), _SEVERAL, ""
            if len(parts) == 1 and not any(runnables_in_front(metric)):
                (found,) = instruments_in(metric).values()
                reason, instrument = found.unknown, found.digests
            self._entries.append(_Entry(metric, None if reason else parts[0], reason, instrument))

    def load(self, number: int, sample: Sample) -> dict[str, Score] | None:
        """Return the stored scores of a metric for a sample; None if there are none.

        Args:
            number: the place of the metric in the run, from 0.
            sample: the sample.

        Raises:
            JournalError: if the journal cannot be read.
        """
        _, metric, _, instrument = self._entries[number]
        if self.journal is None or metric is None:
            return None
        with self._closing_late_use():
            if instrument not in self._unreliable:
                self._unreliable[instrument] = self.journal.get(_mark(instrument)) is not None
            entry = None if self._unreliable[instrument] else self.journal.get(_key(metric, instrument, sample))
        if entry is None:
            return None
        try:
            return {metric.name: Score.model_validate_json(entry)}
        except ValidationError as error:
            raise JournalError(
                f"{self.journal} holds an entry that is not a score: {error}; name another path"
            ) from error

    def save(self, number: int, sample: Sample, scores: Mapping[str, Score]) -> None:
        """Store the scores of a metric for a sample. A failure is not stored, so that a later run tries again.

        Args:
            number: the place of the metric in the run, from 0.
            sample: the sample.
            scores: the scores by name.

        Raises:
            JournalError: if the journal cannot be written.
        """
        _, metric, _, instrument = self._entries[number]
        if self.journal is not None and metric is not None and scores[metric.name].failure is None:
            with self._closing_late_use():
                self.journal.put(_key(metric, instrument, sample), scores[metric.name].model_dump_json())

    def note_changes(self) -> list[Note]:
        """Return a list with one note that names the metrics whose configuration changed during the run.

        The list is empty if none changed. The journal marks the configuration that such a metric had at the start. The
        scores stored under it may come from either configuration, so later runs do not use them.
        """
        if self.journal is None:
            return []
        update_instruments([entry.whole for entry in self._entries])
        names = []
        for whole, metric, _, instrument in self._entries:
            if metric is not None and next(iter(instruments_in(whole).values())).digests != instrument:
                self.journal.put(_mark(instrument), "changed")
                names.append(metric.name)
        return [Note("changed-in-run", metrics=names)] if names else []

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
        for whole, metric, reason, _ in self._entries if self.journal is not None else ():
            if metric is None:
                yield Note("not-in-journal", metrics=names_of(whole), reason=reason)


def _mark(instrument: str) -> str:
    """Return the key under which a journal says that the instrument changed during a run."""
    return journal_key("changed", instrument)


def _key(metric: Metric, instrument: str, sample: Sample) -> str:
    """Return the key of a score; it ignores the sample's id, and its metadata unless the metric reads them.

    The instrument of a metric is the same with and without a history, so the prompts that only a history needs are part
    of the key.
    """
    ignored = {"id"} if "metadata" in metric.reads else {"id", "metadata"}
    content = sample.model_dump(mode="json", exclude=ignored, fallback=str)
    if sample.history:
        content["prompts"] = [packaged_fingerprint(step) for step in STEPS_WITH_HISTORY]
    return journal_key(metric.name, instrument, content)
