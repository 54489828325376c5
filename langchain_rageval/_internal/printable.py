"""Text without characters that command the terminal or reverse the writing direction.

Consoles, messages, reports as text and Markdown pass every text of a sample or a file through this file.
"""

from __future__ import annotations

import json
import re

_CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_INVISIBLE = re.compile("[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Return the text on one line, without control characters and marks of the writing direction."""
    return printable_lines(" ".join(text.split()))


def printable_lines(text: str) -> str:
    """Return the text with control characters other than line feeds as U+FFFD, without marks of direction."""
    return _CONTROL.sub("\ufffd", _INVISIBLE.sub("", text))


def printable_json(document: str) -> str:
    """Return a JSON document with the same content whose control characters and marks are JSON escapes."""
    return re.sub(f"{_CONTROL.pattern}|{_INVISIBLE.pattern}", lambda match: json.dumps(match[0])[1:-1], document)
