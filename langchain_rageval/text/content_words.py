"""Words of a text that carry content, for finding the sentence that another text is about."""

from __future__ import annotations

from langchain_rageval.text.language import FUNCTION_WORDS
from langchain_rageval.text.normalization import normalize_text, tokens_of
from langchain_rageval.text.stemming import stem_of

_SHORTEST_WORD = 3
_FIRST_UNSPACED = "\u0e00"
"""First letter of the scripts in which single characters count as words."""
_FUNCTION_WORDS = {normalize_text(word) for words in FUNCTION_WORDS.values() for word in words}


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words, without function words and words of one or two letters."""
    return {
        stem_of(word)
        for word in tokens_of(normalize_text(text))
        if word not in _FUNCTION_WORDS and (len(word) >= _SHORTEST_WORD or word.isdigit() or word >= _FIRST_UNSPACED)
    }
