"""Trend of a run, and its HTML page with a curve for each metric and the worst samples of each period."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import pairwise, zip_longest
from math import ceil, floor, inf, log10
from pathlib import Path
from typing import Any

from langchain_rageval._internal.cached import cached_property
from langchain_rageval._internal.page import PageLanguage, pluralize, printable_lines, shortened
from langchain_rageval.data.notes import code_of
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import BelowThreshold, ConfigError
from langchain_rageval.report.files import ReportData
from langchain_rageval.report.metric_comparison import JudgeShift
from langchain_rageval.report.page import Page, language_of, read_template, render_page
from langchain_rageval.report.summary import MetricSummary, Summary, worst_rows
from langchain_rageval.report.tables import Analysis, html_table, number_text

_LEFT, _WIDTH = 9.0, 89.0
_TOP, _HEIGHT = 4.0, 92.0
_LINES = 4
"""Number of steps that the scale is divided into, about."""
_LABELS = 5
"""Most labels of the time axis."""
_LABEL_DISTANCE = 18.0
_LONGEST_LABEL = 12


@dataclass(frozen=True)
class DriftAlarm:
    """Alarm that a metric has fallen below the baseline.

    Attributes:
        metric: name of the metric.
        raised: time of the row after which the alarm was raised.
        since: time of the row at the estimated beginning of the change.
        mean: mean of the rows from the estimated beginning of the change to the last row.
        baseline: mean of the baseline.
        samples: number of scored rows from the first row that was watched to the one that raised the alarm; dependent
            rows, such as the turns of a conversation, count once a day.
        judge: names of the judges; "" if no name is recorded.
    """

    metric: str
    raised: datetime
    since: datetime
    mean: float
    baseline: float
    samples: int
    judge: str = ""

    def __str__(self) -> str:
        """Return the alarm as a sentence."""
        by = f", by {self.judge}" if self.judge else ""
        return (
            f"{self.metric} has drifted{by}: {self.mean:.3f} since {self.since:%Y-%m-%d %H:%M} UTC, "
            f"{self.baseline:.3f} in the baseline; raised on {self.raised:%Y-%m-%d %H:%M} UTC after "
            f"{pluralize(self.samples, 'sample')}"
        )


@dataclass(frozen=True)
class MeanChange:
    """Estimated change of the mean of one metric.

    Attributes:
        metric: name of the metric.
        since: time of the first row after the change.
        before: mean of the rows before this change, back to the previous change or the first row.
        after: mean of the rows from this change to the next change or the last row.
    """

    metric: str
    since: datetime
    before: float
    after: float

    def __str__(self) -> str:
        """Return the change as a sentence."""
        return (
            f"{self.metric} changed from {self.before:.3f} to {self.after:.3f} on {self.since:%Y-%m-%d %H:%M} UTC "
            "(estimate)"
        )


@dataclass(repr=False)
class Trend(Analysis[Summary]):
    """Trend of a run: mapping of each period (such as a day) to the summary of its rows, in order of time.

    Attributes:
        periods: mapping of the name of each period to its summary.
        rows: mapping of the name of each period to its rows.
        baseline: summary of the baseline; None without a baseline.
        alarms: mapping of each metric that fell below the baseline to its alarm.
        by: what defines a period: "day", "week" or the name of a tag.
        error: probability of finding any change if there is none, over all metrics together.
        notes: what a reader should know, such as that the baseline has other questions.
        changes: mapping of a metric to the estimated changes of its mean, in order of time; only metrics with changes.
        judge_shift: mapping of a metric to the shift of its judge: the mean change of the judge's scores since the
            baseline on rows whose texts are equal in both runs.
    """

    periods: Mapping[str, Summary]
    rows: Mapping[str, Sequence[Row]]
    baseline: Summary | None
    alarms: Mapping[str, DriftAlarm]
    by: str
    error: float
    notes: Sequence[str]
    changes: Mapping[str, Sequence[MeanChange]] = field(default_factory=dict)
    judge_shift: Mapping[str, JudgeShift] = field(default_factory=dict)
    title = "Trend"

    def __post_init__(self) -> None:
        """Make the periods the results of the mapping."""
        super().__init__(self.periods, self.notes)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        return list(dict.fromkeys(name for summary in self.periods.values() for name in summary))

    def to_html(self, path: str | Path, *, language: PageLanguage = "auto") -> None:
        """Write the trend as one HTML page that works offline: a curve for each metric, and the worst samples.

        The page holds the ten worst samples of each period and metric, with their verdicts. Each point of a curve links
        to the worst samples of the period.

        Args:
            path: path of the file.
            language: language of the page's own texts, "en" or "ru"; by default the language of most questions.

        Raises:
            ConfigError: if jinja2 is not installed, or the language is invalid.
        """
        worst = {period: _worst(rows, self.metrics) for period, rows in reversed([*self.rows.items()])}
        rows = [row for found in worst.values() for row in found]
        names, chosen = list(self.periods), language_of(language, rows)
        places = [names.index(period) for period, found in worst.items() for _ in found]
        render_page(path, TrendPage(ReportData(rows), chosen, period_names=names, period_places=places, trend=self))

    def check(self) -> None:
        """Raise an error if a metric has drifted, which means that it has an alarm in `alarms`.

        `trend` raises an alarm if a metric has become worse than in the baseline. Without a baseline there is no alarm,
        and the check passes.

        Raises:
            BelowThreshold: if a metric has drifted; the message names every drifted metric.
            ConfigError: if the baseline has too few scores to watch any metric.
        """
        for note in self.notes:
            if code_of(note) == "nothing-watched":
                raise ConfigError(note)
        if self.alarms:
            raise BelowThreshold("; ".join(map(str, self.alarms.values())))

    def __repr__(self) -> str:
        """Return the trend as text: one line for each period, the alarms and the notes."""
        lines = [" · ".join(filter(None, cells)) for cells in self.cells()]
        return printable_lines("\n".join([*lines, *self.findings, *(f"Note: {note}" for note in self.notes)]))

    def _repr_html_(self) -> str:
        """Return the trend as an HTML table, for notebooks."""
        return html_table(self.title, self.headings, self.cells(), [*self.findings, *self.notes])

    @property
    def findings(self) -> list[str]:
        """Sentences on the results, one for each alarm and each change of a mean."""
        changes = (change for found in self.changes.values() for change in found)
        return [*map(str, self.alarms.values()), *map(str, changes)]

    @property
    def headings(self) -> Sequence[str]:
        """Headings of the columns of the table."""
        return ["period", "samples", *self.metrics]

    def cells(self) -> list[tuple[str, ...]]:
        """Return a tuple of texts for each period, and for the baseline: name, samples, and the mean of each metric."""
        named = dict(self.periods) if self.baseline is None else {"baseline": self.baseline, **self.periods}
        counts = {name: max((one.scored for one in summary.values()), default=0) for name, summary in named.items()}
        return [
            (name, str(counts[name]), *map(_mean, map(summary.get, self.metrics))) for name, summary in named.items()
        ]


def _mean(metric: MetricSummary | None) -> str:
    return "–" if metric is None else f"{number_text(metric.mean)} {metric.interval}".rstrip()


def trend_charts(trend: Trend) -> list[dict[str, Any]]:
    """Return the charts of a trend, one for each metric, with distances in percent of the chart's size.

    The keys of a chart are:

        * `metric` and `direction`: name of the metric, and "higher" or "lower", whichever is better;
        * `points`: a mapping for each period with a mean, in order of time: `place` and `period` (number, from 0, and
          name of the period), `metric` (its summary), `x` and `y` (of the mean, from the left and the top edge), `top`
          and `bottom` (ends of the interval, or None), and `drifted`: True if the metric has an alarm, and the
          estimated beginning of the fall is in this period or an earlier one;
        * `lines`: pairs of consecutive points, which the page joins;
        * `grid`: tuples of a horizontal line's distance from the top edge and its label;
        * `labels`: labels of the time axis, each a tuple: distance from the left edge, text, alignment, and True if a
          narrow page omits the label;
        * `baseline`: summary of the baseline, or None; `base`: distances of its mean and of both ends of its interval
          (or None) from the top edge;
        * `alarm`: alarm about the metric; `since` and `raised`: distances from the left edge to the beginning of the
          drift and to the alarm; None without an alarm;
        * `changes`: tuples of the distance from the left edge and the change of the mean.
    """
    slots = _slots(trend)
    return [_chart(trend, name, slots) for name in trend.metrics]


def _chart(trend: Trend, name: str, slots: Mapping[str, int]) -> dict[str, Any]:
    known = {period: summary[name] for period, summary in trend.periods.items() if name in summary}
    baseline = None if trend.baseline is None else trend.baseline.get(name)
    means = [one for one in (*known.values(), *([baseline] if baseline else [])) if one.mean is not None]
    grid = _scale([value for one in means for value in (one.mean, one.low, one.high) if value is not None])
    alarm = trend.alarms.get(name)
    since = _slot_at(trend, name, alarm.since, slots) if alarm else inf

    def y(value: float | None) -> float | None:
        low, high = grid[0][0], grid[-1][0]
        return None if value is None else _TOP + _HEIGHT * (high - value) / (high - low)

    def x(slot: float) -> float:
        return _LEFT + _WIDTH * slot / (max(slots.values()) + 1)

    places = {period: (place, x(slots[period] + 0.5)) for place, period in enumerate(trend.periods)}
    points = [
        {"place": places[period][0], "period": period, "metric": one, "x": places[period][1], "y": y(one.mean)}
        | {"top": y(one.high), "bottom": y(one.low), "drifted": slots[period] + 1 > since}
        for period, one in known.items()
        if one.mean is not None
    ]
    base = baseline if baseline and baseline.mean is not None else None
    return {
        "metric": name,
        "direction": next(iter(known.values())).direction,
        "points": points,
        "lines": list(pairwise(points)),
        "grid": [(y(value), label) for value, label in grid],
        "labels": _labels({period: place for period, (_, place) in places.items()}),
        "baseline": baseline,
        "base": None if base is None else (y(base.mean), y(base.high), y(base.low)),
        "alarm": alarm,
        "since": x(since) if alarm else None,
        "raised": x(_slot_at(trend, name, alarm.raised, slots)) if alarm else None,
        "changes": [(x(_slot_at(trend, name, one.since, slots)), one) for one in trend.changes.get(name, [])],
    }


def _slots(trend: Trend) -> dict[str, int]:
    """Return the place of each period on the time axis; days and weeks without rows leave a gap."""
    if trend.by not in ("day", "week"):
        return {period: place for place, period in enumerate(trend.periods)}
    length, monday = (1, "") if trend.by == "day" else (7, "-1")
    days = {period: date.fromisoformat(period + monday).toordinal() // length for period in trend.periods}
    return {period: day - min(days.values()) for period, day in days.items()}


def _slot_at(trend: Trend, metric: str, time: datetime, slots: Mapping[str, int]) -> float:
    """Return the place of a row on the time axis: its period, and the share of the period's rows before it."""
    rows = trend.rows.items()
    at = (period for period, own in rows if any(row.time == time and metric in row.scores for row in own))
    period = next(at)
    times = [row.time for row in trend.rows[period] if row.time is not None]
    return slots[period] + bisect_left(times, time) / len(times)


