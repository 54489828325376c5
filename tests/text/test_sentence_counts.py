"""Sentence counts on Russian contexts: ours are the reader's where those of pysbd, which RAGAS splits with, are not.

context_relevance is needed sentences / all sentences, so that one wrong split changes the score.
"""

import warnings
from fractions import Fraction

from helpers.each import each

from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.text.sentences import split_sentences

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # its sources hold escapes that Python 3.12 warns of when it compiles them
    from pysbd import Segmenter

LAW = (
    "Согласно ст. 15 ГК РФ убытки возмещаются полностью. Упущенная выгода — тоже убыток (п. 2 ст. 15). "
    "Суд вправе уменьшить их размер."
)
CONTEXTS = {  # text: the reader's count, pysbd's count
    "law": (LAW, 3, 4),
    "address": ("Офис: г. Москва, ул. Тверская, д. 7, стр. 1. Он открыт с пн. по пт. с 9 до 18 ч.", 2, 4),
    "initials": ("Заявление подал Сидоров С. С. Ему выплатили 5 тыс. руб. за ремонт. Срок не нарушен.", 3, 2),
    "abbreviation": ("Ущерб возмещают деньгами, т. е. натурой его не покрывают. Исключение — стёкла.", 2, 3),
    "bullets": (
        "Возьмите с собой:\n- паспорт и т. п. документы;\n- полис, т. е. его распечатку;\n- реквизиты (см. прил. Б)",
        4,
        5,
    ),
    "numbered list": (
        "Порядок действий:\n1. Сообщите в полицию по тел. 102.\n2. Позвоните нам не позднее\nтрёх дней. "
        "Мы работаем круглосуточно.\n3. Ждите.",
        5,
        6,
    ),
    "price list": ("Цены:\nОсмотр — 800 руб. за чел.\nУкол — 50 руб. без НДС\nБинт — 45 р. за шт. на складе", 4, 5),
    "direct speech": ("— Где полис? — спросил инспектор.\n— Нет!.. — прошептал водитель. — Забыл дома…", 3, 6),
}


def pysbd_sentences(text):
    pieces = (piece.strip() for piece in Segmenter(language="ru", clean=False).segment(text))
    return [piece for piece in pieces if piece]


@each(("text", "readers", "pysbds"), CONTEXTS.values(), ids=CONTEXTS)
def test_our_count_is_the_readers_and_that_of_pysbd_is_not(text, readers, pysbds):
    assert len(split_sentences(text)) == len(NumberedContexts.of([text]).sentences) == readers
    assert len(pysbd_sentences(text)) == pysbds != readers


def test_one_needed_sentence_of_three_is_a_third_where_pysbd_makes_it_a_quarter():
    sentences = NumberedContexts.of([LAW]).sentences
    needed = {number for number, sentence in sentences.items() if "Упущенная выгода" in sentence}
    assert needed == {"1.2"}
    assert Fraction(len(needed), len(sentences)) == Fraction(1, 3)
    assert Fraction(len(needed), len(pysbd_sentences(LAW))) == Fraction(1, 4)
