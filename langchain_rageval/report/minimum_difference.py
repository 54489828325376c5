"""Minimum detectable difference between a report and a later one."""

from __future__ import annotations

from math import sqrt
from statistics import fmean, stdev

from langchain_rageval.errors import ConfigError
from langchain_rageval.report.comparison import values_of_pairs
from langchain_rageval.report.data import ReportData, check_metric
from langchain_rageval.statistics import detectable_difference


def minimum_difference(
    data: ReportData, metric: str, power: float, alpha: float, correlation: float, baseline: ReportData | None
) -> float:
    """Return the smallest detectable difference; see `Report.minimum_detectable_difference`."""
    check_metric(data, metric)
    if not (0 < power < 1 and 0 < alpha < 1 and -1 <= correlation < 1):
        raise ConfigError(
            "power and alpha lie between 0 and 1, correlation from -1 to below 1; "
            f"got {power!r}, {alpha!r}, {correlation!r}"
        )
    if baseline is None:
        scores = (row.scores[metric].value for row in data.rows if metric in row.scores)
        values, ends, factor = [value for value in scores if value is not None], (0.0, 1.0), sqrt(2 - 2 * correlation)
    else:
        check_metric(baseline, metric)
        pairs = values_of_pairs(metric, data.rows, baseline.rows)
        values, ends, factor = [own - other for own, other in pairs], (-1.0, 1.0), 1.0
    if len(values) < 2:
        raise ConfigError(f"{metric}: a spread needs at least two scored samples, got {len(values)}")
    spread, centre = stdev(values) or stdev([*values, *ends]), fmean(values)
    deviation = factor * max(abs(value - centre) for value in values)
    return detectable_difference(factor * spread, len(values), power, alpha, largest_deviation=deviation)
