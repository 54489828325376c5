"""Plots of a test set: rows by evolution, rejections by reason, and the history of one question."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.plotting import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    draw_text,
    hide_frame,
    label_bars,
    new_figure,
    wrap_text,
)
from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.candidate import Trial
from langchain_rageval.testset.row import TestsetRow

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LINE_WIDTH = 54  # characters
_RIGHT_COLUMN = 62  # x of rejected attempts, in characters
_MAX_LINES = 6  # of one text


def draw_counts(counts: Mapping[str, int], yields: Mapping[str, Any]) -> Figure:
    """Draw two bar charts: rows by evolution, and rejections by reason.

    Args:
        counts: number of rows by evolution.
        yields: `yields` of the test set.

    Raises:
        ConfigError: if there is nothing to draw, or matplotlib is not installed.
    """
    rejected: Mapping[str, int] = yields["rejected"]
    if not counts and not rejected:
        raise ConfigError("there is nothing to plot: the test set has no questions, and nothing was rejected")
    figure = new_figure(11, 1.2 + 0.4 * max(len(counts), len(rejected), 2))
    left, right = figure.subplots(1, 2)
    _draw_bars(left, f"{sum(counts.values())} questions", counts, BLUE)
    _draw_bars(right, f"rejected, of {yields['attempts']} attempts", rejected, ORANGE)
    return figure


def _draw_bars(axes: Axes, title: str, counts: Mapping[str, int], colour: str) -> None:
    axes.set_title(title, loc="left")
    hide_frame(axes)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    if not counts:
        axes.set_yticks([])
        draw_text(
            axes, 0.5, 0.5, "none", ha="center", va="center", color=GREY, style="italic", transform=axes.transAxes
        )
        return
    bars = axes.barh(range(len(counts)), list(counts.values()), height=0.6, color=colour)
    axes.bar_label(bars, padding=4)
    axes.margins(x=0.12)
    label_bars(axes, ["\n".join(wrap_text(name, 32, 2)) for name in counts])


@dataclass(frozen=True)
class _Box:
    """Text box in the drawing of a question's history; rejected attempts are in the right column."""

    lines: list[str]
    colour: str
    rejected: bool = False

    @property
    def height(self) -> float:
        """Height of the box in lines of text, margins included."""
        return len(self.lines) + 1.6


def draw_history(row: TestsetRow) -> Figure:
    """Draw the history of a question from top to bottom, rejected attempts in a column on the right.

    Raises:
        ConfigError: if matplotlib is not installed.
    """
    boxes = [_source_box(row), *map(_trial_box, row.history), _result_box(row)]
    height = sum(box.height for box in boxes)
    figure = new_figure(11, 0.4 + 0.185 * height)
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_xlim(0, _RIGHT_COLUMN + _LINE_WIDTH + 4)
    axes.set_ylim(height, -1)
    background = figure.get_facecolor()
    top = last_accepted = 0.0
    for box in boxes:
        _draw_connector(axes, last_accepted, top, box)
        x = _RIGHT_COLUMN if box.rejected else 1
        frame = {"boxstyle": "round,pad=0.4", "facecolor": background, "edgecolor": box.colour, "linewidth": 1.5}
        frame["linestyle"] = "--" if box.rejected else "-"
        draw_text(axes, x, top, "\n".join(box.lines), va="top", ha="left", size=9, linespacing=1.25, bbox=frame)
        if not box.rejected:
            last_accepted = top
        top += box.height
    return figure


def _source_box(row: TestsetRow) -> _Box:
    sources = ", ".join(f"{source} {start}–{end}" for source, start, end in row.spans) or "passages"
    texts = [line for text in row.contexts for line in wrap_text(text, _LINE_WIDTH, 3)]
    return _Box([*wrap_text(sources, _LINE_WIDTH, 2), *texts[:_MAX_LINES]], GREY)


def _trial_box(trial: Trial) -> _Box:
    head = wrap_text(f"{'✓' if trial.accepted else '✗'} {trial.kind}", _LINE_WIDTH, 1)
    question, feedback = wrap_text(trial.question, _LINE_WIDTH, _MAX_LINES), wrap_text(trial.feedback, _LINE_WIDTH, 3)
    colour = BLUE if trial.accepted else ORANGE
    return _Box([*head, *question, *feedback], colour, rejected=not trial.accepted)


def _result_box(row: TestsetRow) -> _Box:
    question = wrap_text(f"{row.evolution}: {row.question}", _LINE_WIDTH, _MAX_LINES)
    return _Box([*question, *wrap_text(row.reference, _LINE_WIDTH, _MAX_LINES)], GREEN)


def _draw_connector(axes: Axes, start: float, end: float, box: _Box) -> None:
    """Draw the line from the last accepted box to the next box, behind both."""
    x = [4.0, 4.0, float(_RIGHT_COLUMN) if box.rejected else 4.0]
    style = "--" if box.rejected else "-"
    axes.plot(x, [start, end + 0.5, end + 0.5], style, color=box.colour, zorder=0)
