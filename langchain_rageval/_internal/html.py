"""What notebooks show of a single thing, as HTML without colours of its own: it is read on light and dark alike.

Every text is escaped, kept from turning its neighbours' direction, and cut where it would fill the notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_LONGEST = 2_000
_MOST = 50


def text(told: str) -> str:
    """A text of others."""
    shown = told if len(told) <= _LONGEST else f"{told[:_LONGEST]}… [{len(told):,} characters]"
    return f"<bdi>{escape(shown)}</bdi>".replace("\n", "<br>")


def bold(told: str) -> str:
    """A text of others that stands out."""
    return f"<b>{text(told)}</b>"


def paragraph(*parts: str) -> str:
    """Parts that are HTML already, as a paragraph."""
    return f"<p>{' '.join(filter(None, parts))}</p>"


def listed(items: Sequence[str], *, numbered: bool = False) -> str:
    """Items that are HTML already, one below the other, the first fifty of them."""
    tag = "ol" if numbered else "ul"
    lines = "".join(f"<li>{item}</li>" for item in items[:_MOST])
    return f"<{tag}>{lines}</{tag}>" + _more(len(items))


def table(head: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    """Cells that are HTML already, under plain headings; the first fifty rows."""
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in head)
    lines = "".join(
        "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in row) + "</tr>" for row in rows[:_MOST]
    )
    return f"<table><tr>{heads}</tr>{lines}</table>" + _more(len(rows))


def details(title: str, body: str) -> str:
    """What opens at a click on its title."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def counted(count: int, what: str) -> str:
    """Such as "1 context", "2 contexts"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _more(count: int) -> str:
    return paragraph(f"… and {count - _MOST:,} more") if count > _MOST else ""
