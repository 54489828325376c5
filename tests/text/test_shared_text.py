import pytest
from helpers.each import each

from langchain_rageval.text.words import common_share, shared_share

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
