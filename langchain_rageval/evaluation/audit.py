"""Audit: a strong judge scores a random part of the samples, to check the cheap judge of the metrics."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.runnables import Runnable

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, check_number
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import names_of
from langchain_rageval.report.audit import LEAST_AUDITED


@dataclass(frozen=True)
class Audit:
    """Audit of a cheap judge by a strong judge, which scores a random part of the samples.

    `report.audit` holds an estimate of the mean score that the strong judge would give over all samples, with a
    confidence interval. It also says how far the two judges agree.

    Args:
        judge: the strong judge. In the audit it replaces the judge of each step of a metric, a jury as a whole, and a
            verifier (a cross-encoder that verifies statements in place of the judge).
        share: share of the samples that the strong judge scores, above 0 and at most 1. At least 20 samples are scored,
            or all samples if there are fewer than 20.
        seed: seed of the random choice. The choice depends on the ids of the samples, so that a resumed run chooses the
            same samples.

    Raises:
        ConfigError: if the judge is not a model, or the share or the seed is out of range.
    """

    judge: JudgeLike
    share: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        """Validate the options."""
        expected = "share must be a number above 0 and at most 1, such as 0.1"
        check_number(expected, self.share, lambda share: 0 < share <= 1)
        check_number("seed must be a whole number", self.seed, whole=True)
        if not isinstance(self.judge, Judge | Runnable) and not callable(self.judge):
            by_name = f"; load_judge({self.judge!r}) loads one by its name" if isinstance(self.judge, str) else ""
            raise ConfigError(f"the judge of an audit is a judge or a model, got {type(self.judge).__name__}{by_name}")

    def metrics(self, metrics: Sequence[AnyMetric]) -> tuple[list[Metric], list[str]]:
        """Return copies of the metrics with the strong judge, and the names of metrics that cannot use it.

        Raises:
            ConfigError: if no metric can use the strong judge.
        """
        judge = Judge.of(self.judge)
        audited: list[Metric] = []
        left_out: list[str] = []
        for metric in metrics:
            if isinstance(metric, Metric) and metric.can_be_judged_by_another:
                audited.append(metric.judged_by(judge))
            else:
                left_out += names_of(metric)
        if not audited:
            raise ConfigError(
                f"nothing to audit: {', '.join(left_out)} use no judge that can be replaced; leave out audit="
            )
        return audited, left_out

    def draw(self, samples: Sequence[Sample], *, exact: bool = True) -> frozenset[str]:
        """Return the ids of the samples that the strong judge scores.

        Args:
            samples: all samples.
            exact: True to choose exactly the share of the samples that `share_of` returns, rounded to a whole number of
                samples. False to choose each sample with this share as its probability, independently of the others.
        """
        share, places = self.share_of(len(samples)), {sample.id: _place(sample.id, self.seed) for sample in samples}
        if exact:
            return frozenset(sorted(places, key=places.__getitem__)[: round(share * len(samples))])
        return frozenset(name for name, place in places.items() if place < share)

    def share_of(self, size: int) -> float:
        """Return the ratio of audited samples to `size`: the larger of `share` and 20 / `size`, but at most 1.0."""
        return min(1.0, max(self.share, LEAST_AUDITED / max(1, size)))


def _place(sample_id: str, seed: int) -> float:
    """Return a pseudo-random number from 0 to 1 that only the seed and the id of a sample decide."""
    digest = hashlib.blake2b(f"{seed} {sample_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64
