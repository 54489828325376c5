"""HTML fragments for notebooks, without colours, so that they are readable on light and dark backgrounds.

Texts are escaped, isolated from the writing direction of their neighbours, and truncated after 2,000 characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_MAX_CHARACTERS = 2_000
_MAX_ITEMS = 50


def text(content: str) -> str:
    """Return a plain text as HTML: escaped, and cut if it is very long."""
    cut = content if len(content) <= _MAX_CHARACTERS else f"{content[:_MAX_CHARACTERS]}… [{len(content):,} characters]"
    return f"<bdi>{escape(cut)}</bdi>".replace("\n", "<br>")


def bold(content: str) -> str:
    """Return a text as bold HTML."""
    return f"<b>{text(content)}</b>"


def paragraph(*parts: str) -> str:
    """Return a paragraph of HTML parts; empty parts are left out."""
    return f"<p>{' '.join(filter(None, parts))}</p>"


def item_list(items: Sequence[str], *, numbered: bool = False) -> str:
    """Return a list of HTML items, at most the first 50."""
    tag = "ol" if numbered else "ul"
    lines = "".join(f"<li>{item}</li>" for item in items[:_MAX_ITEMS])
    return f"<{tag}>{lines}</{tag}>" + _more(len(items))


def table(head: Sequence[str], rows: Sequence[Iterable[str]]) -> str:
    """Return a table of HTML cells under plain text headings, at most the first 50 rows."""
    heads = "".join(f"<th>{escape(heading)}</th>" for heading in head)
    lines = "".join(
        "<tr>" + "".join(f'<td style="text-align: left">{cell}</td>' for cell in row) + "</tr>"
        for row in rows[:_MAX_ITEMS]
    )
    return f"<table><tr>{heads}</tr>{lines}</table>" + _more(len(rows))


def details(title: str, body: str) -> str:
    """Return an HTML body that is collapsed under a plain text title."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def pluralize(count: int, noun: str) -> str:
    """Return a count and a noun, such as "1 context" or "2 contexts"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _more(count: int) -> str:
    return paragraph(f"… and {count - _MAX_ITEMS:,} more") if count > _MAX_ITEMS else ""
