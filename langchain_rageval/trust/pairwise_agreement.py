"""pairwise_agreement: how often a metric prefers the sample that is known to be the better one of a pair.

Source: the WikiEval protocol of Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 4. Ties count half and are reported separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isclose
from typing import Any, Literal, Unpack

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.inputs import AnyMetric, flatten_metrics
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, EvaluateOptions
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.html_table import html_table
from langchain_rageval.report.report import Report
from langchain_rageval.run.options import fill_defaults
from langchain_rageval.statistics.agreement import share

PairOutcome = Literal["win", "tie", "loss", "unscored"]

_TOLERANCE = 1e-9  # for rounding errors
_POINTS: dict[PairOutcome, float] = {"win": 1.0, "tie": 0.5, "loss": 0.0}


@dataclass(frozen=True, repr=False)
class PairwiseAgreement:
    """Agreement of a metric with known preferences between pairs of samples.

    Attributes:
        metric: name of the metric.
        wins: number of pairs in which the better sample has the better value.
        ties: number of pairs with equal values.
        losses: number of pairs in which the worse sample has the better value.
        unscored: number of pairs in which a sample has no value; they are excluded from `agreement`.
        agreement: share of the scored pairs that are wins, with ties counted half, from 0 to 1; None if all pairs are
            unscored.
        low: lower end of its 95% interval (Wilson); None if all pairs are unscored.
        high: upper end of its 95% interval; None if all pairs are unscored.
        outcomes: outcome of each pair, in order.
        notes: the unscored samples with the reasons, and the report's notes.
        report: rows of the samples, alternately better and worse, as far as the run got.
    """

    metric: str
    wins: int
    ties: int
    losses: int
    unscored: int
    agreement: float | None
    low: float | None
    high: float | None
    outcomes: list[PairOutcome]
    notes: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report([]))

    def __repr__(self) -> str:
        """Return the result as text: a line with the agreement and the counts, and the notes."""
        line = f"{self.metric}: {self._format_agreement()}, {self._format_counts()}"
        return "\n".join([line, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """Return an HTML table of the agreement and the counts, for notebooks."""
        cells = (self._format_agreement(), self._format_counts())
        return html_table(f"Agreement of {self.metric}", ("agreement", "pairs"), [cells], self.notes)

    def _format_agreement(self) -> str:
        return "–" if self.agreement is None else f"{self.agreement:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def _format_counts(self) -> str:
        counts = {"wins": self.wins, "ties": self.ties, "losses": self.losses, "unscored": self.unscored}
        return ", ".join(f"{count} {name}" for name, count in counts.items())


def pairwise_agreement(
    metric: AnyMetric,
    pairs: Iterable[tuple[Any, Any]],
    **options: Unpack[EvaluateOptions],
) -> PairwiseAgreement:
    """Count the pairs in which a metric gives the better sample the better value.

    Args:
        metric: a Runnable that returns one Score; where lower is better, the lower value wins.
        pairs: pairs of the better and the worse sample, each in any form that `Sample.parse` reads, such as a sample
            and a variant from `degrade`.
        **options: options of `evaluate`; pairs that do not fit the `budget` are unscored.

    Returns:
        The numbers of wins, ties, losses and unscored pairs, and the agreement with its interval.

    Raises:
        ConfigError: if there are no pairs, an item is not a pair, or the metric returns several scores.
        SampleError: if a sample lacks what the metric reads.
    """
    name, *more = [name for part in flatten_metrics(metric) for name in names_of(part)]
    if more:
        raise ConfigError(f"pairwise_agreement takes one metric, got {name}, {', '.join(more)}")
    samples = [sample for place, pair in enumerate(pairs, 1) for sample in _parse_pair(place, pair)]
    if not samples:
        raise ConfigError("pairwise_agreement takes at least one pair of a better and a worse sample, got none")
    report = evaluate(samples, metric, **fill_defaults(pairwise_agreement, options, EVALUATE_DEFAULTS))
    return _count_outcomes(name, samples, report)


def _parse_pair(place: int, pair: Any) -> list[Sample]:
    """Return the better and the worse sample of a pair, with distinct ids."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"pair {place}: expected a better and a worse sample, got {type(pair).__name__}")
    sides = zip(("better", "worse"), map(Sample.parse, pair), strict=True)
    return [sample.model_copy(update={"id": f"{place}.{side}@{sample.id}"}) for side, sample in sides]


def _count_outcomes(metric: str, samples: Sequence[Sample], report: Report) -> PairwiseAgreement:
    scores = {row.index: score for row in report.rows for score in row.scores.values()}
    outcomes = [_outcome(scores.get(place), scores.get(place + 1)) for place in range(0, len(samples), 2)]
    notes = [
        f"{samples[place].id} has no value: {scores[place].comment if place in scores else 'it was left out'}"
        for place in range(len(samples))
        if place not in scores or scores[place].value is None
    ]
    agreed = share([_POINTS[outcome] for outcome in outcomes if outcome != "unscored"])
    return PairwiseAgreement(
        metric,
        wins=outcomes.count("win"),
        ties=outcomes.count("tie"),
        losses=outcomes.count("loss"),
        unscored=outcomes.count("unscored"),
        agreement=agreed.value,
        low=agreed.low,
        high=agreed.high,
        outcomes=outcomes,
        notes=[*report.notes, *notes],
        report=report,
    )


def _outcome(better: Score | None, worse: Score | None) -> PairOutcome:
    if better is None or worse is None or better.value is None or worse.value is None:
        return "unscored"
    if isclose(better.value, worse.value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE):
        return "tie"
    return "win" if (better.value > worse.value) == (better.direction == "higher") else "loss"
