"""Tables of results for notebooks, and the base class of all results that are shown as a table."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from langchain_rageval._internal.page import printable_lines

Item = TypeVar("Item")
_LOG = logging.getLogger("langchain_rageval")


def html_table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]], notes: Iterable[str] = ()) -> str:
    """Return a table as HTML, with every text escaped.

    Args:
        title: text above the table.
        head: headings of the columns.
        rows: rows of the table; each has one text for each column.
        notes: texts below the table.
    """
    lines = [_line("th", head), *(_line("td", row) for row in rows)]
    below = "".join(f"<p><em>{escape(note)}</em></p>" for note in notes)
    return f"<p>{escape(title)}</p><table>{''.join(lines)}</table>{below}"


def _line(tag: str, texts: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) + "</tr>"


def number_text(number: float | None, form: str = ".3f") -> str:
    """Return a number as text, by the format specification `form`, for a cell of a table; a dash for None."""
    return "–" if number is None else format(number, form)


def interval_text(low: float | None, high: float | None, form: str = ".3f") -> str:
    """Return an interval as text, such as "[0.250, 0.750]"; "" if an end is None. `form` is the format of both ends."""
    return "" if low is None or high is None else f"[{low:{form}}, {high:{form}}]"


def p_text(p_value: float) -> str:
    """Return a p-value as text."""
    return "< 0.001" if p_value < 0.001 else f"{p_value:.3f}"


class Renamed:
    """Base class of results with renamed fields; `old_names` maps each old name to the present name.

    The names of version 0.1 still work, with a note in the log.
    """

    old_names: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return the field that now has another name."""
            if name not in self.old_names:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            _LOG.warning("%s.%s is now %s", type(self).__name__, name, self.old_names[name])
            return getattr(self, self.old_names[name])


class Shown:
    """Base class of results that are shown as a table, in text and in notebooks.

    Attributes:
        notes: what a reader of the results should know.
    """

    notes: Sequence[str] = ()

    @property
    @abstractmethod
    def title(self) -> str:
        """Heading of the table."""

    @property
    @abstractmethod
    def headings(self) -> Sequence[str]:
        """Headings of the columns of the table."""

    @abstractmethod
    def cells(self) -> Sequence[Sequence[str]]:
        """Return the rows of the table, one text for each column."""

    def lines(self) -> Iterable[str]:
        """Return the lines of the result as text: the table with aligned columns."""
        table = [self.headings, *self.cells()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in table]

    def __repr__(self) -> str:
        """Return the result as text: the title, its lines, and the notes."""
        return printable_lines("\n".join([self.title, *self.lines(), *(f"Note: {note}" for note in self.notes)]))

    def _repr_html_(self) -> str:
        """Return the result as an HTML table, for notebooks."""
        return html_table(self.title, self.headings, self.cells(), self.notes)


class Analysis(Shown, Mapping[str, Item]):
    """Base class of analyses: an ordered mapping of names to results, shown as a table."""

    def __init__(self, results: Mapping[str, Item], notes: Iterable[str] = ()) -> None:
        self._results = results
        self.notes = list(notes)

    def __getitem__(self, name: str) -> Item:
        """Return a result by its name."""
        return self._results[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._results)

    def __len__(self) -> int:
        """Return the number of results."""
        return len(self._results)

    def lines(self) -> Iterable[str]:
        """Return the lines of the analysis as text: `str` of each result, in order."""
        return map(str, self.values())
