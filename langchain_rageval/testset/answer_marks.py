"""Marks of an answer in the passages that it was written from: the same words, or the sentences that hold them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from langchain_rageval.text.content_words import content_words
from langchain_rageval.text.sentences import split_sentences

_LONGEST = 50_000
"""Characters of a passage, or of an answer, in which sentences are sought."""
_LEAST_SHARE = 0.2
"""Least share of a statement's words, weighted by rarity, that a marked sentence adds to those before it."""


class _Sentence(NamedTuple):
    passage: int
    begin: int
    end: int
    words: set[str]


def mark_answer(answer: str, passages: Sequence[str]) -> list[list[str]]:
    """Return each passage cut into parts, of which every second one is marked; joined they are the passage.

    A sentence of the answer marks the same words in the passages; if they are nowhere, it marks the sentences that
    together hold most of its words. The marks show where to look; they do not prove the answer.
    """
    sentences = [sentence for place, text in enumerate(passages) for sentence in _sentences(place, text)]
    frequency = Counter(word for sentence in sentences for word in sentence.words)
    spans: list[set[tuple[int, int]]] = [set() for _ in passages]
    for statement in split_sentences(answer[:_LONGEST]):
        if not content_words(statement):
            continue
        found = [(place, span) for place, text in enumerate(passages) for span in _same_words(statement, text)]
        for place, span in found or _nearest_sentences(statement, sentences, frequency):
            spans[place].add(span)
    return [_parts(text, sorted(marked)) for text, marked in zip(passages, spans, strict=True)]


def _sentences(place: int, text: str) -> Iterator[_Sentence]:
    head, at = text[:_LONGEST], 0
    for sentence in split_sentences(head):
        match = _pattern(sentence).search(head, at)
        if match:
            at = match.end()
            yield _Sentence(place, match.start(), at, content_words(sentence))


def _same_words(statement: str, text: str) -> Iterator[tuple[int, int]]:
    words = statement.strip(" .!?…«»“”\"'")
    for match in _pattern(words, re.IGNORECASE).finditer(text[:_LONGEST]):
        if not (_in_word(text, match.start()) or _in_word(text, match.end())):
            yield match.span()


def _in_word(text: str, at: int) -> bool:
    """Return True if a word continues across a place of the text."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _pattern(words: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern for words that any white space may separate."""
    return re.compile(r"\s+".join(map(re.escape, words.split())), flags)


def _nearest_sentences(
    statement: str, sentences: Sequence[_Sentence], frequency: Counter[str]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield passage and span of the sentences that hold the words of a statement, the one with most of them first."""
    missing = {word: 1 / max(1, frequency[word]) for word in content_words(statement)}
    least = _LEAST_SHARE * sum(missing.values())
    while missing and sentences:
        weights = [sum(missing.get(word, 0) for word in sentence.words) for sentence in sentences]
        best = max(range(len(sentences)), key=lambda n: (weights[n], -len(sentences[n].words)))
        if weights[best] < least:
            return
        passage, begin, end, words = sentences[best]
        yield passage, (begin, end)
        missing = {word: weight for word, weight in missing.items() if word not in words}


def _parts(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    cuts = [0]
    for begin, end in spans:
        if begin >= cuts[-1]:
            cuts += [begin, end]
        else:
            cuts[-1] = max(cuts[-1], end)  # overlaps the mark before it
    return [text[begin:end] for begin, end in pairwise([*cuts, len(text)])]
