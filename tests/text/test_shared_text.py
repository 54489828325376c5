import pytest

from langchain_rageval.text.shared_text import shared_share

WHOLE = "После пожара осмотра ждать не больше пяти дней, если комиссия не решит иначе до первого марта."


@pytest.mark.parametrize(
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
