"""Escaping of untrusted text for terminals."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """Return the text on one line; control characters, which could change the terminal, are replaced by U+FFFD."""
    return _CONTROL.sub("\ufffd", " ".join(text.split()))
