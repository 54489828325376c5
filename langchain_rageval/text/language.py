"""Detect the language of a text by its script and function words, and choose the language of an HTML page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from langchain_rageval._internal.files import load_yaml
from langchain_rageval._internal.page import PageLanguage, check_page_language

_SAMPLE = 2000  # leading characters that are analysed

WORDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    kind: {language: words.split() if isinstance(words, str) else words for language, words in by_language.items()}
    for kind, by_language in load_yaml((Path(__file__).parent / "words.yaml").read_text(encoding="utf-8")).items()
}
"""Words of each kind by ISO 639-1 code of their language; see words.yaml."""

FUNCTION_WORDS = {language: frozenset(words) for language, words in WORDS["function_words"].items()}
"""Lower-case function words of each language, by ISO 639-1 code."""

_LANGUAGES_OF: dict[str, list[str]] = {}  # function word to the languages that use it
for _language, _words in FUNCTION_WORDS.items():
    for _word in _words:
        _LANGUAGES_OF.setdefault(_word, []).append(_language)


class _Script(NamedTuple):
    """Patterns of one script: its words, and per language the letters or particles that count like function words."""

    words: re.Pattern[str]
    marks: dict[str, re.Pattern[str]]


_SCRIPTS = {  # keyed by the language that is assumed if only the script is known
    "en": _Script(re.compile("[a-zß-öø-˿ḁ-ỹ]+"), {}),
    "ru": _Script(
        re.compile("[а-ӿ]+"),
        {"uk": re.compile("[іїєґ]"), "be": re.compile("[іў]|ць|дз"), "kk": re.compile("[әғқңөұүһі]")},
    ),
    "ko": _Script(
        re.compile("[가-힣]+"),
        {"ko": re.compile("(?:은|는|을|를|이|가|에|의|로|란|다|요|까|나|뭐|무엇|어떻게)(?![가-힣])")},
    ),
    "ja": _Script(re.compile("[ぁ-ゖァ-ヺ]+"), {"ja": re.compile("[ぁ-ゖ]")}),
    "zh": _Script(
        re.compile("[一-鿿㐀-䶿]+"), {"zh": re.compile("[的是了在和吗呢不有与为]|什么|什麼|怎么|怎麼|哪|何|谁|誰|多少")}
    ),
}
_SCRIPT_OF = dict.fromkeys(("uk", "be", "bg", "kk"), "ru") | dict.fromkeys(("it", "de", "fr", "es"), "en")
_LANGUAGES = ("en", "ru", "uk", "be", "bg", "kk", "it", "de", "fr", "es", "ko", "ja", "zh")
_EASTERN = re.compile("[ぁ-힣]")  # Korean, Japanese, Chinese


def detect_language(text: str) -> str:
    """Return the language of a text; works for short questions that contain foreign terms.

    Args:
        text: plain text; only the first 2000 characters are analysed.

    Returns:
        ISO 639-1 code: en, ru, uk, be, bg, kk, it, de, fr, es, ko, ja or zh. "en" if the text has no letters of a known
        script, such as "" or "12 + 3".
    """
    return _detected(text[:_SAMPLE])


@lru_cache(maxsize=1024)  # every step and metric of a sample needs the language of the same question
def _detected(text: str) -> str:
    sample = text.lower()
    evidence = dict.fromkeys(_LANGUAGES, 0)  # number of function words and marks
    letters = dict.fromkeys(_SCRIPTS, 0.0)
    possible = ["en"] if sample.isascii() else _SCRIPTS if _EASTERN.search(sample) else ["en", "ru"]
    for language in possible:  # the others need not be searched for
        script = _SCRIPTS[language]
        words = script.words.findall(sample)
        letters[language] = len("".join(words))
        for word in words:
            for with_language in _LANGUAGES_OF.get(word, ()):
                evidence[with_language] += 1
        if words:
            for marked, marks in script.marks.items():
                evidence[marked] += len(marks.findall(sample))
    letters["en"] /= 2  # texts in every language contain Latin terms

    most = max(evidence.values())
    likely = [one for one, number in evidence.items() if number == most]
    return max(likely, key=lambda one: (letters[_SCRIPT_OF.get(one) or one], one in _SCRIPTS))


def page_language(language: PageLanguage, questions: Iterable[str]) -> str:
    """Return the language of a page, "en" or "ru"; "auto" is "ru" if most of the first 200 questions are Russian.

    Raises:
        ConfigError: if the language is not one of `PageLanguage`.
    """
    check_page_language(language)
    if language != "auto":
        return language
    languages = Counter(map(detect_language, islice(questions, 200)))
    return "ru" if languages and languages.most_common(1)[0][0] == "ru" else "en"
