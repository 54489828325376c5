from helpers.each import each
from helpers.texts import scored, value
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import exact_match
from langchain_rageval.metrics.text_overlap import equality

metric = exact_match()


@each(
    ("answer", "reference", "same"),
    [
        ("Мюнхен", "мюнхен.", True),
        ("МЮНХЕН . ", "Мюнхен", True),
        ("东京。", "东京", True),
        ("в 1158 г.", "В 1158 г", True),
        ("...", ".", False),
        ("Мюнхен!", "Мюнхен", False),
        ("«Мюнхен»", "Мюнхен", False),
        ("Мюнхен, Изар", "Мюнхен Изар", False),
        ("Мюнхен", "Мюнхена", False),
        ("В Мюнхене", "Мюнхене", False),
        ("1 158", "1158", False),
        ("3.5", "3.5.", True),
        ("3.5", "35", False),
    ],
)
def test_a_final_full_stop_and_folding_make_no_difference_all_else_does(answer, reference, same):
    assert value(metric, answer, reference) == float(same)


@given(st.text(), st.text())
def test_it_is_symmetric(one, other):
    assert equality(one, other) == equality(other, one)


def test_the_reason_says_so():
    assert scored(metric, "да", "нет", "да").reason == "Ответ совпадает с эталоном."
    assert scored(metric, "да", "нет").reason == "Ответ не совпадает ни с одним эталоном."
    assert scored(metric, "yes", "no", question="What?").reason == "The answer equals none of the references."
    assert scored(metric, "yes", "yes", question="What?").reason == "The answer equals a reference."
