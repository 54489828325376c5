"""Index of texts by the stems of their words: which texts contain a phrase in any of its grammatical forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import log

from langchain_rageval.text.normalization import words_of
from langchain_rageval.text.stemming import stem_of

_SHORTEST_WORD = 3
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
        """Return the numbers of the texts that contain the stems of a phrase next to each other, in order.

        Words of one or two letters are ignored. An empty list if the phrase has no other words.
        """
        wanted = _stems(phrase)
        if not wanted:
            return []
        found = [set(self._numbers_by_stem.get(stem, ())) for stem in wanted]
        phrase = _joined(wanted)
        return [number for number in sorted(set.intersection(*found)) if phrase in self._stems_of_text[number]]

    def shares_stem(self, text: str, most: int) -> bool:
        """Return True if the text has a stem that at least two indexed texts contain, and at most `most` of them."""
        return any(2 <= len(self._numbers_by_stem.get(stem, ())) <= most for stem in set(_stems(text)))

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
