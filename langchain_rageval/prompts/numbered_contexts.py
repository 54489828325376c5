"""NumberedContexts: contexts as numbered sentences, as every step shows them to the judge.

Chunks are headed `[1]`, `[2]`, … in retrieval order. Each chunk is split by `split_sentences` into sentences, one per
line, and each line starts with the number of its sentence, `[1.1]`. The judge cites these numbers, so that the package
counts the sentences and each verdict names its evidence. A text cannot forge a number, because its content never starts
a line, nor the end of a turn, because control tokens are escaped in what the judge reads.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import without_surrogates
from langchain_rageval.prompts.control_tokens import escape_control_tokens
from langchain_rageval.run.usage_meter import CHARACTERS_PER_TOKEN
from langchain_rageval.text.sentences import split_sentences

_CITATION = re.compile(r"(?<![\w.+-])\d+\.\d+(?![\w.]*\d)")
_BETWEEN = re.compile(r"[\s\[\](),;、，；]*(?:(?:and|&|и|e|和|及|과|와|및)\s*\[?)?")  # between two numbers of a list
# Words and signs before a number that exclude it or open a range, and after it that make it the start of a range.
_EXCLUDED = re.compile(
    r"(?:\b(?:not|except|but|without|from|since|after|before|until|не|нет|кроме|без|от|с|до|после|начиная|non|tranne|"
    r"da|dal|dopo|prima|除了?|除외|不)|[<>≤≥~!¬])[\s\[(#]*\Z",
    re.IGNORECASE,
)
_RANGE = re.compile(
    r"[\s\])]*(?:\.\.|…|\+|[-–—~]\s*(?:\[?\d+(?:\.|\Z)|\Z)|ff\b|onwards?\b|and\s+(?:following|so\s+on|below)\b|et\s+seq|"
    r"etc\b|(?:to|until)\s+the\s+end\b|до\s+конца|и\s+(?:далее|ниже|следующ)|и\s+т\.?\s?[дп]|e\s+seg|及?以[后下]|이후|부터)|f\b",
    re.IGNORECASE,
)
_LONGEST_CACHED = 10_000  # characters
_LONGEST_WORD = 20


class Line(NamedTuple):
    """A sentence of a chunk. Both numbers count from 1; `sentence` is 0 for a chunk without sentences."""

    chunk: int
    sentence: int
    text: str

    @property
    def number(self) -> str:
        """Citation number of the sentence, such as "2.3"."""
        return f"{self.chunk}.{self.sentence}"


@dataclass(frozen=True)
class NumberedContexts:
    """Contexts, or a part of the contexts, as numbered sentences. A part keeps the numbers of the whole."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, contexts: Iterable[str]) -> NumberedContexts:
        """Return contexts, in retrieval order, as numbered sentences."""
        chunks = tuple(contexts)
        return _cached_numbering(chunks) if sum(map(len, chunks)) <= _LONGEST_CACHED else _number_sentences(chunks)

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Sentences by their numbers, in order."""
        return {line.number: line.text for line in self.lines if line.sentence}

    @cached_property
    def block(self) -> str:
        """Text of the numbered contexts, as the judge reads it."""
        return "\n".join(render_lines(self.lines))

    def resolve(self, evidence: Iterable[str]) -> list[str]:
        """Return the existing sentence numbers in a judge's citations, each once, in the order of citation.

        A citation is one number or a list of numbers. A range, and a text with other numbers in it, cite nothing.
        """
        numbers = (number for citation in evidence for number in _listed_numbers(citation))
        return list(dict.fromkeys(number for number in numbers if number in self.sentences))

    def is_citation(self, citation: str) -> bool:
        """Return True if a citation is one or several existing sentence numbers and not a range."""
        numbers = _listed_numbers(citation)
        return bool(numbers) and all(number in self.sentences for number in numbers)

    def select(self, chunks: Container[int]) -> NumberedContexts:
        """Return the chunks with the given numbers. They keep their numbers."""
        return NumberedContexts(tuple(line for line in self.lines if line.chunk in chunks))

    @property
    def chunks(self) -> list[int]:
        """Numbers of the chunks, in order."""
        return list(dict.fromkeys(line.chunk for line in self.lines))

    def numbered_from_one(self) -> NumberedContexts:
        """Return the same chunks, numbered 1, 2, … as the items of a request are."""
        places = {chunk: place for place, chunk in enumerate(self.chunks, 1)}
        if all(chunk == place for chunk, place in places.items()):
            return self
        return NumberedContexts(tuple(line._replace(chunk=places[line.chunk]) for line in self.lines))

    def windows(self, max_tokens: int | None) -> list[NumberedContexts]:
        """Split the contexts between sentences into windows of at most `max_tokens` (characters / 4).

        A sentence that is longer than that gets its own window. Windows without sentences are omitted. None does not
        split.
        """
        if max_tokens is None:
            return [self]
        windows: list[list[Line]] = []
        size = 0.0
        for line in self.lines:
            tokens = (len(line.text) + len(line.number) + 4) / CHARACTERS_PER_TOKEN
            if not windows or size + tokens > max_tokens:
                windows.append([])
                size = 0.0
            windows[-1].append(line)
            size += tokens
        return [NumberedContexts(tuple(lines)) for lines in windows if any(line.sentence for line in lines)]


def _listed_numbers(citation: str) -> list[str]:
    """Return the sentence numbers of a citation; none if it is a range, an exception, or has prose between numbers."""
    before, *separators = _CITATION.split(citation)
    if not separators:
        return []
    after = separators.pop()
    is_list = all(_BETWEEN.fullmatch(text) for text in separators)
    if not is_list or _EXCLUDED.search(before[-_LONGEST_WORD:]) or _RANGE.match(after):
        return []
    return _CITATION.findall(citation)


def render_lines(lines: Sequence[Line], name_chunk: Sequence[str] | None = None) -> Iterator[str]:
    """Yield the lines of the numbered text: a header for each chunk, then its sentences.

    Args:
        lines: sentences; those of one chunk must be adjacent.
        name_chunk: names of chunks 1, 2, … to use instead of their numbers (letters in the examples of prompts).
    """
    for chunk, sentences in groupby(lines, key=lambda line: line.chunk):
        name = name_chunk[chunk - 1] if name_chunk else str(chunk)
        yield f"[{name}]"
        numbered = ((line.sentence, escape_control_tokens(line.text)) for line in sentences if line.sentence)
        yield from (f"[{name}.{sentence}] {text}" for sentence, text in numbered)


def _number_sentences(chunks: tuple[str, ...]) -> NumberedContexts:
    return NumberedContexts(
        tuple(
            Line(chunk, number, sentence)
            for chunk, text in enumerate(chunks, 1)
            for number, sentence in list(enumerate(_sentences(text), 1)) or [(0, "")]
        )
    )


def _sentences(text: str) -> Sequence[str]:
    return _cached_sentences(text) if len(text) <= _LONGEST_CACHED else _split_text(text)


def _split_text(text: str) -> tuple[str, ...]:
    return tuple(" ".join(sentence.splitlines()) for sentence in split_sentences(without_surrogates(text)))


# All metrics of a sample number the same chunks, and neighbouring samples often share chunks. With 256 concurrent calls
# about 90 samples are in progress.
_cached_numbering = lru_cache(maxsize=128)(_number_sentences)
_cached_sentences = lru_cache(maxsize=512)(_split_text)
