"""Output of the commands: tables and notes on the console, JSON on stdout, messages on stderr, pages in a browser.

The JSON of a command is one object with stable keys. Missing numbers are null.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import sys
import webbrowser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO, cast

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from langchain_rageval._internal.page import printable, printable_json, printable_lines, shortened
from langchain_rageval.errors import ConfigError

PIPE = "-"
"""File name that means stdin for input and stdout for output."""
_LOGGER = logging.getLogger("langchain_rageval")
_ENDLESS = 1_000_000
_OPTIONAL_COLUMNS = ("abstained", "tokens", "calls", "unscored", "pairs", "baseline", "candidate")
"""Columns that may be dropped in a narrow terminal, in this order."""


class TableConsole(Console):
    """Console that prints any text safely, and never cuts names and numbers in tables.

    Control characters and marks of the writing direction are removed from texts. Titles, headings and cells of tables
    are printed on one line. rich itself would cut cells.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as rich does, after fitting tables to the width of the console."""
        tables = [table for table in objects if isinstance(table, Table)]
        for table in tables:
            table.title = printable(table.title) if isinstance(table.title, str) else table.title
            for column in table.columns:
                column.header = printable(column.header) if isinstance(column.header, str) else column.header
                column._cells = [printable(cell) if isinstance(cell, str) else cell for cell in column._cells]
            self._fit(table)
        width = self.width
        self.width = max(width, *map(self._narrowest, tables)) if tables else width  # the terminal breaks longer lines
        super().print(*objects, **options)
        self.width = width

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a str like rich, but without characters that control the terminal."""
        return super().render_str(printable_lines(text), **options)

    def _fit(self, table: Table) -> None:
        """Make a table fit: wrap headings rather than cells, then drop the frame, then optional columns.

        Output that is not a terminal becomes as wide as the table instead.
        """
        if self.measure(table, options=self.options.update(max_width=_ENDLESS)).maximum <= self.width:
            return
        for index, column in enumerate(table.columns):
            if index == 0 or column.justify == "right":
                cells = [cell_len(Text.from_markup(str(cell)).plain) for cell in column.cells]
                words = [cell_len(word) for word in Text.from_markup(str(column.header)).plain.split()]
                column.width = max([*cells, *words])
        if not self.is_terminal:
            self.width = max(self.width, self._narrowest(table))
        if self._narrowest(table) > self.width:
            table.box, table.show_edge, table.padding = box.SIMPLE_HEAD, False, (0, 0)
        optional = [column for name in _OPTIONAL_COLUMNS for column in table.columns if column.header == name]
        dropped = []
        while optional and self._narrowest(table) > self.width:
            dropped.append(optional.pop(0))
            table.columns.remove(dropped[-1])
        if dropped:
            hint = f"A wider terminal also shows {', '.join(str(column.header) for column in dropped)}."
            table.caption = "\n".join(filter(None, (str(table.caption or ""), hint)))

    def _narrowest(self, table: Table) -> int:
        return self.measure(table, options=self.options.update(max_width=_ENDLESS)).minimum


def console(*, stderr: bool = False) -> Console:
    """Return a console that writes to stdout, or to stderr if `stderr` is True.

    If the stream is not a terminal, such as a file or a pipe, lines have up to 120 columns.
    """
    out = TableConsole(highlight=False, emoji=False, stderr=stderr)
    if not out.is_terminal:
        out.width = 120
    return out


def table_of(
    headings: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    left: Iterable[str] = (),
    colours: Mapping[str, str] | None = None,
    total: bool = False,
) -> Table:
    """Build a table of texts.

    Args:
        headings: headings of the columns.
        rows: cells of each row.
        title: title of the table, on one line; None for no title.
        left: headings of the columns that are aligned to the left. The first column always is; other columns hold
            numbers.
        colours: colour of a cell, by the text of the cell.
        total: True if the last row is separated from the others.
    """
    table = Table(title_justify="left", title_style="bold", caption_justify="left")
    table.title = None if title is None else escape(title)
    for number, heading in enumerate(headings):
        table.add_column(escape(heading), justify="left" if not number or heading in left else "right", overflow="fold")
    coloured = {cell: f"[{colour}]{escape(cell)}[/{colour}]" for cell, colour in (colours or {}).items()}
    lines = [[coloured.get(cell, escape(cell)) for cell in cells] for cells in rows]
    for number, line in enumerate(lines):
        table.add_row(*line, end_section=total and number == len(lines) - 2)
    return table


