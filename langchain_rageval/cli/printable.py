"""Texts of others, made safe to show in a terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def printable(text: str) -> str:
    """The text on one line, without the control characters by which it could steer a terminal."""
    return _CONTROL.sub("\ufffd", " ".join(text.split()))
