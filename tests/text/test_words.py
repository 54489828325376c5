"""Words of a text: normalization, tokens, content words, and what two texts have in common."""

import unicodedata

import pytest
from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.text.words import common_share, content_words, normalize_text, shared_share, tokens_of, words_of

TEXTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ёЁеЕйїéИи\u0301\u0308\u0306 \n\u00a0ßİ"))


@each(
    ("one", "other"),
    [
        ("ЁЛКА", "елка"),
        ("е\u0308лка", "ёлка"),
        ("Е\u0308лка", "елка"),
        ("всё\u0301", "все"),
        ("a\u00a0 b\n\tc\u3000d", " a b c d "),
        ("Straße", "STRASSE"),
        ("cafe\u0301", "CAFÉ"),
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
        ("서울은", ["서", "울", "은"]),
        ("a_b", ["a", "b"]),
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
    ],
)
def test_words_of_a_text_are_lower_case_without_stress_marks(text, words):
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Munich was founded in 1158, on the Isar.", {"munic", "found", "1158", "isar"}),
        ("Мюнхен основан в 5 веке.", {"мюнхе", "основ", "5", "веке"}),
        ("慕尼黑", {"慕", "尼", "黑"}),
        ("It is, or he was.", set()),
    ],
)
def test_stems_without_function_words_and_short_words(text, words):
    assert content_words(text) == words


WHOLE = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе до первого марта."


@each(
    ("one", "other", "share"),
    [
        (WHOLE, WHOLE, 1.0),
        (WHOLE, WHOLE[10:40], 1.0),
        (WHOLE, f"Заголовок страницы\n\n{WHOLE.upper()}".replace(" ", "\n"), 1.0),
        (WHOLE, "", 0.0),
        (WHOLE, "Взнос платят раз в год, и никак не чаще, чем об этом сказано в самом уставе.", 0.0),
        ("дня", "после двух дней", 0.0),
        ("дней", "после двух дней", 1.0),
    ],
)
def test_the_share_of_the_shorter_text_ignores_white_space_and_letter_case(one, other, share):
    assert shared_share(one, other) == shared_share(other, one) == share


def test_a_text_that_is_cut_shares_the_part_that_is_left():
    letters = "".join(chr(0x4E00 + number) for number in range(200))
    assert shared_share(letters[:100], letters[40:160]) == 0.6
    assert shared_share(letters[:100], letters[90:160]) == 0.0  # a run of ten characters may be a coincidence


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The capital of country 17 is city 17.", "The capital of country 12 is city 12."),
        (
            "Document 5: the warranty of product 5 lasts 15 months and covers water damage.",
            "Document 7: the warranty of product 7 lasts 17 months and covers water damage.",
        ),
        (
            "Тариф «Дача» стоит 450 рублей в месяц, подключение по оптике занимает 5 рабочих дней.",
            "Тариф «Премиум» стоит 900 рублей в месяц, подключение по оптике занимает 2 рабочих дня.",
        ),
    ],
)
def test_texts_of_one_pattern_have_nothing_in_common(one, other):
    assert shared_share(one, other) > 0.5
    assert common_share(one, other) == common_share(other, one) == 0.0


@pytest.mark.parametrize(
    "chunk",
    [
        WHOLE[13:60],
        f"Правила. Раздел 3, страница 14. {WHOLE[13:]}",
        f"{WHOLE[20:]} Взнос платят раз в год, и никак не чаще.",
        WHOLE.replace("ждать", "ожидать"),
        WHOLE.replace("больше пяти", "**больше** (пяти)"),
    ],
)
def test_a_part_of_a_text_is_common_to_both_with_what_stands_around_it(chunk):
    other = f"Как поступают с домом и с баней. {WHOLE} Об отказе пишут отдельно."
    assert common_share(chunk, other) == common_share(other, chunk) == shared_share(chunk, other) > 0.5
