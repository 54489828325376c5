"""Normalization: which differences it removes and which it keeps, and words in every script."""

import unicodedata

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.text.words import normalize_text, tokens_of, words_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ёЁеЕйїéИи\u0301\u0308\u0306 \n\u00a0ßİ"))


@each(
    ("one", "other"),
    [
        ("ЁЛКА", "елка"),
        ("е\u0308лка", "ёлка"),
        ("Е\u0308лка", "елка"),
        ("Авиа\u0301тор", "авиатор"),
        ("всё\u0301", "все"),
        ("a\u00a0 b\n\tc\u3000d", " a b c d "),
        ("Straße", "STRASSE"),
        ("cafe\u0301", "CAFÉ"),
        ("й", "и\u0306"),
        ("Ї\u0301", "ї"),
    ],
)
def test_these_are_equal_after_normalization(one, other):
    assert normalize_text(one) == normalize_text(other)


@each(("one", "other"), [("й", "и"), ("ї", "і"), ("é", "e"), ("a.", "a"), ("a b", "ab"), ("ё", "о")])
def test_these_differ_after_normalization(one, other):
    assert normalize_text(one) != normalize_text(other)


@given(TEXTS)
def test_normalizing_twice_changes_nothing(text):
    assert normalize_text(normalize_text(text)) == normalize_text(text)


@given(TEXTS)
def test_neither_form_nor_white_space_around_matters(text):
    forms = {normalize_text(unicodedata.normalize(form, f" {text}\n")) for form in ("NFC", "NFD")}
    assert forms == {normalize_text(text)}


@given(st.text(st.characters(max_codepoint=0x24F)))
def test_in_european_alphabets_case_does_not_matter(text):
    assert normalize_text(text.casefold()) == normalize_text(text)


@each(
    ("text", "tokens"),
    [
        ("полис № 5, «елка»", ["полис", "5", "елка"]),
        ("re-check 3.5%", ["re", "check", "3", "5"]),
        ("东京塔 tokyo 1958年", ["东", "京", "塔", "tokyo", "1958", "年"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("서울은", ["서", "울", "은"]),
        ("a_b", ["a", "b"]),
        ("…", []),
    ],
)
def test_words_of_every_script(text, tokens):
    assert tokens_of(text) == tokens


@given(TEXTS)
def test_every_letter_and_digit_is_in_a_word(text):
    found = "".join(tokens_of(text))
    assert [char for char in found if char.isalnum()] == [char for char in text if char.isalnum()]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ещё ЁЛКА, 3 шт.", ["еще", "елка", "3", "шт"]),
        ("за\u0301мок a_b", ["замок", "a", "b"]),
        ("東京 Straße", ["東京", "straße"]),
        ("", []),
    ],
)
def test_words_of_a_text_are_lower_case_without_stress_marks(text, words):
    assert words_of(text) == words
