"""HTML page of a trend: a curve for each metric, the means of each period, and the worst samples of each period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nsmallest
from itertools import zip_longest
from pathlib import Path
from typing import Any

import yaml

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.page import PageLanguage
from langchain_rageval.data.schema import Row
from langchain_rageval.report.data import ReportData
from langchain_rageval.report.page import Page, page_texts, read_template, render_page
from langchain_rageval.report.trend_chart import TrendChart, trend_charts
from langchain_rageval.report.trend_data import TrendData

_WORST = 10
"""Number of samples listed for each period and metric."""


def write_trend_page(trend: TrendData, path: str | Path, *, language: PageLanguage) -> None:
    """Write the page; see `Trend.to_html`."""
    worst = {period: _worst(rows, trend.metrics) for period, rows in trend.rows.items()}
    rows = [row for found in reversed([*worst.values()]) for row in found]
    chosen, words, notes = page_texts(language, rows)
    own = yaml.safe_load(read_template("trend_words.yaml"))[chosen]
    render_page(
        path, "trend.html", TrendPage(ReportData(rows), None, None, {**words, **own}, notes, trend, worst), chosen
    )


@dataclass(frozen=True)
class TrendPage(Page):
    """Values that the template of the page of a trend reads.

    Attributes:
        trend: the trend.
        worst: period to its worst samples; `report` holds them all, the last period first.
    """

    trend: TrendData
    worst: Mapping[str, Sequence[Row]]

    @property
    def headline(self) -> str:
        """Result of the trend in one sentence."""
        texts = self.words["trend_headlines"]
        if self.trend.alarms:
            return str(texts["drifted"].format(metrics=", ".join(self.trend.alarms)))
        return str(texts["watched" if self.trend.baseline is None else "stable"])

    @cached_property
    def charts(self) -> list[TrendChart]:
        """Charts of the metrics, those with an alarm first."""
        return sorted(trend_charts(self.trend), key=lambda chart: chart.alarm is None)

    @property
    def columns(self) -> Mapping[str, int]:
        """Mapping of the metrics to their columns in the table of samples."""
        return {name: place for place, name in enumerate(self.summary)}

    @property
    def count(self) -> int:
        """Number of samples of all periods."""
        return sum(map(len, self.trend.rows.values()))

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Times of the first and of the last row."""
        times = [row.time for rows in self.trend.rows.values() for row in rows if row.time is not None]
        return min(times), max(times)

    @property
    def period_names(self) -> Sequence[str]:
        """Names of the periods, in order of time."""
        return list(self.trend.periods)

    @property
    def period_places(self) -> Sequence[int]:
        """Place of the period of each sample in `period_names`."""
        places = {period: place for place, period in enumerate(self.trend.periods)}
        return [places[period] for period, rows in reversed([*self.worst.items()]) for _ in rows]

    @property
    def style(self) -> str:
        """Text of the style sheet (CSS) of the page."""
        return super().style + read_template("trend.css")


def _worst(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return the ten rows with the worst values of each metric, without repetition, the worst first."""
    ranked = [nsmallest(_WORST, _badness(rows, metric), key=lambda pair: pair[0]) for metric in metrics]
    found = {id(pair[1]): pair[1] for pairs in zip_longest(*ranked) for pair in pairs if pair is not None}
    return list(found.values())


def _badness(rows: Sequence[Row], metric: str) -> Iterator[tuple[Any, Row]]:
    for row in rows:
        score = row.scores.get(metric)
        if score is not None and score.value is not None:
            yield -score.value if score.direction == "lower" else score.value, row
