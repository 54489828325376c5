"""Marks of sentences in passages: the same words, wherever they occur, or else the nearest sentences."""

from helpers.each import each
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval.testset.review_page import mark_sentences

MUNICH = "Munich was founded in 1158.\nIt lies\non the Isar and has museums. Beer is popular."
AUGSBURG = "Augsburg was founded by the Romans in 15 BC. It is older."


@each(
    ("sentences", "marked"),
    [
        (["1158"], [["1158"], []]),
        (["115", "No.", "", "Quantum chromodynamics."], [[], []]),
        (["It lies on the Isar.", "BEER"], [["It lies\non the Isar", "Beer"], []]),
        (["Augsburg was founded by the Romans in 15 BC."], [[], ["Augsburg was founded by the Romans in 15 BC"]]),
    ],
)
def test_the_words_of_each_sentence_are_marked(sentences, marked):
    parts = mark_sentences(sentences, [MUNICH, AUGSBURG])
    assert [passage[1::2] for passage in parts] == marked
    assert ["".join(passage) for passage in parts] == [MUNICH, AUGSBURG]


@each(
    ("sentence", "marked"),
    [
        ("The Isar has a museum.", [["It lies\non the Isar and has museums"], []]),
        ("Romans founded the older Augsburg.", [[], ["Augsburg was founded by the Romans in 15 BC", "It is older"]]),
        ("It lies on the Isar.", [["It lies\non the Isar"], []]),
        ("Quantum chromodynamics.", [[], []]),
        ("A museum needs many paintings, curators, guards and tickets.", [[], []]),  # one word of seven
        ("...", [[], []]),
    ],
)
def test_where_the_words_are_nowhere_the_nearest_sentences_are_marked_if_that_is_wanted(sentence, marked):
    nearest, exact = (mark_sentences([sentence], [MUNICH, AUGSBURG], nearest=one) for one in (True, False))
    assert [passage[1::2] for passage in nearest] == marked
    assert [passage[1::2] for passage in exact] == (marked if sentence.startswith("It") else [[], []])


@each(
    ("sentences", "parts"),
    [
        (["The old town hall.", "Town hall clock."], ["See ", "the old town hall clock", "."]),
        (["The old town hall.", "Old town."], ["See ", "the old town hall", " clock."]),
        (["The old.", "Old town."], ["See ", "the old town", " hall clock."]),
        (["The old.", "Hall clock."], ["See ", "the old", " town ", "hall clock", "."]),
    ],
)
def test_marks_that_overlap_become_one(sentences, parts):
    assert mark_sentences(sentences, ["See the old town hall clock."]) == [parts]


def test_a_rare_word_counts_more_than_frequent_ones_for_the_nearest_sentences():
    text = "The Isar. A town hall in red. A town hall in green. A town hall in blue."
    (parts,) = mark_sentences(["Isar, town and hall."], [text], nearest=True)
    assert parts[1::2] == ["The Isar", "A town hall in red"]


TEXTS = st.text(st.sampled_from("ab1 .\n\tёİß\u2028"), max_size=60)


@given(sentence=TEXTS, passages=st.lists(TEXTS, max_size=3))
def test_the_parts_joined_are_the_passages(sentence, passages):
    for nearest in (False, True):
        assert ["".join(parts) for parts in mark_sentences([sentence], passages, nearest=nearest)] == passages


def test_words_at_the_very_beginning_are_marked_and_words_that_go_on_are_not():
    parts = mark_sentences(["Beer"], ["Beer is popular. Beers are many.", "One beer", "Lagerbeer"])
    assert parts == [["", "Beer", " is popular. Beers are many."], ["One ", "beer", ""], ["Lagerbeer"]]
