"""Words that carry content."""

import pytest

from langchain_rageval.text.words import content_words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Munich was founded in 1158, on the Isar.", {"munic", "found", "1158", "isar"}),
        ("Мюнхен основан в 5 веке.", {"мюнхе", "основ", "5", "веке"}),
        ("慕尼黑", {"慕", "尼", "黑"}),
        ("It is, or he was.", set()),
        ("", set()),
    ],
)
def test_stems_without_function_words_and_short_words(text, words):
    assert content_words(text) == words
