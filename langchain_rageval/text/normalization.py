"""Folding: what two texts may differ in and still be the same words.

Canonical form (NFC), letter case, ё for е, stress marks over Cyrillic vowels, and white space of any kind and length.
Punctuation, digits and diacritics of other alphabets (é, й, ї) stay as they are.
"""

from __future__ import annotations

import re
from unicodedata import normalize

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters, as within the brackets of a pattern, of scripts in which words are not set apart, or endings hang on."""

_STRESS = re.compile("(?:(?<=[аеиоуыэюяіє])|(?<=[еі]\u0308))\u0301+")
_IO = "е\u0308"
_TOKEN = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")


def folded(text: str) -> str:
    """The text in the form in which it is compared: "  Всё  ЕЩЁ" and "все еще" are one.

    Returns:
        In lower case (ß is ss), words set apart by single spaces, none at either end. Folding twice changes nothing.
    """
    letters = normalize("NFD", normalize("NFD", text).casefold())
    plain = _STRESS.sub("", letters).replace(_IO, "е")
    return " ".join(normalize("NFC", plain).split())


def tokens_of(text: str) -> list[str]:
    """The words and numbers of a folded text in order; characters where words are not set apart, as in Chinese."""
    return _TOKEN.findall(text)
