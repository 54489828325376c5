"""Gates of a run: thresholds and the comparison with a baseline, each with its result, for reports of a CI job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_rageval.errors import BelowThreshold, RagevalError
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.data import ReportData
from langchain_rageval.report.thresholds import check_thresholds


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
        name = next((name for name in by_metric if problem.startswith((f"{name} ", f"{name}:"))), None)
        (rest if name is None else by_metric[name]).append(problem)
    if comparison.nothing_compared and not rest:
        rest = ["nothing was compared with the baseline"]
    whole = [GateResult("", "comparable with the baseline", "; ".join(rest))] if rest else []
    return [*(GateResult(name, required, "; ".join(found)) for name, found in by_metric.items()), *whole]


def _direction(report: ReportData, metric: str) -> str:
    scores = (row.scores[metric] for row in report.rows if metric in row.scores)
    return next((score.direction for score in scores), "higher")
