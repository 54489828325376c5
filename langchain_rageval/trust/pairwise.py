"""pairwise_agreement: how often a metric prefers, of two samples, the one that is known to be better.

Source: the WikiEval protocol of Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 4. Ties count half, and are told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import isclose
from pathlib import Path
from typing import Any, Literal

from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.inputs import AnyMetric, flatten_metrics
from langchain_rageval.metrics.outcome import names_of
from langchain_rageval.report.html_table import html_table
from langchain_rageval.report.report import Report
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.statistics.agreement import share

Outcome = Literal["win", "tie", "loss", "unscored"]

_SAME = 1e-9  # values that rounding has parted
_POINTS: dict[Outcome, float] = {"win": 1.0, "tie": 0.5, "loss": 0.0}


@dataclass(frozen=True, repr=False)
class PairwiseAgreement:
    """How a metric judged pairs of which one is better.

    Attributes:
        metric: its name.
        wins: pairs in which the better sample has the better value.
        ties: pairs with one and the same value.
        losses: pairs in which the worse sample has the better value.
        unscored: pairs of which a side has no value; they count nowhere else.
        agreement: (wins + ties / 2) / (wins + ties + losses); None when all pairs are unscored.
        low: lower end of its 95% interval, Wilson's; None likewise.
        high: its upper end.
        outcomes: of the pairs, in their order.
        notes: which pairs are unscored, and why.
        report: rows of the samples, better and worse in turn, as far as the run came.
    """

    metric: str
    wins: int
    ties: int
    losses: int
    unscored: int
    agreement: float | None
    low: float | None
    high: float | None
    outcomes: list[Outcome]
    notes: list[str] = field(default_factory=list)
    report: Report = field(default_factory=lambda: Report([]))

    def __repr__(self) -> str:
        """The counts, the agreement, and the notes."""
        told = f"{self.metric}: {self._told()}, {self._counts()}"
        return "\n".join([told, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(f"Agreement of {self.metric}", ("agreement", "pairs"), [self._cells()], self.notes)

    def _cells(self) -> tuple[str, str]:
        return self._told(), self._counts()

    def _told(self) -> str:
        return "–" if self.agreement is None else f"{self.agreement:.3f} [{self.low:.3f}, {self.high:.3f}]"

    def _counts(self) -> str:
        counts = {"wins": self.wins, "ties": self.ties, "losses": self.losses, "unscored": self.unscored}
        return ", ".join(f"{count} {name}" for name, count in counts.items())


def pairwise_agreement(
    metric: AnyMetric,
    pairs: Iterable[tuple[Any, Any]],
    *,
    max_concurrency: int = 16,
    timeout: float | None = 60.0,
    retry: RetryPolicy | None = None,
    progress: bool = True,
    callbacks: list[BaseCallbackHandler] | None = None,
    journal: str | Path | Journal | None = None,
    budget: Budget | None = None,
) -> PairwiseAgreement:
    """Count the pairs in which a metric gives the better sample the better value.

    Args:
        metric: a Runnable that returns one Score; where lower is better, the lower value wins.
        pairs: the better sample and the worse one, each anything that `Sample.parse` reads, such as a sample and what
            `degrade` made of it.
        max_concurrency: as of `evaluate`, like all that follow.
        timeout: seconds for one model call.
        retry: of calls that the transport lost.
        progress: show it on stderr.
        callbacks: LangChain callback handlers.
        journal: path of a file that keeps what was paid for.
        budget: what may be spent; pairs that it has no room for are unscored.

    Returns:
        Wins, ties, losses and pairs without a value, and the share of wins with its interval, ties counted half.

    Raises:
        ConfigError: if there are no pairs, one is none, or the metric has several scores.
        SampleError: if a sample lacks what the metric reads.
    """
    name, *more = [name for part in flatten_metrics(metric) for name in names_of(part)]
    if more:
        raise ConfigError(f"pairwise_agreement takes one metric, this one gives {name}, {', '.join(more)}")
    samples = [sample for place, pair in enumerate(pairs, 1) for sample in _two(place, pair)]
    if not samples:
        raise ConfigError("pairwise_agreement takes at least one pair of a better and a worse sample, got none")
    report = evaluate(
        samples,
        metric,
        max_concurrency=max_concurrency,
        timeout=timeout,
        retry=retry,
        progress=progress,
        callbacks=callbacks,
        journal=journal,
        budget=budget,
    )
    return _counted(name, samples, report)


def _two(place: int, pair: Any) -> list[Sample]:
    """Both samples, under ids that tell them apart."""
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise ConfigError(f"pair {place}: expected a better and a worse sample, got {type(pair).__name__}")
    sides = zip(("better", "worse"), map(Sample.parse, pair), strict=True)
    return [sample.model_copy(update={"id": f"{place}.{side}@{sample.id}"}) for side, sample in sides]


def _counted(metric: str, samples: Sequence[Sample], report: Report) -> PairwiseAgreement:
    found = {row.index: score for row in report.rows for score in row.scores.values()}
    outcomes = [_outcome(found.get(place), found.get(place + 1)) for place in range(0, len(samples), 2)]
    notes = [
        f"{samples[place].id} has no value: {found[place].comment if place in found else 'it was left out'}"
        for place in range(len(samples))
        if place not in found or found[place].value is None
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


def _outcome(better: Score | None, worse: Score | None) -> Outcome:
    if better is None or worse is None or better.value is None or worse.value is None:
        return "unscored"
    if isclose(better.value, worse.value, rel_tol=_SAME, abs_tol=_SAME):
        return "tie"
    return "win" if (better.value > worse.value) == (better.direction == "higher") else "loss"
