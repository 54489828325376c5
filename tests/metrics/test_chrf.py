import pytest
from helpers.each import each
from helpers.texts import ENGLISH, RUSSIAN, scored, value
from hypothesis import assume, given
from sacrebleu import sentence_chrf

from langchain_rageval import ConfigError, chrf


@pytest.mark.parametrize("word_order", [0, 1, 2])
@given(answer=ENGLISH, reference=ENGLISH)
def test_on_english_it_is_that_of_sacrebleu(word_order, answer, reference):
    expected = sentence_chrf(answer.lower(), [reference.lower()], word_order=word_order).score / 100
    assert value(chrf(word_order=word_order), answer, reference) == pytest.approx(expected)


@given(RUSSIAN, RUSSIAN)
def test_on_russian_it_is_that_of_sacrebleu_of_folded_texts(answer, reference):
    assume(answer and reference)
    one, other = (text.lower().replace("ё", "е") for text in (answer, reference))
    assert value(chrf(), answer, reference) == pytest.approx(sentence_chrf(one, [other]).score / 100)


def test_endings_and_io_cost_little():
    assert value(chrf(), "елки", "ёлки") == 1.0
    assert 0.6 < value(chrf(), "страхование бани", "страхования бани") < 1


def test_words_count_too_when_asked():
    pair = ("полис действует", "полиса действуют")
    assert value(chrf(word_order=2), *pair) < value(chrf(word_order=1), *pair) < value(chrf(), *pair)
    assert scored(chrf(word_order=2), *pair).reason.startswith("chrF++, ")
    assert len({chrf(word_order=order).instrument for order in (0, 1, 2)}) == 3


@each("word_order", [-1, 3, 1.0, "2", None])
def test_another_order_is_refused(word_order):
    with pytest.raises(ConfigError, match="word_order is 0 for chrF, 1, or 2 for chrF"):
        chrf(word_order=word_order)
