"""What notebooks show of a report and its kin: a table under a title, with notes. Every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """A table as HTML.

    Args:
        title: stands above it.
        head: headings of the columns.
        rows: one text for each column.
        notes: stand below it.
    """
    lines = [_line("th", head), *(_line("td", row) for row in rows)]
    told = "".join(f"<p><em>{escape(note)}</em></p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>{told}"


def _line(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