def _scale(values: Sequence[float]) -> list[tuple[float, str]]:
    """Return round numbers with their labels, from below the least value to above the greatest."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    least = (high - low) / _LINES or max(abs(high), 1.0) / 10
    unit = 10.0 ** floor(log10(least))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= least * (1 - 1e-9))
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    if first == last:
        first -= 1
    digits = max(0, -floor(log10(step) + 1e-9))
    return [(step * place, f"{step * place:.{digits}f}") for place in range(first, last + 1)]


def _labels(places: Mapping[str, float]) -> list[tuple[float, str, str, bool]]:
    """Return labels that do not touch, spread over the time axis."""
    first, *_, last = (*places.values(), *places.values())
    labels: list[tuple[float, str, str, bool]] = []
    for number in range(_LABELS):
        target = first + (last - first) * number / (_LABELS - 1)
        period, x = min(places.items(), key=lambda item: abs(item[1] - target))
        if labels and x - labels[-1][0] < _LABEL_DISTANCE:
            continue
        anchor = "end" if x > 85 else "start" if x < 20 else "middle"
        labels.append((x, shortened(period, _LONGEST_LABEL), anchor, number % 2 == 1))
    return labels


_WORST = 10
"""Number of samples listed for each period and metric."""


@dataclass(frozen=True)
class TrendPage(Page):
    """Values for the HTML template of a trend.

    The inherited attribute `report` has only the rows that the page lists: for each period the samples with the ten
    worst values of each metric, the worst first; the last period comes first.

    Attributes:
        trend: the trend.
    """

    trend: Trend = field(kw_only=True)
    template = "trend.html"
    text_files = (*Page.text_files, "trend_words.yaml")

    @property
    def headline(self) -> str:
        """Headline of the page: the names of the metrics with an alarm, or the sentence that no drift was found.

        Without a baseline, the headline is "Means over time" in the language of the page.
        """
        texts = self.words["trend_headlines"]
        if self.trend.alarms:
            return str(texts["drifted"].format(metrics=", ".join(self.trend.alarms)))
        return str(texts["watched" if self.trend.baseline is None else "stable"])

    @cached_property
    def charts(self) -> list[dict[str, Any]]:
        """Charts of the metrics, those with an alarm first."""
        return sorted(trend_charts(self.trend), key=lambda chart: chart["alarm"] is None)

    @property
    def columns(self) -> Mapping[str, int]:
        """Mapping of each metric to the position of its column among the columns of metrics, from 0."""
        return {name: place for place, name in enumerate(self.summary)}

    @property
    def span(self) -> tuple[datetime, datetime]:
        """Times of the first and of the last row."""
        times = [row.time for rows in self.trend.rows.values() for row in rows if row.time is not None]
        return min(times), max(times)

    @property
    def style(self) -> str:
        """Text of the style sheet (CSS) of the page."""
        return super().style + read_template("trend.css")


def _worst(rows: Sequence[Row], metrics: Sequence[str]) -> list[Row]:
    """Return the ten rows with the worst values of each metric, without repetition, the worst first."""
    ranked = [worst_rows(rows, metric, _WORST) for metric in metrics]
    return list({id(row): row for found in zip_longest(*ranked) for row in found if row is not None}.values())
