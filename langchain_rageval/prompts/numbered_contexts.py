"""The numbered block: contexts as every step shows them to the judge.

Chunks `[1]`, `[2]`, … in retrieval order, each split by our own splitter into sentences, one a line, beginning with its
number `[1.1]`. The judge cites numbers, so sentence counts are ours, each verdict shows its evidence, and a text cannot
forge a number: what it says never starts a line.
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
from langchain_rageval.run.usage_meter import CHARACTERS_PER_TOKEN
from langchain_rageval.text.sentences import split_sentences

_CITATION = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.]*\d)")
_BETWEEN = re.compile(r"[\s\[\](),;、，；]*(?:(?:and|&|и|e|和|及|과|와|및)\s*\[?)?")  # two numbers of a list
_RANGE = re.compile(r"\d\.\d+\]?\s*(?:[-–—…~]|\.\.|to|по|до)\s*\[?\d")
_LONGEST_KEPT = 10_000  # characters


class Line(NamedTuple):
    """One sentence of a chunk; `sentence` is 0 for a chunk without sentences. Numbers count from 1."""

    chunk: int
    sentence: int
    text: str

    @property
    def number(self) -> str:
        """The number by which it is cited, such as "2.3"."""
        return f"{self.chunk}.{self.sentence}"


@dataclass(frozen=True)
class NumberedContexts:
    """Contexts, or a window of them, as numbered sentences. Numbers stay those of the whole."""

    lines: tuple[Line, ...]

    @classmethod
    def of(cls, contexts: Iterable[str]) -> NumberedContexts:
        """Number the sentences of contexts in retrieval order."""
        chunks = tuple(contexts)
        return _kept_numbering(chunks) if sum(map(len, chunks)) <= _LONGEST_KEPT else _numbering(chunks)

    @cached_property
    def sentences(self) -> dict[str, str]:
        """Number to sentence, in order."""
        return {line.number: line.text for line in self.lines if line.sentence}

    @cached_property
    def block(self) -> str:
        """The text that the judge reads."""
        return "\n".join(numbered_lines(self.lines))

    def cited(self, evidence: Iterable[str]) -> list[str]:
        """The sentence numbers in a judge's citations that exist here, each once, in the order of citation."""
        numbers = (number for citation in evidence for number in _CITATION.findall(citation))
        return list(dict.fromkeys(number for number in numbers if number in self.sentences))

    def holds(self, citation: str) -> bool:
        """Whether a citation names a sentence or a list of them, none that does not exist here, and no range."""
        numbers, between = _CITATION.findall(citation), _CITATION.split(citation)[1:-1]
        listed = all(_BETWEEN.fullmatch(text) for text in between) and not _RANGE.search(citation)
        return bool(numbers) and listed and all(number in self.sentences for number in numbers)

    def only(self, chunks: Container[int]) -> NumberedContexts:
        """Some of the chunks, under their own numbers."""
        return NumberedContexts(tuple(line for line in self.lines if line.chunk in chunks))

    def windows(self, max_tokens: int | None) -> list[NumberedContexts]:
        """Cut into parts of at most `max_tokens` (characters / 4) between sentences; a longer sentence stands alone.

        Windows that would hold no sentence are left out.
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


def numbered_lines(lines: Sequence[Line], name_chunk: Sequence[str] | None = None) -> Iterator[str]:
    """The lines of a block.

    Args:
        lines: sentences, those of one chunk together.
        name_chunk: names to use for chunks 1, 2, … in place of their numbers (letters, in the examples of prompts).
    """
    for chunk, sentences in groupby(lines, key=lambda line: line.chunk):
        name = name_chunk[chunk - 1] if name_chunk else str(chunk)
        yield f"[{name}]"
        yield from (f"[{name}.{line.sentence}] {line.text}" for line in sentences if line.sentence)


def _numbering(chunks: tuple[str, ...]) -> NumberedContexts:
    return NumberedContexts(
        tuple(
            Line(chunk, number, sentence)
            for chunk, text in enumerate(chunks, 1)
            for number, sentence in list(enumerate(_sentences(text), 1)) or [(0, "")]
        )
    )


def _sentences(text: str) -> Sequence[str]:
    return _kept_sentences(text) if len(text) <= _LONGEST_KEPT else _split(text)


def _split(text: str) -> tuple[str, ...]:
    return tuple(" ".join(sentence.splitlines()) for sentence in split_sentences(without_surrogates(text)))


# The metrics of one sample number the same chunks, and neighbouring samples often retrieve one of them again; with 256
# slots some 90 samples are under way.
_kept_numbering = lru_cache(maxsize=128)(_numbering)
_kept_sentences = lru_cache(maxsize=512)(_split)
