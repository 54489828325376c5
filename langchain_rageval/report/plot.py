"""Plots of reports: means with intervals, distributions, differences from a baseline and between question types."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from langchain_rageval._internal.plotting import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    draw_text,
    hide_frame,
    label_bars,
    new_figure,
    single_line,
)
from langchain_rageval.errors import ConfigError
from langchain_rageval.report.comparison import Comparison
from langchain_rageval.report.metric_comparison import MetricComparison
from langchain_rageval.report.summary import MetricSummary, Summary, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from langchain_rageval.report.files import ReportData


@dataclass(frozen=True)
class Histogram:
    """Counts of values in ten bins of equal width.

    Attributes:
        edges: the 11 edges of the bins in order, from 0 to 1 unless a value lies outside.
        counts: number of values in each bin; a bin contains its lower edge, and the last one also its upper edge.
    """

    edges: Sequence[float]
    counts: Sequence[int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Histogram:
        """Build the histogram of values; at least one value is required, and all must be finite."""
        low, high = min(0.0, min(values)), max(1.0, max(values))
        counts, edges = np.histogram(np.asarray(values, dtype=np.float64), bins=10, range=(low, high))
        return cls([float(edge) for edge in edges], [int(count) for count in counts])

    @property
    def heights(self) -> list[float]:
        """Heights of the bars, from 0 to 1: each count divided by the greatest count."""
        most = max(self.counts)
        return [count / most for count in self.counts]

    def __str__(self) -> str:
        """Return the histogram as text: the bins that are not empty, such as "0.9–1: 12"."""
        bins = zip(self.edges, self.edges[1:], self.counts, strict=False)
        return ", ".join(f"{low:.3g}–{high:.3g}: {count}" for low, high, count in bins if count)


_COLOURS = {"better": GREEN, "no worse": GREEN, "worse": RED}
_TALL = 0.8
"""Height of the highest bar, as a share of the height of a row."""


def plot_report(data: ReportData, baseline: ReportData | None, comparison: Comparison | None) -> Figure:
    """Return a figure with the mean and interval of each metric, and the distribution of its values; see `Report.plot`.

    With a baseline, the figure also shows the means of the baseline; with a comparison, the differences and verdicts.
    ConfigError is raised if the report has no scores.
    """
    summary = summarise(data.rows)
    if not summary:
        raise ConfigError("there is nothing to plot: the report has no scores")
    panels = 2 if comparison is None else 3
    figure = new_figure(3.6 * panels + 1.6, 1.3 + 0.62 * len(summary))
    means, spread, *more = figure.subplots(1, panels, sharey=True)
    _draw_means(means, summary, summarise(baseline.rows) if baseline else None)
    _draw_spread(spread, values_of(data))
    for axes in more:
        _draw_differences(axes, list(summary), comparison)
    label_bars(means, [_label(metric) for metric in summary.values()])
    return figure


def values_of(data: ReportData) -> Mapping[str, Sequence[float]]:
    """Return the values of each metric, by metric name in the order of the summary. Rows on disk are read once."""
    values: dict[str, array[float]] = {}
    for row in data.rows:
        for name, score in row.scores.items():
            of_metric = values.setdefault(name, array("d"))
            if score.value is not None:
                of_metric.append(score.value)
    return values


def _label(metric: MetricSummary) -> str:
    count = metric.scored + metric.unscored + metric.failed
    name = single_line(metric.metric, 30) + (" ↓" if metric.direction == "lower" else "")
    return f"{name}\n{metric.scored} of {count} scored" + (f", {metric.failed} failed" if metric.failed else "")


def _draw_means(axes: Axes, summary: Summary, before: Summary | None) -> None:
    axes.set_title("mean, 95% interval", loc="left")
    aside = 0.15 if before else 0.0
    for place, metric in enumerate(summary.values()):
        _draw_mean(axes, metric, place - aside, BLUE, "o", above=True)
        if before and metric.metric in before:
            _draw_mean(axes, before[metric.metric], place + aside, GREY, "D", above=False)
    if before:
        for marker, colour, label in (("o", BLUE, "this report"), ("D", GREY, "baseline")):
            axes.plot([], [], marker=marker, color=colour, linestyle="", label=label)
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12 - 0.25 / len(summary)), ncols=2, frameon=False)
    axes.set_xlim(min(0.0, axes.get_xlim()[0]), max(1.0, axes.get_xlim()[1]))
    axes.grid(axis="x", alpha=0.3)
    hide_frame(axes)


def _draw_mean(axes: Axes, metric: MetricSummary, height: float, colour: str, marker: str, *, above: bool) -> None:
    if metric.mean is None:
        draw_text(axes, 0.5, height, "no score", ha="center", va="center", color=colour, style="italic")
        return
    if metric.low is not None and metric.high is not None:
        axes.plot([metric.low, metric.high], [height, height], color=colour, linewidth=2)
    axes.plot([metric.mean], [height], marker=marker, color=colour, markersize=7)
    y, va = (height - 0.16, "bottom") if above else (height + 0.14, "top")
    draw_text(axes, metric.mean, y, f"{metric.mean:.2f}", ha="center", va=va, color=colour, size="small")


def _draw_spread(axes: Axes, spread: Mapping[str, Sequence[float]]) -> None:
    axes.set_title("values of the samples", loc="left")
    for place, values in enumerate(spread.values()):
        if values:
            drawn = Histogram.of(values)
            low, *_, high = drawn.edges
            width = (high - low) / len(drawn.counts)
            tall = [_TALL * height for height in drawn.heights]
            floor = place + _TALL / 2
            axes.bar(drawn.edges[:-1], [-height for height in tall], width * 0.92, floor, align="edge", color=BLUE)
            axes.plot([low, high], [floor, floor], color=GREY, linewidth=0.6)
    axes.tick_params(axis="y", labelleft=False)
    hide_frame(axes)


def _draw_differences(axes: Axes, names: Sequence[str], comparison: Comparison | None) -> None:
    axes.set_title("difference from the baseline", loc="left")
    axes.axvline(0, color=GREY, linewidth=1)
    for place, name in enumerate(names):
        metric = comparison.get(name) if comparison else None
        why = "not compared" if metric is None else str(metric.verdict)
        _draw_difference(axes, place, metric, "{0.difference:+.2f} {0.verdict}", why)
    _centre(axes)
    axes.locator_params(axis="x", nbins=5)
    axes.tick_params(axis="y", labelleft=False)


def _draw_difference(
    axes: Axes, place: int, metric: MetricComparison | None, form: str, otherwise: str, undecided: str = ORANGE
) -> None:
    """Draw the difference of a metric with its interval and a text above it; without a difference, another text."""
    if metric is None or metric.difference is None:
        draw_text(axes, 0, place, otherwise, ha="center", va="center", color=GREY, style="italic")
        return
    colour = _COLOURS.get(metric.verdict, undecided)
    axes.plot([metric.low or 0.0, metric.high or 0.0], [place, place], color=colour, linewidth=2)
    axes.plot([metric.difference], [place], marker="o", color=colour, markersize=7)
    draw_text(axes, metric.difference, place - 0.16, form.format(metric), ha="center", va="bottom", size="small")


def _centre(axes: Axes) -> None:
    """Put 0 into the middle of the horizontal axis."""
    widest = max(0.1, *map(abs, axes.get_xlim()))
    axes.set_xlim(-1.25 * widest, 1.25 * widest)
    axes.grid(axis="x", alpha=0.3)
    hide_frame(axes)


def draw_evolutions(evolutions: Mapping[str, Comparison]) -> Figure:
    """Return a figure with a panel for each metric, and in the panel a row for each evolution (question type).

    A row shows a difference as a point with its 95% interval; see `EvolutionComparison.plot`.
    """
    names = list(next(iter(evolutions.values())))
    columns = min(3, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(1.8 + 3.4 * columns, lines * (1.1 + 0.55 * len(evolutions)))
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        lower = next(iter(evolutions.values()))[name].direction == "lower"
        axes.set_title(single_line(name, 30) + (" ↓" if lower else ""), loc="left", parse_math=False)
        axes.axvline(0, color=GREY, linewidth=1)
        for place, comparison in enumerate(evolutions.values()):
            _draw_difference(axes, place, comparison[name], "{0.difference:+.2f}, {0.clusters} trees", "no pair", GREY)
        _centre(axes)
        axes.set_xlabel("evolved minus simple question")
        label_bars(axes, [single_line(evolution, 28) for evolution in evolutions])
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure
