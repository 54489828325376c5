"""StudyRow: the results of one judge with one rubric in a rubric study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_rageval.prompts.criteria import Scale
from langchain_rageval.report.summary import MetricSummary
from langchain_rageval.statistics.agreement import cohen_kappa

HEADINGS = (
    *("judge", "rubric", "mean", "spread", "exact", "within 1", "kappa", "Spearman", "stability"),
    *("failed", "calls", "tokens", "cost"),
)


@dataclass(frozen=True)
class GradeMatch:
    """Agreement of a judge's grades with human grades.

    Attributes:
        pairs: number of grades that both gave.
        exact: share of the pairs that are equal, from 0 to 1; None without pairs.
        within_one: share of the pairs that differ by at most 1, from 0 to 1; None without pairs.
        kappa: Cohen's kappa with quadratic weights; None if all grades of both are equal.
    """

    pairs: int
    exact: float | None = None
    within_one: float | None = None
    kappa: float | None = None

    @classmethod
    def of(cls, pairs: Sequence[tuple[int, int]]) -> GradeMatch:
        """Compute the agreement from pairs of a judge's grade and a human grade."""
        if not pairs:
            return cls(0)
        differences = [abs(grade - label) for grade, label in pairs]
        exact, within_one = (sum(gap <= most for gap in differences) / len(pairs) for most in (0, 1))
        return cls(len(pairs), exact, within_one, cohen_kappa(*zip(*pairs, strict=True), quadratic=True))


@dataclass(frozen=True)
class StudyRow:
    """Results of one judge with one rubric over all sheets.

    Attributes:
        judge: name of the judge.
        rubric: name of the rubric.
        scale: lowest and highest grade; None for a metric that is not a rubric.
        mean: mean of the values, from 0 to 1; None if nothing was scored.
        low: lower end of the 95% interval of the mean.
        high: upper end of the 95% interval of the mean.
        spread: standard deviation of the values; None for fewer than two.
        scored: number of sheets with a value.
        failed: number of sheets whose score failed.
        match: agreement of all grades with the labels; without pairs if the labels have another scale.
        by_criterion: criterion to the agreement of its grades.
        spearman: rank correlation of the values with the labels, over the sheets that have both; None for fewer than
            two sheets, and if either side is constant.
        models: model to the mean of its values, best first; empty if no sheet names its model.
        stability: mean rank correlation (Kendall's tau-b) of the models' means with those of each other row; None for
            a single row or model, and if the means are all equal.
        summary: counts, calls, tokens and seconds, as in `Report.summary`.
        cost: cost in the currency of the price; None without a price, or if the model reports no tokens.
    """

    judge: str
    rubric: str
    scale: Scale | None
    mean: float | None
    low: float | None
    high: float | None
    spread: float | None
    scored: int
    failed: int
    match: GradeMatch
    by_criterion: Mapping[str, GradeMatch]
    spearman: float | None
    models: Mapping[str, float]
    stability: float | None
    summary: MetricSummary
    cost: float | None

    @property
    def order(self) -> tuple[str, ...]:
        """Names of the models in this row, the best mean first."""
        return tuple(self.models)

    @property
    def calls(self) -> int:
        """Number of model calls that this row of the study cost."""
        return self.summary.calls

    @property
    def tokens(self) -> int | None:
        """Number of input and output tokens together; None if the model does not report usage."""
        known = [count for count in (self.summary.input_tokens, self.summary.output_tokens) if count is not None]
        return sum(known) if known else None


def study_cells(row: StudyRow) -> tuple[str, ...]:
    """Return a row of the study as table cells, one for each column of `HEADINGS`."""

    def text(value: float | None, form: str) -> str:
        return "–" if value is None else format(value, form)

    match = row.match
    return (
        *(row.judge, row.rubric, text(row.mean, ".3f"), text(row.spread, ".3f"), text(match.exact, ".0%")),
        *(text(match.within_one, ".0%"), text(match.kappa, ".2f"), text(row.spearman, ".2f")),
        *(text(row.stability, ".2f"), str(row.failed), str(row.calls), text(row.tokens, ","), text(row.cost, ".4f")),
    )


def study_record(row: StudyRow) -> dict[str, Any]:
    """Return a row of the study as a flat dictionary, with agreement by criterion under "<criterion>.exact"."""
    nested = ("match", "by_criterion", "models", "summary")
    record = {name: value for name, value in vars(row).items() if name not in nested} | {"order": row.order}
    record |= {name: getattr(row.match, name) for name in ("pairs", "exact", "within_one", "kappa")}
    record |= {f"{name}.exact": match.exact for name, match in row.by_criterion.items()}
    usage = {name: getattr(row.summary, name) for name in ("calls", "input_tokens", "output_tokens", "seconds")}
    return record | usage
