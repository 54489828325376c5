"""Answer store: answers of a chain in a journal, found again when the same run is repeated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from langchain_rageval.data.schema import Turn
from langchain_rageval.errors import JournalError
from langchain_rageval.run.chain_collector import ChainAnswer
from langchain_rageval.run.chain_fingerprint import chain_fingerprint
from langchain_rageval.run.journal import Journal, journal_key

_KIND = "answer of a chain"


class AnswerStore:
    """The answers of one chain in a journal.

    Args:
        journal: the journal; or the path of one, which `close` then closes; or None, which stores nothing.
        chain: the chain; its fingerprint, taken now, is part of each key.
        config: config of the calls, whose configurable values are part of each key.
    """

    def __init__(self, journal: str | Path | Journal | None, chain: Any, config: RunnableConfig | None) -> None:
        self._owns_journal, self._closed = isinstance(journal, str | Path), False
        self._journal = Journal(journal) if isinstance(journal, str | Path) else journal
        configurable = (config or {}).get("configurable", {})
        self._fingerprint = "" if journal is None else chain_fingerprint(chain, configurable)

    def load(self, question: str, history: Sequence[Turn] = ()) -> ChainAnswer | None:
        """Return the stored answer to a question after the turns before it; None if there is none.

        Raises:
            JournalError: if the journal cannot be read.
        """
        entry = None if self._journal is None else self._journal.get(self._key(question, history))
        if entry is None:
            return None
        try:
            return ChainAnswer(**json.loads(entry))
        except (ValueError, TypeError) as error:
            problem = f"{self._journal} holds an entry that is not an answer: {error}"
            raise JournalError(f"{problem}; name another path") from error

    def save(self, question: str, answer: ChainAnswer, history: Sequence[Turn] = ()) -> None:
        """Store an answer; a failure is not stored, so that a later run asks again.

        Raises:
            JournalError: if the journal cannot be written.
        """
        if self._journal is not None and answer.error is None:
            self._journal.put(self._key(question, history), answer.to_json())
            if self._closed:  # by a call that outlives its interrupted run
                self.close()

    def close(self) -> None:
        """Close the journal if it was opened from a path."""
        self._closed = True
        if self._owns_journal and self._journal is not None:
            self._journal.close()

    def _key(self, question: str, history: Sequence[Turn]) -> str:
        content = [question, [turn.model_dump() for turn in history]] if history else question
        return journal_key(_KIND, self._fingerprint, content)
