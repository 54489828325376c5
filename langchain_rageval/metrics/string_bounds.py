"""Where a text begins and ends: its final full stop, and whether it stands in another as whole words."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_rageval.text.normalization import UNSPACED

_STOPS = ".。… "
_UNSPACED = re.compile(f"[{UNSPACED}]")
_FIGURE_BEFORE = re.compile(r"\d[.,]")
_FIGURE_AFTER = re.compile(r"[.,]\d")


def without_stop(text: str) -> str:
    """A folded text without its final full stop; as it is when it consists of such."""
    return text.rstrip(_STOPS) or text


def stands_in(text: str, whole: str) -> bool:
    """Whether a text stands in another with no letter or digit of the same word, or of the same number, around it."""
    return bool(text) and any(_bounded(whole, at, at + len(text)) for at in _places(text, whole))


def _places(text: str, whole: str) -> Iterator[int]:
    at = whole.find(text)
    while at >= 0:
        yield at
        at = whole.find(text, at + 1)


def _bounded(whole: str, start: int, end: int) -> bool:
    before, first, last, after = whole[start - 1 : start], whole[start], whole[end - 1], whole[end : end + 1]
    if _joined(before, first) or _joined(last, after):
        return False
    cut_before = first.isdigit() and start > 1 and _FIGURE_BEFORE.match(whole, start - 2)
    return not cut_before and not (last.isdigit() and _FIGURE_AFTER.match(whole, end))


def _joined(left: str, right: str) -> bool:
    """Whether two neighbours are of one word."""
    return bool(left and right) and all(c.isalnum() and not _UNSPACED.match(c) for c in (left, right))
