"""Marks of an answer in the passages that it was written from: the same words, or the sentences that hold them."""

from __future__ import annotations

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from langchain_rageval.text.content_words import content_words
from langchain_rageval.text.sentences import split_sentences

_WORD = re.compile(r"\S+")
_LONGEST = 50_000
"""Characters of a passage, or of an answer, in which sentences are sought."""
_LEAST_SHARE = 0.2
"""Least share of a statement's words, weighted by rarity, that a marked sentence adds to those before it."""


class _Sentence(NamedTuple):
    passage: int
    begin: int
    end: int
    words: set[str]


class _Folded:
    """Text with single spaces between its words, and the way back to the places of the original."""

    def __init__(self, text: str) -> None:
        words = list(_WORD.finditer(text))
        self.text = " ".join(match[0] for match in words)
        lowered = self.text.lower()
        self.lowered = lowered if len(lowered) == len(self.text) else self.text
        self._begins = [match.start() for match in words]
        self._folded_begins = list(accumulate((len(match[0]) + 1 for match in words), initial=0))

    def original(self, begin: int, end: int) -> tuple[int, int]:
        """Return the span in the original text for a span that is not empty."""
        return self._place(begin), self._place(end - 1) + 1

    def _place(self, at: int) -> int:
        word = bisect(self._folded_begins, at) - 1
        return self._begins[word] + at - self._folded_begins[word]


def mark_answer(answer: str, passages: Sequence[str]) -> list[list[str]]:
    """Return each passage cut into parts, of which every second one is marked; joined they are the passage.

    A sentence of the answer marks the same words in the passages; if they are nowhere, it marks the sentences that
    together hold most of its words. The marks show where to look; they do not prove the answer.
    """
    folded = [_Folded(text[:_LONGEST]) for text in passages]
    sentences = [one for place, text in enumerate(passages) for one in _sentences(place, text, folded[place])]
    frequency = Counter(word for sentence in sentences for word in sentence.words)
    spans: list[set[tuple[int, int]]] = [set() for _ in passages]
    for statement in split_sentences(answer[:_LONGEST]):
        if not content_words(statement):
            continue
        found = [(place, span) for place, text in enumerate(folded) for span in _same_words(statement, text)]
        for place, span in found or _nearest_sentences(statement, sentences, frequency):
            spans[place].add(span)
    return [_parts(text, sorted(marked)) for text, marked in zip(passages, spans, strict=True)]


def _sentences(place: int, text: str, folded: _Folded) -> Iterator[_Sentence]:
    at = 0
    for sentence in split_sentences(text[:_LONGEST]):
        words = _fold(sentence)
        begin = folded.text.find(words, at)
        if begin >= 0:
            at = begin + len(words)
            yield _Sentence(place, *folded.original(begin, at), content_words(sentence))


def _same_words(statement: str, folded: _Folded) -> Iterator[tuple[int, int]]:
    words = _fold(statement.strip(" .!?…«»“”\"'")).lower()
    begin = folded.lowered.find(words)
    while begin >= 0:
        end = begin + len(words)
        if not (_in_word(folded.text, begin) or _in_word(folded.text, end)):
            yield folded.original(begin, end)
        begin = folded.lowered.find(words, end)


def _in_word(text: str, at: int) -> bool:
    """Return True if a word continues across a place of the text."""
    return 0 < at < len(text) and text[at - 1].isalnum() and text[at].isalnum()


def _fold(text: str) -> str:
    return " ".join(text.split())


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
