"""What all figures share: how they are made, their colours, and how texts of others get into them.

A figure knows nothing of pyplot: it needs no display, opens no window, and is forgotten when its owner forgets it.
"""

from __future__ import annotations

import io
import re
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.text import Text

BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"
"""Told apart with any colour vision. Source: Okabe and Ito 2008, Color Universal Design."""
GREY = "#808080"

_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, that notebooks show.

    Raises:
        ConfigError: if matplotlib is not there.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError('figures are drawn by matplotlib: pip install "langchain-rageval[plot]"') from None

    class Shown(Figure):
        """A figure that a notebook shows also where pyplot was never imported."""

        def _repr_png_(self) -> bytes:
            written = io.BytesIO()
            self.savefig(written, format="png", bbox_inches="tight")
            return written.getvalue()

    return Shown(figsize=(width, height), layout="constrained")


def lines_of(told: str, width: int, most: int) -> list[str]:
    """A text of others in lines of so many characters, cut after so many lines; nothing in it steers the drawing."""
    lines = wrap(_UNSEEN.sub("\ufffd", " ".join(told[: width * (most + 1)].split())), width)
    return lines if len(lines) <= most else [*lines[: most - 1], f"{lines[most - 1][: width - 1]}…"]


def one_line(told: str, width: int = 40) -> str:
    """A text of others, cut after so many characters."""
    return "".join(lines_of(told, width, 1))


def write(axes: Axes, x: float, y: float, told: str, **looks: Any) -> Text:
    """Write a text as it is, dollars and all."""
    return axes.text(x, y, told, parse_math=False, **looks)


def name_bars(axes: Axes, names: list[str]) -> None:
    """Put names at 0, 1, … of the vertical axis, the first on top."""
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def plain(axes: Axes) -> None:
    """Take the frame away, down to the line below."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
