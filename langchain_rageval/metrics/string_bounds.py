"""Whole-word search in normalized texts, and removal of a final full stop."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_rageval.text.normalization import UNSPACED

_STOPS = ".。… "
_UNSPACED = re.compile(f"[{UNSPACED}]")
_DIGIT_AND_MARK = re.compile(r"\d[.,]")
_MARK_AND_DIGIT = re.compile(r"[.,]\d")


def without_stop(text: str) -> str:
    """Return a normalized text without its final full stop; unchanged if it consists of full stops."""
    return text.rstrip(_STOPS) or text


def contains_whole_words(whole: str, text: str) -> bool:
    """Return True if a text occurs in another as whole words and whole numbers; an empty text never occurs.

    In scripts without spaces between words, any occurrence counts.
    """
    return bool(text) and any(_is_bounded(whole, at, at + len(text)) for at in _occurrences(text, whole))


def _occurrences(text: str, whole: str) -> Iterator[int]:
    at = whole.find(text)
    while at >= 0:
        yield at
        at = whole.find(text, at + 1)


def _is_bounded(whole: str, start: int, end: int) -> bool:
    before, first, last, after = whole[start - 1 : start], whole[start], whole[end - 1], whole[end : end + 1]
    if _same_word(before, first) or _same_word(last, after):
        return False
    cut_before = first.isdigit() and start > 1 and _DIGIT_AND_MARK.match(whole, start - 2)
    return not cut_before and not (last.isdigit() and _MARK_AND_DIGIT.match(whole, end))


def _same_word(left: str, right: str) -> bool:
    """Return True if two adjacent characters belong to one word; an empty string belongs to none."""
    return bool(left and right) and all(c.isalnum() and not _UNSPACED.match(c) for c in (left, right))
