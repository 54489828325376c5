"""Messages of the commands on stderr: one line each, and the warnings of the package."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from langchain_rageval._internal.printable import printable

_LOGGER = logging.getLogger("langchain_rageval")


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
