import re

from helpers.each import each
from helpers.texts import RUSSIAN, scored, value
from hypothesis import assume, given
from hypothesis import strategies as st

from langchain_rageval import string_presence
from langchain_rageval.metrics.text_overlap import contains_whole_words

metric = string_presence()


@each(
    ("answer", "reference", "there"),
    [
        ("Мюнхен основал Генрих Лев.", "генрих  лев.", True),
        ("Кот, который спит", "кот", True),
        ("Это тот, который спит", "кот", False),
        ("Дом у елок", "Ёлок", True),
        ("основан в 1158 году", "1158", True),
        ("основан в 1158 году", "158", False),
        ("население 1,158,000", "158", False),
        ("население 1.158", "158", False),
        ("доля 3.5 %", "3", False),
        ("доля 3.5 %", "3.5 %", True),
        ("Да, 5.", "5", True),
        ("5, не 6", "5", True),
        ("1.Мюнхен", "Мюнхен", True),
        ("Мюнхен-Пазинг", "Мюнхен", True),
        ("«Мюнхен»", "Мюнхен", True),
        ("на C++ и C", "C++", True),
        ("на C", "C++", False),
        ("東京タワーは高い", "東京タワー", True),
        ("我在东京", "东京", True),
        ("서울은 수도", "서울", True),
        ("snake_case", "snake", True),
        ("catalogue, cat", "cat", True),
        ("catalogue", "cat", False),
        ("concat", "cat", False),
        ("Кот", "Кот и пёс", False),
    ],
)
def test_a_reference_stands_there_as_whole_words(answer, reference, there):
    assert value(metric, answer, reference) == float(there)


@given(st.text("ab "), st.text("ab ", min_size=1))
def test_words_are_bounded_as_a_pattern_would_have_it(whole, text):
    inside = re.search(rf"(?:(?<!\w)|(?!\w)){re.escape(text)}(?:(?<!\w)|(?!\w))", whole)
    assert contains_whole_words(whole, text) is bool(inside)


@given(RUSSIAN, RUSSIAN, RUSSIAN)
def test_what_is_put_between_words_is_found(before, text, after):
    assume(text)
    assert value(metric, f"{before} {text} {after}", text) == 1.0


@each(("text", "whole"), [("", "a"), ("", ""), ("a", "")])
def test_an_empty_text_occurs_nowhere(text, whole):
    assert contains_whole_words(whole, text) is False


def test_the_reason_says_so():
    assert scored(metric, "да, кот", "пёс", "кот").reason == "Эталон дословно есть в ответе."
    assert scored(metric, "да", "кот").reason == "Ни одного эталона в ответе дословно нет."
