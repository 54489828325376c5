"""Language of a page."""

import pytest

from langchain_rageval import ConfigError
from langchain_rageval.text.language import page_language

RUSSIAN, ENGLISH, GERMAN = "Когда основан Мюнхен?", "When was Munich founded?", "Wann wurde die Stadt gegründet?"


@pytest.mark.parametrize(
    ("questions", "language"),
    [([RUSSIAN, RUSSIAN, ENGLISH], "ru"), ([ENGLISH, ENGLISH, RUSSIAN], "en"), ([GERMAN], "en"), ([], "en")],
)
def test_it_is_that_of_most_questions(questions, language):
    assert page_language("auto", questions) == language


def test_it_can_be_chosen():
    assert page_language("ru", [ENGLISH]) == "ru"
    with pytest.raises(ConfigError, match="language must be one of auto, en, ru, got 'de'"):
        page_language("de", [])
