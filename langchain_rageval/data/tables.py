"""Read the rows of tables, detect the encodings of text files, and parse the lists and mappings in cells."""

from __future__ import annotations

import ast
import codecs
import csv
import io
import json
import logging
import math
import re
import tokenize
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time
from functools import partial
from itertools import chain, islice, zip_longest
from pathlib import Path
from threading import Lock
from typing import Any

from langchain_rageval.data.vocabulary import FIELDS_BY_NAME, folded, known_name
from langchain_rageval.errors import ConfigError, SampleError

_LARGEST = 1e15  # above, a float does not hold every whole number
_NAMED = {"null": None, "none": None, "true": True, "false": False, "nan": None}


def number_to_text(value: Any) -> Any:
    """Return a number or a date as text, a whole number without decimals; return any other value unchanged."""
    match value:
        case float() | datetime() if value != value:  # NaN and NaT
            return value
        case float() if value.is_integer() and math.fabs(value) < _LARGEST:
            return str(int(value))  # pandas makes floats of whole numbers beside a missing one
        case bool() | int() | float():
            return str(value)
        case datetime() if value.time() == time.min:
            return str(value.date())
        case date() | time():
            return str(value)
    return value


def parse_literal(text: str) -> Any:
    """Parse a text that is a list or mapping, written as JSON or as Python prints it; None for any other text.

    Calls such as `Document(page_content='…')` become mappings of their keyword arguments. Quoted texts without commas
    between them are read as the items of a numpy array.
    """
    try:
        return json.loads(text)
    except ValueError:
        pass
    except RecursionError:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # of unknown escapes such as \\d
            return _value(ast.parse(_with_commas(text), mode="eval").body)
    except (ValueError, SyntaxError, tokenize.TokenError, RecursionError, MemoryError):
        return None


def _with_commas(text: str) -> str:
    """Return the text with commas between adjacent texts, which Python would join."""
    ends: list[tuple[int, int]] = []
    previous, end = -1, (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT):
            continue
        if token.type == previous == tokenize.STRING:
            ends.append(end)
        previous, end = token.type, token.end
    lines = text.splitlines(keepends=True)
    for row, column in reversed(ends):
        lines[row - 1] = lines[row - 1][:column] + "," + lines[row - 1][column:]
    return "".join(lines)


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant():
            return node.value
        case ast.List() | ast.Tuple():
            return [_value(item) for item in node.elts]
        case ast.Dict():
            return {_value(key): _value(item) for key, item in zip(node.keys, node.values, strict=True) if key}
        case ast.Call(func=ast.Name(id="array"), args=[items, *_]):
            return _value(items)
        case ast.Call(func=ast.Name(id=kind)) if kind == "Document" or kind.endswith("Message"):
            arguments = {word.arg: _value(word.value) for word in node.keywords if word.arg}
            return {"type": kind.removesuffix("Message").lower(), **arguments}
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
            return -number
        case ast.Name(id=name) if name.casefold() in _NAMED:
            return _NAMED[name.casefold()]
    raise ValueError(f"not a literal: {type(node).__name__}")


_LOG = logging.getLogger("langchain_rageval")
_LEGACY = ("cp1251", "cp1252", "koi8_r", "cp866")
_WIDE = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CONTROLS = bytes(byte for byte in range(32) if byte not in b"\t\n\f\r")
_RUSSIAN_WORD = re.compile(rb"[\xa8\xb8\xc0-\xff]{3,}")
_HEAD_BYTES = 4096
_SAMPLE_LINES, _SAMPLE_BYTES = 500, 65_536
_SURE = 8  # bytes beyond ASCII that are valid UTF-8 by chance in no text of another encoding


def read_lines(path: Path, *, strict: bool = True, name: str | None = None) -> Iterator[str]:
    """Yield the lines of a text file with their line ends, decoded from UTF-8, UTF-16, UTF-32 or a one-byte encoding.

    The first bytes show UTF-16 and UTF-32. Other files are UTF-8 or, if the first line beyond ASCII is not valid UTF-8,
    in the encoding that the letters suggest: Windows-1251, Windows-1252, KOI8-R or CP866. A warning names it.
    Messages use `name` as the name of the file; by default, the file's own name. With `strict=False`, invalid
    characters in a UTF-8 file are replaced, with a warning, instead of raising an error.

    Raises:
        ConfigError: if the text cannot be decoded.
    """
    with path.open("rb") as file:
        encoding = wide_encoding(file.read(_HEAD_BYTES))
        file.seek(0)
        if encoding is None:
            yield from decode_lines(file, name or path.name, strict=strict)
            return
        try:
            with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
                for number, line in enumerate(text):
                    yield line.removeprefix("\ufeff") if number == 0 else line
        except UnicodeError as error:
            problem = f"{name or path.name} is not valid {encoding.upper()} ({error})"
            raise ConfigError(f"{problem}; save the file as UTF-8") from error