def show_notes(notes: Iterable[str], out: Console, what: str = "", path: str | None = None) -> None:
    """Print the notes of a result (remarks on how to read a report or a comparison), each on its own lines.

    If `path` is given, the last line says that `what` was written to it.
    """
    for number, note in enumerate(notes):
        if not number:
            out.print()
        print_indented(out, "", f"[italic]{escape(printable(note))}[/italic]", indent=2)
    if path:
        out.print(f"\n{what} written to {escape(printable(path))}", soft_wrap=True)


def shorten(text: str) -> str:
    """Return a text on one line, cut after 300 characters."""
    return shortened(printable(text), 300)


def print_indented(out: Console, prefix: str, text: str, indent: int | None = None) -> None:
    """Print a text after a prefix; wrap it to the width of the console, and indent the lines after the first.

    Args:
        out: console to print on.
        prefix: beginning of the first line, as markup.
        text: the text, as markup on one line.
        indent: spaces before the further lines; by default the width of the prefix.
    """
    begin = Text.from_markup(prefix, emoji=False)
    indent = begin.cell_len if indent is None else indent
    whole = Text.assemble(begin, Text.from_markup(text, emoji=False))
    first, *_ = whole.wrap(out, out.width) or [Text()]
    out.print(first)
    rest = whole[len(first.plain) :]
    rest = rest[len(rest.plain) - len(rest.plain.lstrip()) :]
    for line in rest.wrap(out, max(20, out.width - indent)) if rest else ():
        out.print(Text(" " * indent).append(line))


def write_message(message: str) -> None:
    """Write a message of `rageval` to stderr on one line."""
    sys.stderr.write(f"rageval: {printable(message)}\n")


@contextmanager
def printable_warnings() -> Iterator[None]:
    """Return a context in which the package's warnings are written to stderr as messages of `rageval`.

    Nothing is changed if the process has configured logging.
    """
    if _LOGGER.hasHandlers():
        yield
        return
    handler = _Handler(logging.WARNING)
    _LOGGER.addHandler(handler)
    try:
        yield
    finally:
        _LOGGER.removeHandler(handler)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        write_message(record.getMessage())


def open_page(path: str) -> None:
    """Open an HTML file in the default browser."""
    webbrowser.open(Path(path).resolve().as_uri())


def open_if_possible(path: str, options: argparse.Namespace) -> None:
    """Open an HTML file, unless `--no-open` is set, stdout is not a terminal, or there is no display."""
    has_display = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if not options.no_open and sys.stdout.isatty() and has_display:
        open_page(path)


def write_json(content: Mapping[str, Any]) -> None:
    """Write a JSON object to stdout on one line, with times in ISO format."""
    json_stdout().write(json.dumps(content, ensure_ascii=False, default=datetime.isoformat) + "\n")


def json_stdout() -> TextIO:
    """Return stdout for JSON lines, in UTF-8 regardless of the locale.

    Control characters are written as JSON escapes.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    return cast("TextIO", _JsonStdout())


class _JsonStdout(io.TextIOBase):
    def write(self, text: str) -> int:
        return sys.stdout.write(printable_json(text))

    def flush(self) -> None:
        sys.stdout.flush()


def check_writable(option: str, path: str | None, *inputs: str) -> None:
    """Check that an output file can be written and does not replace an input file.

    Args:
        option: name of the option, for the error message.
        path: value of the option; None and "-" are always accepted.
        inputs: paths of the input files.

    Raises:
        ConfigError: if the path is a folder or an input file, or if its folder is missing or not writable.
    """
    if path is None or path == PIPE:
        return
    folder = Path(path).resolve().parent
    if Path(path).exists() and not Path(path).is_file():
        raise ConfigError(f"{option} {path} is not a file; choose another path")
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(
            f"{option} {path}: the folder {folder} does not exist or is not writable; choose another path"
        )
    if Path(path).resolve() in [Path(one).resolve() for one in inputs]:
        raise ConfigError(f"{option} {path} is the input file; choose another path")


def show_or_write(
    options: argparse.Namespace, content: Callable[[], Mapping[str, Any]], show: Callable[[], None]
) -> None:
    """Write the JSON object of a command if `--json` is set, otherwise print its tables."""
    write_json(content()) if options.json else show()


def pick(record: Any, *names: str) -> dict[str, Any]:
    """Return the attributes with the given names: options as arguments of a function, or fields for a JSON object."""
    return {name: getattr(record, name) for name in names}


def fields_of(record: Any, *without: str) -> dict[str, Any]:
    """Return the fields of a dataclass as a mapping, except the fields in `without`."""
    return {name: value for name, value in asdict(record).items() if name not in without}
