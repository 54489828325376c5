"""Answer store: answers of one stated run of a chain in a journal.

Whether a chain would still answer alike cannot be seen from outside: its settings, data and models may lie anywhere. So
a journal belongs to one run, and its answers are used again only if the caller states that it is the same run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from langchain_core.runnables import RunnableConfig

from langchain_rageval.data.schema import Turn
from langchain_rageval.errors import ConfigError, JournalError
from langchain_rageval.run.chain_collector import ChainAnswer
from langchain_rageval.run.journal import Journal, journal_key

_LOG = logging.getLogger("langchain_rageval")
_RUN = "run of a chain"
"""Key of the record of the run: its version, and whether it reached its last question."""
_REMEDY = (
    "pass the version of that run (version=, --version), continue an unfinished run (resume=True, --resume), ask the "
    "failed questions of a finished one (retry_failed=True, --retry-failed), or name another journal"
)


class AnswerStore:
    """The answers of one run of a chain in a journal.

    A run is finished when it has reached its last question, whatever failed. An unfinished run is continued if `resume`
    is set or its version is stated; it asks again what failed. A finished run answers if its version is stated; it asks
    again what failed only with `retry_failed`.

    Args:
        journal: the journal; or the path of one, which `close` then closes; or None, which stores nothing.
        config: config of the calls; texts and numbers among its configurable values are part of each key.
        version: version of the chain as the caller states it; None if it has none.
        resume: True to continue an unfinished run.
        retry_failed: True to ask the failed questions of a finished run again.

    Raises:
        ConfigError: if the journal holds a run that may not be continued; nothing is changed then.
        JournalError: if the journal cannot be read or written.
    """

    def __init__(
        self,
        journal: str | Path | Journal | None,
        config: RunnableConfig | None = None,
        *,
        version: str | None = None,
        resume: bool = False,
        retry_failed: bool = False,
    ) -> None:
        self._owns_journal, self._closed = isinstance(journal, str | Path), False
        self._journal = Journal(journal) if isinstance(journal, str | Path) else journal
        configurable = (config or {}).get("configurable", {}).items()
        self._configurable = {name: value for name, value in configurable if isinstance(value, str | int | float)}
        self._version, self._keeps_failures = version, False
        if self._journal is not None:
            try:
                self._open(self._journal, resume, retry_failed)
            except BaseException:
                self.close()
                raise

    def _open(self, journal: Journal, resume: bool, retry_failed: bool) -> None:
        """Record the run, or check that the recorded one may be continued."""
        entry = journal.get(_RUN)
        if entry is None:
            self._record(is_finished=False)
            return
        record = json.loads(entry)
        stored, is_finished = record["version"], record["is_finished"]
        is_same = stored is not None and stored == self._version
        state = f"{'a finished' if is_finished else 'an unfinished'} run {_of_version(stored)}"
        if self._version not in (None, stored):
            raise ConfigError(f"{journal.path} holds {state}, not {_of_version(self._version)}: {_REMEDY}")
        if not is_same and not (retry_failed if is_finished else resume):
            raise ConfigError(f"{journal.path} holds {state}: {_REMEDY}")
        self._version, self._keeps_failures = stored, is_finished and not retry_failed
        if is_finished:
            _LOG.warning("answers are taken from %s, which holds %s", journal.path, state)

    def load(self, question: str, history: Sequence[Turn] = ()) -> ChainAnswer | None:
        """Return the stored answer to a question after the turns before it; None if the chain must be asked.

        Raises:
            JournalError: if the journal cannot be read.
        """
        entry = None if self._journal is None else self._journal.get(self._key(question, history))
        if entry is None:
            return None
        try:
            answer = ChainAnswer(**json.loads(entry))
        except (ValueError, TypeError) as error:
            problem = f"{self._journal} holds an entry that is not an answer: {error}"
            raise JournalError(f"{problem}; name another path") from error
        return answer if answer.error is None or self._keeps_failures else None

    def save(self, question: str, answer: ChainAnswer, history: Sequence[Turn] = ()) -> None:
        """Store an answer, or the error in its place.

        Raises:
            JournalError: if the journal cannot be written.
        """
        if self._journal is not None:
            self._journal.put(self._key(question, history), answer.to_json())
            if self._closed:  # by a call that outlives its interrupted run
                self.close()

    def close(self, *, is_finished: bool = False) -> None:
        """Close the journal if it was opened from a path.

        Args:
            is_finished: True if the run has reached its last question; the journal then says so.
        """
        self._closed = True
        if is_finished and self._journal is not None:
            self._record(is_finished=True)
        if self._owns_journal and self._journal is not None:
            self._journal.close()

    def _record(self, *, is_finished: bool) -> None:
        if self._journal is not None:
            self._journal.put(_RUN, json.dumps({"version": self._version, "is_finished": is_finished}))

    def _key(self, question: str, history: Sequence[Turn]) -> str:
        content = [question, [turn.model_dump() for turn in history]] if history else question
        return journal_key("answer of a run", self._configurable, content)


def _of_version(version: str | None) -> str:
    return "without a version" if version is None else f"of version {version!r}"
