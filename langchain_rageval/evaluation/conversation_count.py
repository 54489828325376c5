"""Count of the conversations that the samples of a run are turns of, for a note on the intervals of its report."""

from __future__ import annotations

from collections.abc import Iterator

from langchain_rageval.data.schema import Row
from langchain_rageval.report.slices import conversation_of, count_conversations


class ConversationCount:
    """Conversations of a run by the id in the metadata of their samples."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._samples = 0

    def add(self, row: Row) -> None:
        """Count the sample of a finished row if it is a turn of a conversation."""
        if (name := conversation_of(row.sample)) is not None:
            self._ids.add(name)
            self._samples += 1

    def notes(self) -> Iterator[str]:
        """Yield a note if several samples are of one conversation."""
        if len(self._ids) < self._samples:
            yield (
                f"{self._samples} samples are turns of {count_conversations(len(self._ids))}: the intervals treat "
                "conversations, not samples, as independent."
            )
