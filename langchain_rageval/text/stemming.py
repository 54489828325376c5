"""Stems of words: the first five letters, which removes most endings of Russian and English words."""

from __future__ import annotations

import re

from langchain_rageval.text.normalization import words_of

_NUMBER = re.compile(r"\d+")
_STEM = 5
_SHORTEST_WORD = 3


def stem_of(word: str) -> str:
    """Return the first five letters of a word."""
    return word[:_STEM]


def stems_of(text: str) -> set[str]:
    """Return the stems of all numbers and of all words of at least three letters in a text."""
    return {stem_of(word) for word in words_of(text) if len(word) >= _SHORTEST_WORD or word.isdigit()}


def numbers_of(text: str) -> set[str]:
    """Return all runs of digits in a text."""
    return set(_NUMBER.findall(text))
