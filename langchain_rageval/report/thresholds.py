"""Thresholds and gates: what is demanded of a report and of its comparison with a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, isclose, isnan
from typing import Any

from langchain_rageval.data.loading import original_ids
from langchain_rageval.errors import BelowThreshold, ConfigError, RagevalError
from langchain_rageval.metrics.adapters import reaches
from langchain_rageval.report.audit import MetricAudit, summarise_audit
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.files import ReportData, check_metric
from langchain_rageval.report.summary import MetricSummary, summarise

LEAST_SCORED = 5
"""Least number of scored samples for a threshold; in a set of fewer than ten samples, half of them."""


def check_thresholds(
    data: ReportData,
    thresholds: Mapping[str, float],
    max_failed: float,
    max_unscored: float,
    more_problems: Sequence[str] = (),
) -> None:
    """Raise BelowThreshold unless the means reach their thresholds; see `Report.check`.

    Args:
        data: the report.
        thresholds: metric name to its threshold.
        max_failed: highest accepted share of failed samples.
        max_unscored: highest accepted share of samples without a score that did not fail.
        more_problems: other reasons to fail.
    """
    _check_numbers(thresholds, max_failed, max_unscored)
    summary, audit = summarise(data.rows), summarise_audit(data.rows)
    wholly_left_out = {name for _, name in data.left_out} - summary.keys()
    for metric in thresholds:
        if metric not in wholly_left_out:
            check_metric(data, metric)
    problems = [f"{name} has nothing scored, all of it was left out" for name in thresholds if name in wholly_left_out]
    for name, threshold in thresholds.items():
        if name in summary:
            left_out = sum(metric == name for _, metric in data.left_out)
            coverage = _Coverage(_count_scored(data, name), left_out, max_failed, max_unscored)
            problems += _problems(summary[name], threshold, coverage, audit.get(name))
    problems += more_problems
    if problems:
        raise BelowThreshold("; ".join(problems), threshold=next(iter(thresholds.values()), None))


@dataclass(frozen=True)
class _Coverage:
    """Scored samples of a metric, and how many samples may lack a score.

    Attributes:
        scored: number of samples with a score; repeats of one sample count once.
        left_out: number of samples without a score because the budget was spent.
        max_failed: highest accepted share of samples whose score failed.
        max_unscored: highest accepted share of samples that have no score and did not fail.
    """

    scored: int
    left_out: int
    max_failed: float
    max_unscored: float


def _count_scored(data: ReportData, metric: str) -> int:
    """Return the number of scored samples, in which repeats of one sample count once."""
    rows = (row for row in data.rows if metric in row.scores and row.scores[metric].value is not None)
    return len(set(original_ids([(row.sample.id, row.sample.question) for row in rows])))


def _check_numbers(thresholds: Any, max_failed: Any, max_unscored: Any) -> None:
    if not isinstance(thresholds, Mapping):
        raise ConfigError(f'check takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {thresholds!r}')
    for name, threshold in thresholds.items():
        if not isinstance(threshold, int | float) or isnan(threshold):
            raise ConfigError(f"the threshold of {name} must be a number, got {threshold!r}")
    for option, share in (("max_failed", max_failed), ("max_unscored", max_unscored)):
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ConfigError(f"{option} must be a share from 0 to 1, got {share!r}")


def _problems(metric: MetricSummary, threshold: float, coverage: _Coverage, audit: MetricAudit | None) -> list[str]:
    problems = []
    required = f"at {'least' if metric.direction == 'higher' else 'most'} {threshold:g} is required"
    if metric.mean is None:
        problems.append(f"{metric.metric} has nothing scored, {required}")
    elif audit is not None:
        if audit.mean is None:
            problems.append(f"{metric.metric} has no audited score, {required}")
        elif not reaches(audit.mean, threshold, metric.direction) and not isclose(audit.mean, threshold, abs_tol=1e-9):
            found = f"{audit.mean:.3f} {audit.interval}".rstrip()
            by = f"by the audit of {audit.audited} samples ({metric.mean:.3f} by its own judge)"
            problems.append(f"{metric.metric} is {found} {by}, {required}")
    elif not reaches(metric.mean, threshold, metric.direction) and not isclose(metric.mean, threshold, abs_tol=1e-9):
        problems.append(f"{metric.metric} is {metric.mean:.3f} {metric.interval}, {required}")
    if audit is not None and audit.failed > coverage.max_failed * (audit.audited + audit.failed):
        failed = f"failed on {audit.failed} of {audit.audited + audit.failed} samples"
        problems.append(f"the audit of {metric.metric} {failed}, at most {coverage.max_failed:.0%} may")
    count = metric.scored + metric.unscored + metric.failed
    for how, number, most in (
        ("failed on", metric.failed, coverage.max_failed),
        ("is unscored for", metric.unscored, coverage.max_unscored),
    ):
        if number > most * count and (metric.mean is not None or how == "failed on"):
            problems.append(f"{metric.metric} {how} {number} of {count} samples, at most {most:.0%} may")
    count += coverage.left_out  # the budget leaves samples out on purpose, but a few scores still decide nothing
    least = min(LEAST_SCORED, ceil(count / 2))
    if 0 < coverage.scored < least:
        different = "different " if coverage.scored < metric.scored else ""
        scored = f"{metric.metric} scored {coverage.scored} {different}of {count} samples"
        problems.append(f"{scored}, at least {least} are needed to pass")
    return problems


@dataclass(frozen=True)
class GateResult:
    """Result of one gate.

    Attributes:
        metric: name of the metric; "" for a gate on the run as a whole.
        requirement: what is required, such as "mean at least 0.8".
        problem: why the gate fails; "" if it passes.
    """

    metric: str
    requirement: str
    problem: str


def gate_results(
    report: ReportData,
    thresholds: Mapping[str, float],
    max_failed: float,
    max_unscored: float,
    comparison: Comparison | None,
) -> list[GateResult]:
    """Return the result of each threshold and, if there is a comparison, of each metric in it."""
    results = []
    for metric, threshold in thresholds.items():
        direction = _direction(report, metric)
        required = f"mean at {'most' if direction == 'lower' else 'least'} {threshold:g}"
        try:
            check_thresholds(report, {metric: threshold}, max_failed, max_unscored)
        except RagevalError as error:
            results.append(GateResult(metric, required, str(error)))
        else:
            results.append(GateResult(metric, required, ""))
    if comparison is not None:
        results += _comparison_results(comparison)
    return results


def check_gates(results: Sequence[GateResult]) -> None:
    """Raise BelowThreshold if a gate fails; the message names every reason once."""
    if problems := list(dict.fromkeys(result.problem for result in results if result.problem)):
        raise BelowThreshold("; ".join(problems))


def _comparison_results(comparison: Comparison) -> list[GateResult]:
    required = "not worse than the baseline"
    by_metric: dict[str, list[str]] = {name: [] for name in comparison}
    rest: list[str] = []
    for problem in comparison.problems:
        by_metric.get(problem.metric, rest).append(problem)
    if comparison.nothing_compared and not rest:
        rest = ["nothing was compared with the baseline"]
    whole = [GateResult("", "comparable with the baseline", "; ".join(rest))] if rest else []
    return [*(GateResult(name, required, "; ".join(found)) for name, found in by_metric.items()), *whole]


def _direction(report: ReportData, metric: str) -> str:
    scores = (row.scores[metric] for row in report.rows if metric in row.scores)
    return next((score.direction for score in scores), "higher")
