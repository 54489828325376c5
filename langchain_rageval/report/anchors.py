"""Anchors: rows that did not change between two runs and were judged anew, which show how far the judge has moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random

from langchain_rageval.data.schema import Row
from langchain_rageval.report.pairing import Pair

LEAST_ANCHORS = 20
"""Least number of anchors whose shift can make a verdict undecided."""

_judged = attrgetter("question", "answer", "contexts", "history", "references")


@dataclass(frozen=True)
class JudgeShift:
    """Shift of a judge between two runs, apart from that of the system.

    Attributes:
        difference: mean of candidate minus baseline over the anchors.
        low: lower end of its 95% interval.
        high: upper end of the interval.
        anchors: number of rows that are equal in both runs and whose verdicts were asked anew.
        p_value: two-sided p-value of "the judge has not moved".
    """

    difference: float
    low: float
    high: float
    anchors: int
    p_value: float

    def __str__(self) -> str:
        """Return the shift with its interval and the number of anchors."""
        return f"{self.difference:+.3f} [{self.low:+.3f}, {self.high:+.3f}] on {self.anchors} unchanged rows"


def anchors_of(pairs: Sequence[Pair], again: int, metric: str) -> list[int]:
    """Return the places of the anchors of a metric among pairs of candidate and baseline.

    Args:
        pairs: rows of candidate and baseline; anchors are those with equal question, answer, contexts, history and
            references whose models were asked anew in both. The last pairs are rows that were scored again.
        again: number of the last ones, for which it does not matter whether the baseline's models were asked.
        metric: name of the metric.
    """
    first = len(pairs) - again
    return [
        place
        for place, (own, other) in enumerate(pairs)
        if metric in own.asked
        and (place >= first or metric in other.asked)
        and _judged(own.sample) == _judged(other.sample)
    ]


def rows_to_ask_again(rows: Sequence[Row], n: int, seed: int = 0) -> list[Row]:
    """Draw `n` rows at random, in their order."""
    places = sorted(Random(seed).sample(range(len(rows)), min(n, len(rows))))
    return [rows[place] for place in places]
