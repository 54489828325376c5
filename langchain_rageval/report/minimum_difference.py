"""Minimum detectable difference between a report and a later one."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import inf, sqrt
from statistics import fmean, stdev

from langchain_rageval.errors import ConfigError
from langchain_rageval.report.comparison import values_of_pairs
from langchain_rageval.report.data import ReportData, check_metric
from langchain_rageval.statistics import detectable_difference

_LOSSES = [number / 1000 for number in range(1, 1001)]


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
        values, factor = [value for value in scores if value is not None], sqrt(2 - 2 * correlation)
    else:
        check_metric(baseline, metric)
        pairs = values_of_pairs(metric, data.rows, baseline.rows)
        values, factor = [own - other for own, other in pairs], 1.0
    if len(values) < 2:
        raise ConfigError(f"{metric}: a spread needs at least two scored samples, got {len(values)}")
    spread, centre = factor * stdev(values), fmean(values)
    deviation = factor * max(abs(value - centre) for value in values)

    def detectable(spread: float, deviation: float) -> float:
        return detectable_difference(spread, len(values), power, alpha, largest_deviation=deviation)

    found = detectable(spread, deviation)
    if found == inf or 2 * max(Counter(values).values()) <= len(values):
        return found
    lowest = bisect_left(_LOSSES, True, key=lambda loss: detectable(max(spread, _spread_of(loss)), 1 - loss) <= loss)
    return max(found, _LOSSES[lowest]) if lowest < len(_LOSSES) else inf


def _spread_of(loss: float) -> float:
    """Return the standard deviation of differences of which a share is -1 and the others are 0."""
    return sqrt(loss * (1 - loss))
