"""Create figures, and draw their texts and frames.

Figures are created without pyplot. They need no display, open no window, and are freed with their last reference.
"""

from __future__ import annotations

import io
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from langchain_rageval._internal.page import printable
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
"""Colours that can be distinguished with any colour vision. Source: Okabe and Ito 2008, Color Universal Design."""
GREY = "#808080"


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure that notebooks can display.

    Args:
        width: width in inches.
        height: height in inches.

    Raises:
        ConfigError: if matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("figures require matplotlib: pip install matplotlib") from None

    class NotebookFigure(Figure):
        """A figure that notebooks display even if pyplot is not imported."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", bbox_inches="tight")
            return buffer.getvalue()

    return NotebookFigure(figsize=(width, height), layout="constrained")


def wrap_text(text: str, width: int, max_lines: int) -> list[str]:
    """Return the lines of a text, wrapped at `width` characters and truncated after `max_lines` lines.

    Control characters are replaced, and marks of the writing direction are removed.
    """
    lines = wrap(printable(text[: width * (max_lines + 1)]), width)
    return lines if len(lines) <= max_lines else [*lines[: max_lines - 1], f"{lines[max_lines - 1][: width - 1]}…"]


def single_line(text: str, width: int = 40) -> str:
    """Return a text on one line, truncated after `width` characters, without control characters."""
    return "".join(wrap_text(text, width, 1))


def draw_text(axes: Axes, x: float, y: float, text: str, **style: Any) -> Text:
    """Draw a text literally, without interpreting dollar signs as math."""
    return axes.text(x, y, text, parse_math=False, **style)


def label_bars(axes: Axes, names: list[str]) -> None:
    """Label the bars at the positions 0, 1, … of the vertical axis; the first bar is on top."""
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def hide_frame(axes: Axes) -> None:
    """Hide the frame of a chart except for the line at the bottom."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
