"""HTML tables that notebooks show for reports, comparisons, plans and other results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Return a table as HTML, with every text escaped.

    Args:
        title: text above the table.
        head: headings of the columns.
        rows: one text for each column.
        notes: texts below the table.
    """
    lines = [_line("th", head), *(_line("td", row) for row in rows)]
    below = "".join(f"<p><em>{escape(note)}</em></p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>{below}"


def _line(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"
