"""Plot of the comparison of evolutions: differences from the simple question, with their intervals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from langchain_rageval._internal.plotting import (
    GREEN,
    GREY,
    RED,
    draw_text,
    hide_frame,
    label_bars,
    new_figure,
    single_line,
)
from langchain_rageval.report.comparison import Comparison

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PER_LINE = 3  # panels
_COLOURS = {"better": GREEN, "worse": RED}


def draw_evolutions(evolutions: Mapping[str, Comparison]) -> Figure:
    """Return a figure with a panel for each metric and a line for each evolution; see `EvolutionComparison.plot`."""
    names = list(next(iter(evolutions.values())))
    columns = min(_PER_LINE, len(names))
    lines = -(-len(names) // columns)
    figure = new_figure(1.8 + 3.4 * columns, lines * (1.1 + 0.55 * len(evolutions)))
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False).flat
    for axes, name in zip(panels, names, strict=False):
        _draw_panel(axes, name, evolutions)
    for axes in list(panels)[len(names) :]:
        axes.set_visible(False)
    return figure


def _draw_panel(axes: Axes, name: str, evolutions: Mapping[str, Comparison]) -> None:
    lower = next(iter(evolutions.values()))[name].direction == "lower"
    axes.set_title(single_line(name, 30) + (" ↓" if lower else ""), loc="left", parse_math=False)
    axes.axvline(0, color=GREY, linewidth=1)
    for place, comparison in enumerate(evolutions.values()):
        metric = comparison[name]
        if metric.difference is None:
            draw_text(axes, 0, place, "no pair", ha="center", va="center", color=GREY, style="italic")
            continue
        colour = _COLOURS.get(metric.verdict, GREY)
        axes.plot([metric.low or 0.0, metric.high or 0.0], [place, place], color=colour, linewidth=2)
        axes.plot([metric.difference], [place], marker="o", color=colour, markersize=7)
        text = f"{metric.difference:+.2f}, {metric.clusters} trees"
        draw_text(axes, metric.difference, place - 0.16, text, ha="center", va="bottom", size="small")
    widest = max(0.1, *map(abs, axes.get_xlim()))
    axes.set_xlim(-1.25 * widest, 1.25 * widest)
    axes.set_xlabel("evolved minus simple question")
    axes.grid(axis="x", alpha=0.3)
    hide_frame(axes)
    label_bars(axes, [single_line(evolution, 28) for evolution in evolutions])
