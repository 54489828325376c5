"""Rows of tables: files of CSV in the dialects of spreadsheet programs, workbooks of Excel, and DataFrames."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain, islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from langchain_rageval.data.encodings import read_lines
from langchain_rageval.data.vocabulary import FIELDS_BY_NAME, folded, known_name
from langchain_rageval.errors import ConfigError, SampleError

Record = dict[str, Any]
"""Name of a column to the value of a cell; None for an empty cell."""

Records = Iterator[tuple[str, Any]]
"""Records of a file, each after its place, such as "line 7"; a record may be a SampleError."""

IsHead = Callable[[str], bool]
"""Function that returns True for the name of a column without which a table has no header."""

WORKBOOKS = (".xlsx", ".xlsm")
_DELIMITERS = (",", ";", "\t", "|")
_HEAD_ROWS = 20  # rows in which a header is looked for
_CSV_LIMIT = Lock()
_MISSING = frozenset({"nan", "<na>", "nat", "#n/a", "#н/д"})
_LONGEST_FIELD = 2**31 - 1


def check_workbook(path: Path) -> None:
    """Raise ConfigError if openpyxl, which reads workbooks, is not installed."""
    if path.suffix.lower() in WORKBOOKS and not find_spec("openpyxl"):
        raise ConfigError(f'{path}: reading workbooks needs openpyxl: pip install "langchain-rageval[excel]"')


def table_records(path: Path, is_head: IsHead) -> Records:
    """Yield the rows of a table, each as a mapping of column names to cells.

    The header is the first of the first 20 rows that holds a name for which `is_head` returns True, else the first row
    that is not empty. Columns without a name and empty rows are omitted.

    Args:
        path: path of a workbook, or of a CSV file with any delimiter and encoding.
        is_head: function that recognises a column by its name.

    Raises:
        ConfigError: if the file cannot be read, or two columns have one name that is the name of a field.
    """
    if path.suffix.lower() in WORKBOOKS:
        yield from _workbook_records(path, is_head)
    else:
        yield from _csv_records(path, is_head)


def is_table(value: Any) -> bool:
    """Return True for a DataFrame of pandas or polars and for a table of pyarrow."""
    return hasattr(type(value), "columns") and any(map(partial(hasattr, value), ("to_dict", "to_dicts", "to_pylist")))


def table_rows(table: Any) -> list[Record]:
    """Return the rows of a DataFrame of pandas or polars, or of a table of pyarrow, with None for missing values."""
    for method in ("to_dicts", "to_pylist"):
        if hasattr(table, method):
            return list(getattr(table, method)())
    return list(table.astype(object).where(table.notna(), None).to_dict("records"))


def next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row of a CSV reader, with cells of any length, or None at the end."""
    with _CSV_LIMIT:  # csv has one limit for the whole process
        limit = csv.field_size_limit(_LONGEST_FIELD)
        try:
            return next(reader, None)
        finally:
            csv.field_size_limit(limit)


def find_delimiter(lines: Sequence[str], is_head: IsHead = lambda _: False) -> str:
    """Return the delimiter of a CSV file by its first lines: the one that gives a header, else the most columns.

    `csv.Sniffer` counts characters of all cells and takes commas and spaces of texts for delimiters.
    """

    def fitness(delimiter: str) -> tuple[bool, bool, int]:
        with _CSV_LIMIT:
            limit = csv.field_size_limit(_LONGEST_FIELD)
            try:
                rows = [*islice(csv.reader(lines, delimiter=delimiter), _HEAD_ROWS)]
            except csv.Error:
                return False, False, 0
            finally:
                csv.field_size_limit(limit)
        heads = [row for row in rows if any(map(is_head, row))]
        first = next(filter(any, rows), [])
        return bool(heads), any(len(row) > 1 for row in heads), len(max(heads or [first], key=len))

    return max(_DELIMITERS, key=fitness)


