"""Checks of a question that was rewritten from a conversation, without a model: no names or numbers from elsewhere.

A name is a capitalized word within a sentence, or a word in letters of another alphabet than the question's. The first
word of a sentence is not checked: it is capitalized in any case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_rageval.text.language import FUNCTION_WORDS
from langchain_rageval.text.normalization import normalize_text, tokens_of
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stem_of

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d)[\s\u00a0\u202f.,'’](?=\d{3}(?!\d))")
_VOWELS = re.compile("[аеёиоуыэюяьъйaeiouy]")
_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_LONGEST_ENDING = 3  # letters
_FEWEST_CONSONANTS = 2


def new_facts(question: str, source: str) -> list[str]:
    """Return the names and numbers of a question that a text does not contain, each once, in their order.

    Names are compared without their endings: "Льва" is a form of "Лев". Digits may be grouped otherwise: "2,000" is
    "2000".

    Args:
        question: the rewritten question.
        source: the conversation and the original question.
    """
    known_numbers = {*_numbers(source), *numbers_of(source)}
    numbers = [number for number in _numbers(question) if number not in known_numbers]
    words = set(tokens_of(normalize_text(source))) | {word.casefold() for word in _WORD.findall(source)}
    stems = {stem_of(word) for word in words}
    names = [name for name in _names(question, source) if not _is_known(normalize_text(name), words, stems)]
    return list(dict.fromkeys([*names, *numbers]))


def _numbers(text: str) -> list[str]:
    """Return the numbers of a text with a point before their decimals and without separators of thousands."""
    return [number.replace(",", ".") for number in _NUMBER.findall(_THOUSANDS.sub("", text))]


def _names(question: str, source: str) -> Iterator[str]:
    """Yield the words of a question that may be names."""
    is_cyrillic = bool(re.search("[а-яё]", source, re.IGNORECASE))
    for sentence in split_sentences(question) or [question]:
        for place, word in enumerate(_WORD.findall(sentence)):
            is_foreign = is_cyrillic and word.isascii()
            if is_foreign or (place and word[0].isupper() and word.casefold() not in _FUNCTION_WORDS):
                yield word


def _is_known(name: str, words: set[str], stems: set[str]) -> bool:
    """Return True if a text with these words contains a name, perhaps with another ending."""
    parts = tokens_of(name)
    return all(stem_of(part) in stems or any(_are_forms(part, word) for word in words) for part in parts)


def _are_forms(one: str, other: str) -> bool:
    """Return True if two words may be forms of one name: "лев" and "льва", "ян" and "яна"."""
    if one[0] != other[0] or abs(len(one) - len(other)) > _LONGEST_ENDING:
        return False
    short, long = sorted((one, other), key=len)
    if len(short) > 1 and long.startswith(short):
        return True
    skeletons = sorted((_VOWELS.sub("", word) for word in (one, other)), key=len)
    return len(skeletons[0]) >= _FEWEST_CONSONANTS and skeletons[1].startswith(skeletons[0])
