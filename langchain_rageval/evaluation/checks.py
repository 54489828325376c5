"""Checks of a run for its notes: means over unlike scores, and samples that are turns of one conversation."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from langchain_rageval.data.schema import Row
from langchain_rageval.metrics.context_precision import AUTO_CHOICE, AgainstText
from langchain_rageval.report.summary import conversation_of, count_conversations

log = logging.getLogger("langchain_rageval")


class MixedMeasures:
    """Counts of what `context_precision(against="auto")` compared chunks with: reference, answer or question.

    Counted for each metric name; a metric with several such choices in one run gets a note.
    """

    def __init__(self) -> None:
        self._counts: dict[str, Counter[str]] = {}

    def add(self, row: Row) -> None:
        """Count, by metric, whether the chunks of a finished row were compared with reference, answer or question."""
        for name, score in row.scores.items():
            for finding in score.findings[-1:]:  # the choice is the last finding
                if (
                    finding.kind == "criterion"
                    and finding.text == AUTO_CHOICE
                    and finding.verdict in get_args(AgainstText)
                ):
                    self._counts.setdefault(name, Counter())[finding.verdict] += 1

    def notes(self) -> Iterator[str]:
        """Yield a warning for each metric that compared chunks with different kinds of text in one run."""
        for name, grounds in self._counts.items():
            if len(grounds) > 1:
                counts = ", ".join(f"{count} against the {ground}" for ground, count in grounds.most_common())
                yield f"{name} judged {counts}: its mean mixes different measures; set against=... to use one of them."

    def warn(self) -> None:
        """Log the notes as warnings."""
        for note in self.notes():
            log.warning("%s", note)


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