def _csv_records(path: Path, is_head: IsHead) -> Records:
    lines = chain.from_iterable(map(_split_at_returns, read_lines(path)))
    first = [*islice(lines, 100)]
    if first and first[0].startswith("PK\x03\x04"):
        raise ConfigError(f"{path.name} is a workbook: give it the suffix .xlsx, or save it as CSV")
    delimiter, skipped = "", 0
    if first and first[0].lower().startswith("sep="):  # a line that Excel reads
        delimiter, skipped = first[0].rstrip("\r\n")[4:5], 1
    delimiter = delimiter or find_delimiter(first, is_head)
    reader = csv.reader(chain(first[skipped:], lines), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[str, list[Any]]]:
        number = 1 + skipped
        try:
            while (cells := next_row(reader)) is not None:
                yield f"line {number}", cells
                number = reader.line_num + 1 + skipped
        except csv.Error as error:
            problem = f"{path.name}, line {number} is not valid CSV ({error})"
            raise ConfigError(f"{problem}; correct the quotation marks") from error

    too_long = f"more cells than names in the header: put text with {_NAMES[delimiter]} in quotation marks"
    yield from _with_header(rows(), is_head, path.name, too_long)


def _split_at_returns(line: str) -> Iterable[str]:
    """Return the lines in a line of a file whose lines end with a carriage return, as Excel for Mac writes them."""
    return io.StringIO(line, newline="") if "\r" in line[:-2] else (line,)


_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def _workbook_records(path: Path, is_head: IsHead) -> Records:
    from zipfile import BadZipFile

    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

    check_workbook(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions that it does not read
            workbook = load_workbook(path, read_only=True, data_only=True)
            sheets = {sheet.title: [*_sheet_rows(sheet)] for sheet in workbook.worksheets}
            workbook.close()
    except (BadZipFile, InvalidFileException, KeyError, ValueError) as error:
        raise ConfigError(f"{path.name} is not a workbook of Excel ({error}): save it as .xlsx or as CSV") from error
    with_header = [
        title
        for title, rows in sheets.items()
        if any(is_head(cell) for row in rows[:_HEAD_ROWS] for cell in _names(row[1]))
    ]
    if len(with_header) > 1:
        raise ConfigError(f"{path.name} has {len(with_header)} sheets of samples, {with_header}: save each as a file")
    filled = [title for title, rows in sheets.items() if any(any(cells) for _, cells in rows)]
    for title in (with_header or filled)[:1]:
        yield from _with_header(iter(sheets[title]), is_head, path.name, "more cells than names in the header")


def _sheet_rows(sheet: Any) -> Iterator[tuple[str, list[Any]]]:
    from openpyxl.utils.escape import unescape

    if hasattr(sheet, "reset_dimensions"):
        sheet.reset_dimensions()  # some programs write wrong ones
    for number, cells in enumerate(sheet.iter_rows(values_only=True), start=1):
        yield f"row {number}", [unescape(cell) if isinstance(cell, str) else cell for cell in cells]


def _names(cells: Iterable[Any]) -> list[str]:
    return ["" if cell is None else str(cell).strip() for cell in cells]


def _with_header(rows: Iterator[tuple[str, list[Any]]], is_head: IsHead, file: str, too_long: str) -> Records:
    rows = ((place, cells) for place, cells in rows if any(cell is not None and str(cell).strip() for cell in cells))
    first = [*islice(rows, _HEAD_ROWS)]
    start = next((at for at, (_, cells) in enumerate(first) if any(map(is_head, _names(cells)))), 0)
    if not first:
        return
    names = _names(first[start][1])
    _check_distinct(names, file)
    for place, cells in chain(first[start + 1 :], rows):
        if any(cell not in (None, "") for cell in cells[len(names) :]):
            yield place, SampleError(too_long)
        else:
            yield place, _row(names, cells)


def _row(names: Collection[str], cells: Sequence[Any]) -> Record:
    pairs = zip_longest(names, cells[: len(names)])
    row: Record = {}
    for number, (name, cell) in enumerate(pairs, start=1):
        if name:
            row[f"{name} ({number})" if name in row else name] = None if _is_missing(cell) else cell
    return row


def _is_missing(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, str) and cell.strip().casefold() in _MISSING)


def _check_distinct(names: Sequence[str], file: str) -> None:
    counts = Counter(known_name(name) or folded(name) for name in names if name)
    for name, count in counts.items():
        if count > 1 and name in FIELDS_BY_NAME:
            places = [place for place, own in enumerate(names, start=1) if known_name(own) == name]
            described = " and ".join(f"{names[place - 1]!r} (column {place})" for place in places)
            raise ConfigError(f"{file}: the columns {described} have one name: rename one of them")
