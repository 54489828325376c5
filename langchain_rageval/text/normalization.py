"""Text normalization and tokenization, for comparing texts word by word.

Normalization removes differences that do not change a word: Unicode form (NFC is used), letter case, ё and е, stress
marks over Cyrillic vowels, and the kind and length of white space. Punctuation, digits and the diacritics of other
letters (é, й, ї) are kept.
"""

from __future__ import annotations

import re
from unicodedata import normalize

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character ranges for a regular expression: scripts without spaces between words, and Korean with its suffixes."""

_STRESS_MARK = "\u0301"  # encyclopedias mark the stressed vowel with it
_STRESS = re.compile(f"(?:(?<=[аеиоуыэюяіє])|(?<=[еі]\u0308)){_STRESS_MARK}+")
_IO = "е\u0308"
_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")


def normalize_text(text: str) -> str:
    """Return the normalized form of a text: "  Всё  ЕЩЁ" becomes "все еще".

    Returns:
        Case-folded text (ß becomes ss) in NFC, with single spaces between words and none at the ends. Normalizing twice
        gives the same text as normalizing once.
    """
    letters = normalize("NFD", normalize("NFD", text).casefold())
    plain = _STRESS.sub("", letters).replace(_IO, "е")
    return " ".join(normalize("NFC", plain).split())


def tokens_of(text: str) -> list[str]:
    """Return the words and numbers of a normalized text in order; in scripts such as Chinese, each character."""
    return _TOKEN.findall(text)


def words_of(text: str) -> list[str]:
    """Return the lower-case words and numbers of any text in order, without stress marks and with е for ё.

    Cheaper than `tokens_of(normalize_text(text))` and less thorough: the Unicode form is not changed, and characters
    of scripts without spaces are not separated.
    """
    return _WORD.findall(text.lower().replace("ё", "е").replace(_STRESS_MARK, ""))
