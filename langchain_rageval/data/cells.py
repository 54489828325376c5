"""Lists and mappings in the cells of tables: as JSON, as Python prints them, and as numpy prints arrays of texts."""

from __future__ import annotations

import ast
import io
import json
import math
import tokenize
import warnings
from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

from langchain_rageval.data.vocabulary import CONTAINERS, FIELDS_BY_NAME, LIST_FIELDS, known_name
from langchain_rageval.errors import SampleError

_LARGEST = 1e15  # above, a float does not hold every whole number
_TEXT_FIELDS = frozenset({"question", "answer", "contexts", "references", "reference_contexts"})
_MAPPINGS = frozenset({"relevance", "metadata"})
_OPENINGS = ("[", "(", "{")
_MESSAGES = frozenset({"messages", "user_input"})
_BULK = frozenset({"trace", "spans", "assessments", "events", "record_json", "calls", "item", "sample", "tags"})
_NAMED = {"null": None, "none": None, "true": True, "false": False, "nan": None}
_EMPTY = ("none", "null")


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


def decode_row(row: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a row of a table with lists and mappings in place of the texts that contain them.

    Args:
        row: name of a column to its cell.
        fields: fields of `Sample` mapped to names of columns.

    Raises:
        SampleError: if a cell begins like a list of texts but is none, for example because it was cut off.
    """
    meaning = {name.partition(".")[0]: field for field, name in fields.items()}
    return {name: _decoded(name, cell, meaning.get(name)) for name, cell in row.items()}


def _decoded(name: str, cell: Any, field: str | None) -> Any:
    known = known_name(name) or known_name(name.rpartition(".")[2]) or name
    field = field or FIELDS_BY_NAME.get(known, "")
    if not isinstance(cell, str):
        return number_to_text(cell) if field in _TEXT_FIELDS else cell
    text = cell.strip()
    if not text.startswith(_OPENINGS):
        return None if field in LIST_FIELDS - {"references"} and text.casefold() in _EMPTY else cell
    if field == "history":
        value = parse_literal(text)
        return value if isinstance(value, list | Mapping) else cell
    if field in LIST_FIELDS:
        if not text.startswith("[") and (field == "references" or known not in CONTAINERS | {"context"}):
            return cell
        return _list_in(text, name, cell)
    if field in _MAPPINGS or known in CONTAINERS | _MESSAGES | _BULK:
        value = parse_literal(text)
        if known in _MESSAGES and not _holds_mappings(value):
            return cell
        return value if isinstance(value, list | Mapping) else cell
    return cell


def _list_in(text: str, name: str, cell: str) -> Any:
    value = parse_literal(text)
    if isinstance(value, list | Mapping):
        return value
    if text.startswith(("['", '["', "[Document(", "[{")):
        problem = f"{name!r} begins like a list, but is none: it ends with {text[-20:]!r}"
        raise SampleError(f"{problem}; if the cell was cut off, save the table as JSON lines", None)
    return cell


def _holds_mappings(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)


def parse_literal(text: str) -> Any:
    """Return the list or mapping in a text, as JSON or as Python prints it; None if there is none.

    Calls such as `Document(page_content='…')` become mappings of their keyword arguments. Texts without commas between
    them are the items of a numpy array.
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
