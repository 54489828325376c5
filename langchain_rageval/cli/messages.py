"""Text for terminals: without characters that command the terminal or reverse the writing direction.

Consoles, messages and JSON output pass every text through this file, whatever its source.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_LOGGER = logging.getLogger("langchain_rageval")


def printable(text: str) -> str:
    """Return the text on one line, without control characters and marks of the writing direction."""
    return printable_lines(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return the text with control characters other than line feeds as U+FFFD, without marks of direction."""
    return _CONTROL.sub("\ufffd", _INVISIBLE.sub("", text))


def printable_json(document: str) -> str:
    """Return a JSON document with the same content whose control characters and marks are JSON escapes."""
    return re.sub(f"{_CONTROL.pattern}|{_INVISIBLE.pattern}", lambda match: json.dumps(match[0])[1:-1], document)


def write_message(message: str) -> None:
    """Write a message of `rageval` to stderr on one line."""
    sys.stderr.write(f"rageval: {printable(message)}\n")


@contextmanager
def printable_warnings() -> Iterator[None]:
    """Write the package's warnings to stderr as messages, unless the process has configured logging."""
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
