"""Figures of a test set: what it consists of and what was rejected; and the tree that one question grew on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from langchain_rageval._internal.plotting import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    lines_of,
    name_bars,
    new_figure,
    plain,
    write,
)
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from langchain_rageval.testset.candidate import Trial
    from langchain_rageval.testset.rows import Testset, TestsetRow

_WIDTH = 54  # characters of a line in the tree
_ASIDE = 62  # where rejected attempts begin
_MOST = 6  # lines of one text


def draw_testset(testset: Testset) -> Figure:
    """Counts of evolutions beside counts of reasons for rejection; see `Testset.plot`."""
    rejected: Mapping[str, int] = testset.yields["rejected"]
    if not testset.rows and not rejected:
        raise ConfigError("there is nothing to plot: the test set has no questions, and nothing was rejected")
    figure = new_figure(11, 1.2 + 0.4 * max(len(testset.counts), len(rejected), 2))
    kept, dropped = figure.subplots(1, 2)
    _draw_counts(kept, f"{len(testset)} questions", testset.counts, BLUE)
    _draw_counts(dropped, f"rejected, of {testset.yields['attempts']} attempts", rejected, ORANGE)
    return figure


def _draw_counts(axes: Axes, title: str, counts: Mapping[str, int], colour: str) -> None:
    axes.set_title(title, loc="left")
    plain(axes)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    if not counts:
        axes.set_yticks([])
        write(axes, 0.5, 0.5, "none", ha="center", va="center", color=GREY, style="italic", transform=axes.transAxes)
        return
    bars = axes.barh(range(len(counts)), list(counts.values()), height=0.6, color=colour)
    axes.bar_label(bars, padding=4)
    axes.margins(x=0.12)
    name_bars(axes, ["\n".join(lines_of(name, 32, 2)) for name in counts])


@dataclass(frozen=True)
class _Box:
    """One thing that was tried, as the tree shows it."""

    lines: list[str]
    colour: str
    aside: bool = False

    @property
    def height(self) -> float:
        """In lines, with the room around it."""
        return len(self.lines) + 1.6


def draw_tree(row: TestsetRow) -> Figure:
    """What led to a question, from top to bottom; what was rejected stands aside. See `Testset.plot`."""
    boxes = [_source(row), *map(_tried, row.history), _end(row)]
    tall = sum(box.height for box in boxes)
    figure = new_figure(11, 0.4 + 0.185 * tall)
    axes = figure.add_subplot()
    axes.axis("off")
    axes.set_xlim(0, _ASIDE + _WIDTH + 4)
    axes.set_ylim(tall, -1)
    ground = figure.get_facecolor()
    top = grown = 0.0
    for box in boxes:
        _join(axes, grown, top, box)
        x = _ASIDE if box.aside else 1
        frame = {"boxstyle": "round,pad=0.4", "facecolor": ground, "edgecolor": box.colour, "linewidth": 1.5}
        frame["linestyle"] = "--" if box.aside else "-"
        write(axes, x, top, "\n".join(box.lines), va="top", ha="left", size=9, linespacing=1.25, bbox=frame)
        if not box.aside:
            grown = top
        top += box.height
    return figure


def _source(row: TestsetRow) -> _Box:
    sources = ", ".join(f"{source} {start}–{end}" for source, start, end in row.spans) or "passages"
    texts = [line for text in row.contexts for line in lines_of(text, _WIDTH, 3)]
    return _Box([*lines_of(sources, _WIDTH, 2), *texts[:_MOST]], GREY)


def _tried(trial: Trial) -> _Box:
    head = lines_of(f"{'✓' if trial.accepted else '✗'} {trial.kind}", _WIDTH, 1)
    told = [*lines_of(trial.question, _WIDTH, _MOST), *lines_of(trial.feedback, _WIDTH, 3)]
    return _Box([*head, *told], BLUE if trial.accepted else ORANGE, aside=not trial.accepted)


def _end(row: TestsetRow) -> _Box:
    answer = lines_of(row.reference, _WIDTH, _MOST)
    return _Box([*lines_of(f"{row.evolution}: {row.question}", _WIDTH, _MOST), *answer], GREEN)


def _join(axes: Axes, start: float, end: float, box: _Box) -> None:
    """The line from what was last kept to the next box, behind both."""
    aside, below = [4.0, 4.0, float(_ASIDE)], [4.0, 4.0, 4.0]
    style = "--" if box.aside else "-"
    axes.plot(aside if box.aside else below, [start, end + 0.5, end + 0.5], style, color=box.colour, zorder=0)
