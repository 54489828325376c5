"""Sentences that say why scores are missing: the failures and the unscored samples of a run, by cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from langchain_rageval.data.schema import Row, Score

_MOST_CAUSES = 3
_LONGEST = 300  # characters of a message


@dataclass
class _Cause:
    count: int = 0
    metrics: dict[str, None] = field(default_factory=dict)
    sample: str = ""
    message: str = ""

    def add(self, row: Row, metric: str, score: Score) -> None:
        self.sample = self.sample or row.sample.id
        self.message = self.message or (score.failure.message if score.failure else "")
        self.count += 1
        self.metrics[metric] = None


def missing_scores(rows: Iterable[Row]) -> list[str]:
    """Return a line for each cause of missing scores: failures first, most frequent cause first, at most three each.

    Failures have one cause if they have the same error in the same step; the line quotes the first message.
    """
    failed: dict[str, _Cause] = {}
    unscored: dict[str, _Cause] = {}
    for row in rows:
        for name, score in row.scores.items():
            if score.failure is not None:
                step = f" in {score.failure.step}" if score.failure.step else ""
                failed.setdefault(score.failure.error + step, _Cause()).add(row, name, score)
            elif score.unscored is not None:
                unscored.setdefault(score.unscored, _Cause()).add(row, name, score)
    lines = [*_lines("Failed", failed), *_lines("Unscored", unscored)]
    return [" ".join(line.split()) for line in lines]


def _lines(outcome: str, causes: Mapping[str, _Cause]) -> Iterator[str]:
    ordered = sorted(causes.items(), key=lambda item: -item[1].count)
    for name, cause in ordered[:_MOST_CAUSES]:
        line = f"{outcome}: {cause.count} of {', '.join(cause.metrics)}: {_cut(name)}, first in sample {cause.sample!r}"
        yield f"{line}: {_cut(cause.message)}" if cause.message else line
    if others := ordered[_MOST_CAUSES:]:
        yield f"{outcome}: {sum(cause.count for _, cause in others)} for other causes"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