def decode_lines(lines: Iterable[bytes], name: str, *, strict: bool = True) -> Iterator[str]:
    """Decode lines as UTF-8; if the first line beyond ASCII is no UTF-8, in the encoding that its letters suggest.

    A warning in the log "langchain_rageval" names an encoding other than UTF-8.

    Args:
        lines: lines of a file or a stream.
        name: name of the file, for messages.
        strict: False to replace invalid characters in a UTF-8 file, with a warning, instead of raising.

    Raises:
        ConfigError: if lines are in different encodings and `strict` is True.
    """
    rest, number, has_utf8 = iter(lines), 0, False
    for number, line in enumerate(rest, start=1):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            if not has_utf8:
                break
            if strict:
                raise ConfigError(f"{name}, line {number} is not valid UTF-8; save the file as UTF-8") from error
            _LOG.warning("%s, line %d is not valid UTF-8; invalid characters are replaced", name, number)
            text = line.decode("utf-8", errors="replace")
        has_utf8 = has_utf8 or not line.isascii()
        yield text
    else:
        return
    sample = [line, *islice(rest, _SAMPLE_LINES)]
    encoding = guess_encoding(b"".join(part for part in sample if not part.isascii()))
    _LOG.warning("%s is not UTF-8; read as %s", name, encoding)
    for place, line in enumerate(chain(sample, rest), start=number):
        if sum(byte > 127 for byte in line) >= _SURE and is_utf8(line):
            raise ConfigError(f"{name}, line {place} is UTF-8, earlier lines are {encoding}; save the file as UTF-8")
        yield line.decode(encoding, errors="replace")


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of a file from its first bytes if the encoding is UTF-16 or UTF-32, else None."""
    for mark, encoding in _WIDE:
        if head.startswith(mark):
            return encoding
    even, odd = head[::2].count(0), head[1::2].count(0)
    if max(even, odd) * 50 < len(head) or min(even, odd):
        return None
    return "utf-16-le" if odd else "utf-16-be"


def guess_encoding(content: bytes) -> str:
    """Return the single-byte encoding that the letters of a text suggest, Russian or Western.

    Raises:
        ConfigError: if the content is no text.
    """
    from charset_normalizer import from_bytes

    if len(content) - len(content.translate(None, _CONTROLS)) > len(content) // 100:
        raise ConfigError("not a text in UTF-8, UTF-16 or a single-byte encoding; save the file as UTF-8")
    best = from_bytes(content[:_SAMPLE_BYTES], cp_isolation=[*_LEGACY]).best()
    if best is None or best.encoding not in _LEGACY:
        return "cp1251"
    most = 0.7 * sum(byte > 127 for byte in content)
    lower = sum(byte >= 0xE0 for byte in content)  # а to я in Windows-1251; in KOI8-R, these are upper case
    words = sum(len(word) for word in _RUSSIAN_WORD.findall(content))
    return "cp1251" if lower > most and words > most else best.encoding


def is_utf8(content: bytes) -> bool:
    """Return True if the bytes are valid UTF-8."""
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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


def table_records(path: Path, is_head: IsHead) -> Records:
    """Yield the rows of a table, each as a mapping of column names to cells.

    The header is the first row with a name for which `is_head` returns True; if none of the first 20 rows has one, the
    first row that is not empty. Columns without a name and empty rows are omitted.

    Args:
        path: path of a workbook, or of a CSV file with any delimiter and encoding.
        is_head: function that recognises a column by its name.

    Raises:
        ConfigError: if the file cannot be read, or two columns have the same name and this name stands for a field.
    """
    read = _workbook_records if path.suffix.lower() in WORKBOOKS else _csv_records
    yield from read(path, is_head)


def is_table(value: Any) -> bool:
    """Return True for a DataFrame of pandas or polars and for a table of pyarrow."""
    return hasattr(type(value), "columns") and any(map(partial(hasattr, value), ("to_dict", "to_dicts", "to_pylist")))


def table_rows(table: Any) -> list[Record]:
    """Return the rows of a DataFrame of pandas or polars, or of a table of pyarrow, with None for missing values."""
    for method in ("to_dicts", "to_pylist"):
        if hasattr(table, method):
            return list(getattr(table, method)())
    rows = table.astype(object).where(table.notna(), None).itertuples(index=False, name=None)
    return [dict(zip(table.columns, row, strict=True)) for row in rows]


def next_row(reader: Iterator[list[str]]) -> list[str] | None:
    """Return the next row of a CSV reader, with cells of any length, or None at the end."""
    with _cells_of_any_length():
        return next(reader, None)


@contextmanager
def _cells_of_any_length() -> Iterator[None]:
    """Lift the limit of csv, which is one for the whole process."""
    with _CSV_LIMIT:
        limit = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(limit)


def find_delimiter(lines: Sequence[str], is_head: IsHead = lambda _: False) -> str:
    """Return the delimiter of a CSV file: a comma, a semicolon, a tab or a vertical bar.

    The delimiter is the one with which a cell of the first lines is a column name, that is, `is_head(cell)` is True.
    If there is no such cell, the delimiter is the one that gives the most columns.

    `csv.Sniffer` is not used: it counts the characters of all cells and mistakes commas and spaces in texts for
    delimiters.
    """

    def fitness(delimiter: str) -> tuple[bool, bool, int]:
        try:
            with _cells_of_any_length():
                rows = [*islice(csv.reader(lines, delimiter=delimiter), _HEAD_ROWS)]
        except csv.Error:
            return False, False, 0
        heads = [row for row in rows if any(map(is_head, row))]
        first = next(filter(any, rows), [])
        return bool(heads), any(len(row) > 1 for row in heads), len(max(heads or [first], key=len))

    return max(_DELIMITERS, key=fitness)


def _csv_records(path: Path, is_head: IsHead) -> Records:
    parts = (io.StringIO(line, newline="") if "\r" in line[:-2] else (line,) for line in read_lines(path))
    lines: Iterator[str] = chain.from_iterable(parts)  # Excel for Mac ends lines with a carriage return
    first = [*islice(lines, 100)]
    if first and first[0].startswith("PK\x03\x04"):
        raise ConfigError(f"{path.name} is a workbook: give it the suffix .xlsx, or save it as CSV")
    skipped = int(bool(first) and first[0].lower().startswith("sep="))  # a line that Excel reads
    delimiter = (first[0].rstrip("\r\n")[4:5] if skipped else "") or find_delimiter(first, is_head)
    reader = csv.reader(chain(first[skipped:], lines), delimiter=delimiter, strict=True)

    def rows() -> Iterator[tuple[str, list[Any]]]:
        row, number = 1, 1 + skipped
        try:
            while (cells := next_row(reader)) is not None:
                yield f"row {row}" if row == number else f"row {row} (line {number})", cells  # Excel counts rows
                row, number = row + 1, reader.line_num + 1 + skipped
        except csv.Error as error:
            problem = f"{path.name}, line {number} is not valid CSV ({error})"
            raise ConfigError(f"{problem}; correct the quotation marks") from error

    too_long = f"more cells than names in the header: put text with {_NAMES[delimiter]} in quotation marks"
    yield from _with_header(rows(), is_head, path.name, too_long)


_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def _workbook_records(path: Path, is_head: IsHead) -> Records:
    from zipfile import BadZipFile

    from openpyxl import load_workbook
    from openpyxl.utils.exceptions import InvalidFileException

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
    row: Record = {}
    for number, (name, cell) in enumerate(zip_longest(names, cells[: len(names)]), start=1):
        if name:
            is_missing = cell is None or cell == "" or (isinstance(cell, str) and cell.strip().casefold() in _MISSING)
            row[f"{name} ({number})" if name in row else name] = None if is_missing else cell
    return row


def _check_distinct(names: Sequence[str], file: str) -> None:
    counts = Counter(known_name(name) or folded(name) for name in names if name)
    for name, count in counts.items():
        if count > 1 and name in FIELDS_BY_NAME:
            places = [place for place, own in enumerate(names, start=1) if known_name(own) == name]
            described = " and ".join(f"{names[place - 1]!r} (column {place})" for place in places)
            raise ConfigError(f"{file}: the columns {described} have one name: rename one of them")
