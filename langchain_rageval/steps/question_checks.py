"""Checks of a question that was rewritten from a conversation, without a model: no names or numbers from elsewhere.

A name is a capitalized word within a sentence, or a word in letters of another alphabet than the question's. The first
word of a sentence is not checked: it is capitalized in any case. In German, where all nouns are capitalized, a noun
after an article, another determiner or a number is not checked either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from langchain_rageval.text.language import FUNCTION_WORDS, detect_language
from langchain_rageval.text.normalization import normalize_text, tokens_of
from langchain_rageval.text.sentences import split_sentences
from langchain_rageval.text.stemming import numbers_of, stem_of

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_COMPOUND = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)+")
_POSSESSIVE = re.compile(r"['’]s$", re.IGNORECASE)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r"(?<=\d)[\s\u00a0\u202f.,'’](?=\d{3}(?!\d))")
_VOWELS = re.compile("[аеёиоуыэюяьъйaeiouy]")
_FUNCTION_WORDS = frozenset().union(*FUNCTION_WORDS.values())
_GERMAN_NOUN = re.compile(
    r"\b(?i:der|die|das|den|dem|des|(?:[mds]?ein|kein|ihr|unser|euer)(?:e[mnrs]?)?|eure[mnrs]?"
    r"|(?:dies|jed|jen|welch|manch|solch|all|viel|wenig|mehrer|einig|beid)e[mnrs]?|viel|pro|zum|zur|im|am|beim|vom|ins"
    r"|\d+)\s+(?:[a-zäöüß]+e[mnrs]?\s+)*",
)
"""Determiner or number, and the adjectives after it: what stands before a noun."""
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
    joined = {match.replace("-", "") for match in _COMPOUND.findall(source.casefold())}
    words = {*tokens_of(normalize_text(source)), *(word.casefold() for word in _WORD.findall(source)), *joined}
    stems = {stem_of(word) for word in words}
    question = _COMPOUND.sub(lambda match: _joined_if_known(match[0], words), question)
    names = [name for name in _names(question, source) if not _is_known(name, words, stems)]
    return list(dict.fromkeys([*names, *numbers]))


def _joined_if_known(compound: str, words: set[str]) -> str:
    """Return a compound without its hyphens if it is among the words: "Wi-Fi" beside "wifi"."""
    joined = compound.replace("-", "")
    return joined if joined.casefold() in words else compound


def _numbers(text: str) -> list[str]:
    """Return the numbers of a text with a point before their decimals and without separators of thousands."""
    return [number.replace(",", ".") for number in _NUMBER.findall(_THOUSANDS.sub("", text))]


def _names(question: str, source: str) -> Iterator[str]:
    """Yield the words of a question that may be names."""
    is_cyrillic = bool(re.search("[а-яё]", source, re.IGNORECASE))
    is_german = detect_language(f"{question}\n{source}") == "de"
    for sentence in split_sentences(question) or [question]:
        nouns = {match.end() for match in _GERMAN_NOUN.finditer(sentence)} if is_german else set()
        for place, match in enumerate(_WORD.finditer(sentence)):
            word = match[0]
            is_foreign = is_cyrillic and word.isascii()
            is_name = place and word[0].isupper() and word.casefold() not in _FUNCTION_WORDS
            if is_foreign or (is_name and match.start() not in nouns):
                yield word


def _is_known(name: str, words: set[str], stems: set[str]) -> bool:
    """Return True if a text with these words contains a name, perhaps with another ending."""
    parts = tokens_of(normalize_text(_POSSESSIVE.sub("", name)))
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
