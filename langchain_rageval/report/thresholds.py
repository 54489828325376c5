"""Thresholds for the means of a report, as `Report.check` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose, isnan
from typing import Any

from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.metrics.threshold import reaches
from langchain_rageval.report.data import ReportData, check_metric
from langchain_rageval.report.summary import MetricSummary, summarise


def check_thresholds(data: ReportData, thresholds: Mapping[str, float], max_failed: float) -> None:
    """Raise BelowThreshold unless the means reach their thresholds; see `Report.check`."""
    _check_numbers(thresholds, max_failed)
    summary = summarise(data.rows)
    wholly_left_out = {name for _, name in data.left_out} - summary.keys()
    for metric in thresholds:
        if metric not in wholly_left_out:
            check_metric(data, metric)
    problems = [f"{name} has nothing scored, all of it was left out" for name in thresholds if name in wholly_left_out]
    for name, threshold in thresholds.items():
        if name in summary:
            problems += _problems(summary[name], threshold, max_failed)
    if problems:
        raise BelowThreshold("; ".join(problems), threshold=next(iter(thresholds.values())))


def _check_numbers(thresholds: Any, max_failed: Any) -> None:
    if not isinstance(thresholds, Mapping):
        raise ConfigError(f'check takes thresholds by metric, such as {{"faithfulness": 0.8}}, got {thresholds!r}')
    for name, threshold in thresholds.items():
        if not isinstance(threshold, int | float) or isnan(threshold):
            raise ConfigError(f"the threshold of {name} must be a number, got {threshold!r}")
    if not isinstance(max_failed, int | float) or not 0 <= max_failed <= 1:
        raise ConfigError(f"max_failed must be a share from 0 to 1, got {max_failed!r}")


def _problems(metric: MetricSummary, threshold: float, max_failed: float) -> list[str]:
    problems = []
    required = f"at {'least' if metric.direction == 'higher' else 'most'} {threshold:g} is required"
    if metric.mean is None:
        problems.append(f"{metric.metric} has nothing scored, {required}")
    elif not reaches(metric.mean, threshold, metric.direction) and not isclose(metric.mean, threshold, abs_tol=1e-9):
        problems.append(f"{metric.metric} is {metric.mean:.3f} {metric.interval}, {required}")
    count = metric.scored + metric.unscored + metric.failed
    if metric.failed > max_failed * count:
        problems.append(f"{metric.metric} failed on {metric.failed} of {count} samples, at most {max_failed:.0%} may")
    return problems
