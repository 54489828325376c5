"""Marks of an answer in its passages: the same words, or the sentences that hold them."""

from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.testset.review_page import mark_answer

MUNICH = "Munich was founded in 1158.\nIt lies\non the Isar and has museums. Beer is popular."
AUGSBURG = "Augsburg was founded by the Romans in 15 BC. It is older."


@each(
    ("answer", "marked"),
    [
        ("1158", [["1158"], []]),
        ("115", [[], []]),
        ("It lies on the Isar.", [["It lies\non the Isar"], []]),
        ("BEER", [["Beer"], []]),
        ("In 15 BC the Romans founded Augsburg.", [[], ["Augsburg was founded by the Romans in 15 BC."]]),
        (
            "Munich dates from 1158, Augsburg from the Romans.",
            [["Munich was founded in 1158."], ["Augsburg was founded by the Romans in 15 BC."]],
        ),
        ("It lies on the Isar. Beer is popular.", [["It lies\non the Isar", "Beer is popular"], []]),
        ("No.", [[], []]),
        ("", [[], []]),
        ("Quantum chromodynamics explains confinement.", [[], []]),
    ],
)
def test_the_words_of_the_answer_or_the_sentences_that_hold_them_are_marked(answer, marked):
    parts = mark_answer(answer, [MUNICH, AUGSBURG])
    assert [passage[1::2] for passage in parts] == marked
    assert ["".join(passage) for passage in parts] == [MUNICH, AUGSBURG]


def test_marks_that_overlap_become_one():
    (parts,) = mark_answer("The old town hall. Town hall clock.", ["See the old town hall clock."])
    assert parts == ["See ", "the old town hall clock", "."]


TEXTS = st.text(st.sampled_from("ab1 .\n\tёİß\u2028"), max_size=60)


@given(answer=TEXTS, passages=st.lists(TEXTS, max_size=3))
def test_the_parts_joined_are_the_passages(answer, passages):
    assert ["".join(parts) for parts in mark_answer(answer, passages)] == passages


def test_words_at_the_very_beginning_are_marked_and_words_that_go_on_are_not():
    assert mark_answer("Beer", ["Beer is popular. Beers are many."]) == [["", "Beer", " is popular. Beers are many."]]
