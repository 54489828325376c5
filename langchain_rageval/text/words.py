"""Words of a text: normalization, tokens, stems, content words, and the overlap of two texts."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from itertools import pairwise
from math import log
from unicodedata import category, normalize

from langchain_rageval.text.language import FUNCTION_WORDS

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Character ranges for a regular expression: scripts without spaces between words, and Korean with its suffixes."""

_STRESS_MARK = "\u0301"  # encyclopedias mark the stressed vowel with it
_STRESS = re.compile(f"(?:(?<=[аеиоуыэюяіє])|(?<=[еі]\u0308)){_STRESS_MARK}+")
_IO = "е\u0308"
_WORD = re.compile(r"[^\W_]+")
TOKEN = re.compile(f"[{UNSPACED}]|[^\\W_{UNSPACED}]+")


def normalize_text(text: str) -> str:
    """Return the normalized form of a text: "  Всё  ЕЩЁ" becomes "все еще".

    Returns:
        Case-folded text (ß becomes ss) in NFC, with single spaces between words and none at the ends. Normalizing twice
        gives the same text as normalizing once.
    """
    letters = normalize("NFD", normalize("NFD", text).casefold())
    plain = (_STRESS.sub("", letters) if _STRESS_MARK in letters else letters).replace(_IO, "е")
    return " ".join(normalize("NFC", plain).split())


def tokens_of(text: str) -> list[str]:
    """Return the words and numbers of a normalized text in order.

    In scripts without spaces between words, such as Chinese, each character counts as a word.
    """
    return TOKEN.findall(text)


def words_of(text: str) -> list[str]:
    """Return the lower-case words and numbers of any text in order, without stress marks and with е for ё.

    Cheaper than `tokens_of(normalize_text(text))` and less thorough: the Unicode form is not changed, and characters
    of scripts without spaces are not separated.
    """
    return _WORD.findall(text.lower().replace("ё", "е").replace(_STRESS_MARK, ""))


def has_content(text: str) -> bool:
    """Return True if a text has a letter, a digit or a symbol such as an emoji, and not only spaces and punctuation."""
    return any(category(character)[0] in "LNS" for character in text if character != "`")


_NUMBER = re.compile(r"\d+")
_STEM = 5
_SHORTEST_WORD = 3


def stem_of(word: str) -> str:
    """Return the first five letters of a word."""
    return word[:_STEM]


def stems_of(text: str) -> set[str]:
    """Return the stems of all numbers and of all words of at least three letters in a text."""
    return {word[:_STEM] for word in words_of(text) if len(word) >= _SHORTEST_WORD or word.isdigit()}


def numbers_of(text: str) -> set[str]:
    """Return all runs of digits in a text."""
    return set(_NUMBER.findall(text))


_FIRST_UNSPACED = "\u0e00"  # first letter of the scripts in which single characters count as words
_FUNCTION_WORDS = {normalize_text(word) for words in FUNCTION_WORDS.values() for word in words}


def content_words(text: str) -> set[str]:
    """Return the stems of a text's words, without function words and words of one or two letters."""
    return {
        stem_of(word)
        for word in tokens_of(normalize_text(text))
        if word not in _FUNCTION_WORDS and (len(word) >= _SHORTEST_WORD or word.isdigit() or word >= _FIRST_UNSPACED)
    }


_SIZE = 20  # characters; a shorter run that two texts share says nothing about where they come from
_MOST_REPLACED = 0.1  # share of the words


def shared_share(one: str, other: str) -> float:
    """Return the share of the shorter text that the longer text also contains, from 0 to 1; 0 if a text is blank.

    White space is ignored. Shared parts count if they are at least 20 characters long, in any order. A text of fewer
    than 20 characters counts only if the longer text contains the whole.
    """
    shorter, longer = sorted(("".join(normalize_text(text).split()) for text in (one, other)), key=len)
    if not shorter:
        return 0.0
    if shorter in longer:
        return 1.0
    runs = {longer[at : at + _SIZE] for at in range(len(longer) - _SIZE + 1)}
    shared = end = 0
    for at in range(len(shorter) - _SIZE + 1):
        if shorter[at : at + _SIZE] in runs:
            shared += at + _SIZE - max(at, end)
            end = at + _SIZE
    return shared / len(shorter)


