"""Parts of a text: consecutive parts that end where a sentence ends, for texts that are too long for one request."""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_rageval.text.sentences import split_sentences

_NOT_SPACE = re.compile(r"\S")


def text_parts(text: str, most_characters: int) -> list[str]:
    """Return consecutive parts of a text of at most `most_characters`, without white space at their ends.

    A sentence that is longer is split between words, and a longer word within it. All non-space characters are kept, in
    order.
    """
    if len(text) <= most_characters:
        return [text]
    parts: list[str] = []
    start = boundary = 0
    for end in _sentence_ends(text):
        if end - start > most_characters and boundary > start:
            parts.append(text[start:boundary])
            start = boundary
        while end - start > most_characters:
            cut = _word_end(text, start, start + most_characters)
            parts.append(text[start:cut])
            start = cut
        boundary = end
    parts.append(text[start:])
    return [part.strip() for part in parts if part.strip()]


def halves(text: str) -> list[str]:
    """Return a text split at the end of the sentence nearest to its middle; an empty list if it is one sentence."""
    ends = [end for end in _sentence_ends(text) if text[end:].strip()]
    if not ends:
        return []
    middle = min(ends, key=lambda end: abs(end - len(text) // 2))
    return [text[:middle].strip(), text[middle:].strip()]


def _sentence_ends(text: str) -> Iterator[int]:
    """Yield the position after each sentence. The sentences hold every non-space character of the text in order."""
    positions = [match.start() for match in _NOT_SPACE.finditer(text)]
    seen = 0
    for sentence in split_sentences(text):
        seen += len("".join(sentence.split()))
        yield positions[seen - 1] + 1


def _word_end(text: str, start: int, limit: int) -> int:
    """Return the end of the last word that ends before `limit`; `limit` itself within one long word."""
    space = max(text.rfind(space, start + 1, limit) for space in " \n\t")
    return space if space > start else limit
