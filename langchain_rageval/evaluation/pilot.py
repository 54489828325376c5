"""Pilot of a run: a few samples scored in earnest, from which the cost of the whole run is estimated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from langchain_rageval.data.schema import Row, Usage
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.evaluation.audit import Audit
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.until import SequentialRun, Until
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.prices import Price

_SIMULATIONS = 20
_LONGEST = 3_000  # samples of one simulation


@dataclass(frozen=True)
class Pilot:
    """Rows of a pilot, in which the strong judge of an audit scored every sample.

    Attributes:
        rows: the rows.
        notes: notes of the report.
    """

    rows: Sequence[Row]
    notes: Sequence[str] = ()

    @classmethod
    def run(
        cls,
        samples: Sequence[Any],
        metrics: Sequence[AnyMetric],
        audit: Audit | None,
        journal: str | Path | Journal | None,
        price: Mapping[str, Price] | Price | None = None,
    ) -> Pilot:
        """Score some samples; scores in the journal cost nothing, and new ones are stored in it."""
        whole = None if audit is None else replace(audit, share=1.0)
        report = evaluate(samples, metrics, audit=whole, journal=journal, price=price, progress=False)
        return cls(report.rows, report.notes)

    def usage(self, name: str, *, of_audit: bool = False) -> Usage:
        """Return the cost of a metric, or of its audit, over the rows."""
        parts = (row.audit if of_audit else row.scores for row in self.rows)
        return sum((scores[name].usage for scores in parts if name in scores), Usage())

    def expected_samples(
        self, until: Until, metrics: Sequence[AnyMetric], size: int, audited: Sequence[AnyMetric], share: float | None
    ) -> float:
        """Return the mean number of samples that a run with a stopping rule is expected to ask about.

        The run is simulated with rows drawn from the pilot. Each simulation draws new weights for them (Bayesian
        bootstrap), so that the estimate allows for the uncertainty of the pilot's mean.

        Args:
            until: the rule.
            metrics: metrics of the run.
            size: number of samples of the run.
            audited: metrics of the audit.
            share: share of the audit; None without one.
        """
        if not self.rows:
            return float(size)
        rng = np.random.default_rng(until.seed)
        names = {name for metric in audited for name in names_of(metric)}
        counts = [self._simulate(until, metrics, size, names, share, rng) for _ in range(_SIMULATIONS)]
        return float(np.mean(counts))

    def _simulate(
        self,
        until: Until,
        metrics: Sequence[AnyMetric],
        size: int,
        audited: set[str],
        share: float | None,
        rng: np.random.Generator,
    ) -> int:
        places: Sequence[None] = [None] * size
        run = SequentialRun(until, places, metrics, 1, audited, share)
        weights = rng.dirichlet(np.ones(len(self.rows)))
        drawn_rows = rng.choice(len(self.rows), size=min(size, _LONGEST), p=weights)
        is_audited = rng.random(len(drawn_rows)) < (share or 0.0)
        asked = 0
        for drawn, number, strong in zip(run, drawn_rows, is_audited, strict=False):
            asked += 1
            row = self.rows[number]
            run.add(row.model_copy(update={"index": drawn.index, "audit": row.audit if strong else {}}))
        return size if asked == _LONGEST else asked
