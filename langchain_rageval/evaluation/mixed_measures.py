"""Grounds: what `context_precision(against="auto")` chose for each sample of a run.

Scores against a reference and against the question alone mean different things, so a mean over both is worth a warning.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import get_args

from langchain_rageval.data.schema import Row
from langchain_rageval.metrics.context_precision import AUTO_CHOICE, AgainstText

log = logging.getLogger("langchain_rageval")


class MixedMeasures:
    """Counts the choices, metric by metric."""

    def __init__(self) -> None:
        self._chosen: dict[str, Counter[str]] = {}

    def see(self, row: Row) -> None:
        """Take note of a finished row."""
        for name, score in row.scores.items():
            for finding in score.findings[-1:]:  # it stands last
                known = finding.verdict in get_args(AgainstText)
                if finding.kind == "criterion" and finding.text == AUTO_CHOICE and known:
                    self._chosen.setdefault(name, Counter())[finding.verdict] += 1

    def notes(self) -> Iterator[str]:
        """A sentence for each metric whose choice differed."""
        for name, chosen in self._chosen.items():
            if len(chosen) > 1:
                counts = ", ".join(f"{count} against the {ground}" for ground, count in chosen.most_common())
                yield f"{name} judged {counts}: its mean mixes different measures; say against=... to choose one."

    def warn(self) -> None:
        """Log the notes."""
        for note in self.notes():
            log.warning("%s", note)
