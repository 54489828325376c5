"""Marks by which an answer cites numbered sources: `[1]`, `[2, 4-6]`, `(source 2)`, `(источник 2)`, `【3】`."""

from __future__ import annotations

import re

_NUMBERS = r"\d{1,3}(?:\s*(?:[,;&–—-]|и|and)\s*\d{1,3})*"
_WORD = r"(?:(?:см\.|see)\s*)?(?:источник\w*|ист\.|документ\w*|фрагмент\w*|sources?|documents?|docs?|chunks?|refs?\.?)"

NUMBERED_MARK = re.compile(
    rf"\[\s*\^?(?:{_WORD}\s*)?[№#]?\s*({_NUMBERS})\s*\]|\(\s*{_WORD}\s*[№#]?\s*({_NUMBERS})\s*\)|【\s*({_NUMBERS})[^】]*】",
    re.IGNORECASE,
)
"""Pattern of a mark; one of its groups is the numbers."""