def common_share(one: str, other: str) -> float:
    """Return the `shared_share` of two texts, but 0 if the texts follow one pattern with different words.

    `shared_share` is the share of the shorter text, from 0 to 1, that the longer text also contains. The descriptions
    of two products, for example, follow one pattern. Shared words are words that both texts contain in the same order.
    Between two shared words, each text may have other words, say 2 and 5; the smaller number, 2, is the number of words
    that are replaced there. Before the first and after the last shared word, at most one word is replaced. Two texts
    follow one pattern if more than a tenth of their words, shared and replaced, are replaced. A `shared_share` of 1 is
    always returned.
    """
    share = shared_share(one, other)
    return share if share in (0.0, 1.0) or _replaced_share(one, other) <= _MOST_REPLACED else 0.0


def _replaced_share(one: str, other: str) -> float:
    """Return the share of words that differ at the same place; the ends count once, since texts may be cut anywhere.

    The first and the last word of each text, which a splitter may have cut, are left out.
    """
    words, others = sorted((tokens_of(normalize_text(text))[1:-1] for text in (one, other)), key=len)
    *runs, end = SequenceMatcher(None, words, others).get_matching_blocks()
    if not runs:
        return 0.0
    gaps = [min(after.a - run.a - run.size, after.b - run.b - run.size) for run, after in pairwise([*runs, end])]
    replaced = min(runs[0].a, runs[0].b, 1) + sum(gaps[:-1]) + min(gaps[-1], 1)
    return replaced / (replaced + sum(run.size for run in runs))


_RUSSIAN_ENDINGS = "аеиоуыэюяйь"


class PhraseIndex:
    """Inverted index of texts: the numbers of the texts (from 0) that contain each stem.

    Args:
        texts: texts to index, in order.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        self._stems_of_text: list[str] = []
        self._numbers_by_stem: dict[str, list[int]] = defaultdict(list)
        for number, text in enumerate(texts):
            stems = _stems(text)
            self._stems_of_text.append(_joined(stems))
            for stem in set(stems):
                self._numbers_by_stem[stem].append(number)

    def texts_with(self, phrase: str) -> list[int]:
        """Return the numbers, ascending, of the texts that contain the stems of a phrase as an unbroken sequence.

        Words of one or two letters are ignored. The list is empty if the phrase has no other words.
        """
        wanted = _stems(phrase)
        if not wanted:
            return []
        found = [set(self._numbers_by_stem.get(stem, ())) for stem in wanted]
        phrase = _joined(wanted)
        return [number for number in sorted(set.intersection(*found)) if phrase in self._stems_of_text[number]]

    def shares_stem(self, text: str, most: int) -> bool:
        """Return True if a stem of the text occurs in at least two and at most `most` of the indexed texts."""
        return any(2 <= len(self._numbers_by_stem.get(stem, ())) <= most for stem in set(_stems(text)))

    def weighted_share(self, text: str, within: str) -> float:
        """Return the share of a text's stems that the text `within` also has; a rare stem has a higher weight.

        Only stems that occur in the indexed texts count; 0 if there are none. The weight of a stem is its inverse
        document frequency, as in `nearest`.
        """
        known = {stem: self._numbers_by_stem[stem] for stem in set(_stems(text)) if stem in self._numbers_by_stem}
        weights = {stem: log(1 + len(self._stems_of_text) / len(numbers)) for stem, numbers in known.items()}
        shared = sum(weights[stem] for stem in weights.keys() & set(_stems(within)))
        return shared / sum(weights.values()) if weights else 0.0

    def nearest(self, text: str) -> list[int]:
        """Return the numbers of the texts that share stems with a text, the nearest first.

        Rare stems count more: the weight of a stem is its inverse document frequency (Spärck Jones, 1972).
        """
        weights: dict[int, float] = defaultdict(float)
        for stem in sorted(set(_stems(text))):
            numbers = self._numbers_by_stem.get(stem, ())
            for number in numbers:
                weights[number] += log(1 + len(self._stems_of_text) / len(numbers))
        return sorted(weights, key=lambda number: (-weights[number], number))


def _stems(text: str) -> list[str]:
    """Return the stems of the words of a text in order, without words of one or two letters.

    Russian endings of short words are removed, so that "Изар" and "Изаре", "баня" and "баню" have one stem.
    """
    words = (word for word in words_of(text) if len(word) >= _SHORTEST_WORD or word.isdigit())
    return [stem_of(word).rstrip(_RUSSIAN_ENDINGS) or word for word in words]


def _joined(stems: Sequence[str]) -> str:
    return f" {' '.join(stems)} "
