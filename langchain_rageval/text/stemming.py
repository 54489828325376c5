"""Words by their stems: the first five letters, which lets most endings of Russian and English go."""

from __future__ import annotations

import re

_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"\d+")
_STRESS = "\u0301"  # as encyclopedias mark it
_STEM = 5
_SHORTEST_WORD = 3


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without stress marks, ё as е; numbers are words."""
    return _WORD.findall(text.lower().replace("ё", "е").replace(_STRESS, ""))


def stem_of(word: str) -> str:
    """What is compared of a word."""
    return word[:_STEM]


def stems_of(text: str) -> set[str]:
    """The stems of the words of at least three letters, and of the numbers."""
    return {stem_of(word) for word in words_of(text) if len(word) >= _SHORTEST_WORD or word.isdigit()}


def numbers_of(text: str) -> set[str]:
    """The runs of digits in a text."""
    return set(_NUMBER.findall(text))
