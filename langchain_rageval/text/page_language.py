"""Language of an HTML page, by that of the questions on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice

from langchain_rageval._internal.page import PageLanguage, check_page_language
from langchain_rageval.text.language import detect_language

_SAMPLE = 200
"""Number of questions whose language is detected."""


def page_language(language: PageLanguage, questions: Iterable[str]) -> str:
    """Return "en" or "ru": a language as it is; for "auto" "ru" if most of the first 200 questions are Russian.

    Raises:
        ConfigError: if the language is not one of `PageLanguage`.
    """
    check_page_language(language)
    if language != "auto":
        return language
    languages = Counter(map(detect_language, islice(questions, _SAMPLE)))
    return "ru" if languages and languages.most_common(1)[0][0] == "ru" else "en"
