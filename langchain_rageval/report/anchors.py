"""Anchors: rows that did not change between two runs and were judged anew, which show how far the judge has moved."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from random import Random

from langchain_rageval._internal.code_identity import content_digest
from langchain_rageval.data.schema import Direction, Row
from langchain_rageval.report.metric_comparison import MetricComparison, Verdict, compare_metric, with_verdicts
from langchain_rageval.report.pairing import Pair, pair_rows
from langchain_rageval.report.units import AUTO, By, Units
from langchain_rageval.statistics import holm

LEAST_ANCHORS = 20
"""Least number of anchors whose shift can make a verdict undecided."""

SHIFT_ALPHA = 0.01
"""Level of the tests of the shifts of judges, Holm-adjusted over the metrics."""

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


def judge_shifts(
    pairs: Sequence[Pair], again: Sequence[Pair], directions: Mapping[str, Direction], cluster: By | None = AUTO
) -> dict[str, JudgeShift]:
    """Return the shift of the judge of each metric that has enough anchors.

    Args:
        pairs: rows of candidate and baseline; anchors are those with equal question, answer, contexts, history and
            references whose models were asked anew in both.
        again: rows that were scored again, and those of the baseline, for which it does not matter whether the models
            were asked.
        directions: metrics of both runs, with "higher" or "lower", whichever is better.
        cluster: what groups dependent samples.
    """
    every = [*pairs, *again]
    equal = [place for place, (own, its) in enumerate(every) if _judged(own.sample) == _judged(its.sample)]
    units, shifts = Units((row.sample for row, _ in every), cluster) if equal else Units(), {}
    for name, direction in directions.items():
        own = [at for at in equal if name in every[at][0].asked and (at >= len(pairs) or name in every[at][1].asked)]
        if len(own) < LEAST_ANCHORS:
            continue
        found = compare_metric(name, direction, [every[place] for place in own], units.groups(own))
        if found.pairs >= LEAST_ANCHORS and found.difference is not None:
            ends = (found.low or 0.0, found.high or 0.0)
            p_value = 1.0 if found.p_unadjusted is None else found.p_unadjusted
            shifts[name] = JudgeShift(found.difference, *ends, found.pairs, p_value)
    return shifts


def equal_rows(candidate: Sequence[Row], baseline: Sequence[Row]) -> list[Pair]:
    """Return pairs of rows of two runs over different samples with equal question, answer, contexts and history.

    Rows are paired by id, see `pair_rows`; the others by their texts, of which rows that are alike give one pair.
    """
    ours, theirs = list(candidate), list(baseline)
    pairs = [(own, its) for own, its in pair_rows(ours, theirs).pairs if _judged(own.sample) == _judged(its.sample)]
    paired = {id(row) for pair in pairs for row in pair}
    own, its = (
        {content_digest(repr(_judged(row.sample))): row for row in rows if row.asked and id(row) not in paired}
        for rows in (ours, theirs)
    )
    return [*pairs, *((row, its[content]) for content, row in own.items() if content in its)]


def moved_verdicts(
    metrics: Sequence[MetricComparison],
    shifts: Mapping[str, JudgeShift],
    margin: float,
    shifted: Callable[[MetricComparison, float], MetricComparison],
) -> dict[str, Collection[Verdict]]:
    """Return by metric the verdicts with its difference moved by each end of the judge's shift, if one verdict changes.

    An inconclusive verdict claims nothing: it counts as changed only if the judge has moved significantly.

    Args:
        metrics: comparisons with verdicts.
        shifts: shift of the judge by metric.
        margin: margin of the comparison.
        shifted: returns the comparison of a metric without verdict, with a shift subtracted from the difference.
    """
    if not shifts:
        return {}
    adjusted = dict(zip(shifts, holm([shift.p_value for shift in shifts.values()]), strict=True))
    ends: list[list[MetricComparison]] = []
    for end in ("low", "high"):
        by = {name: float(getattr(shift, end)) for name, shift in shifts.items()}
        ends.append(with_verdicts([shifted(one, by.get(one.metric, 0.0)) for one in metrics], margin))
    found: dict[str, Collection[Verdict]] = {}
    for metric, *others in zip(metrics, *ends, strict=True):
        is_claim = metric.verdict in ("better", "worse", "no worse")
        verdicts = {one.verdict for one in others} - {metric.verdict}
        if verdicts and (is_claim or adjusted.get(metric.metric, 1.0) < SHIFT_ALPHA):
            found[metric.metric] = verdicts
    return found


def rows_to_ask_again(rows: Sequence[Row], n: int, seed: int = 0) -> list[Row]:
    """Draw `n` rows at random, in their order."""
    places = sorted(Random(seed).sample(range(len(rows)), min(n, len(rows))))
    return [rows[place] for place in places]
