"""Plots of a test set: counts, and the history of a question."""

import re
import sys
from itertools import pairwise

import pytest
from helpers.stored import assert_stored, described, page_text

from langchain_rageval import ConfigError, Testset
from langchain_rageval.testset import TestsetRow, Trial

BATH = TestsetRow(
    id="1",
    question="Как застраховать баню на другом участке?",
    contexts=["Баню можно застраховать только вместе с домом."],
    reference="Её вносят в полис дома.",
    evolution="reasoning+conditional",
    history=[
        Trial(kind="seed", question="Что с баней?", accepted=False, feedback="Неясно, о чём речь."),
        Trial(kind="rewrite", question="Как застраховать баню?"),
        Trial(kind="reasoning", question="Почему баню страхуют вместе с домом?"),
        Trial(kind="conditional", question="Как застраховать баню на другом участке?"),
    ],
    spans=[("баня.txt", 0, 46)],
)
SIMPLE = BATH.model_copy(update={"id": "2", "evolution": "simple", "history": []})
TESTSET = Testset([BATH, SIMPLE, SIMPLE], {"attempts": 7, "rejected": {"near-duplicate": 3, "not evolved": 1}})


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_evolutions_and_reasons_for_rejection_are_counted():
    kept, dropped = TESTSET.plot().axes
    assert [bar.get_width() for bar in kept.patches] == [1, 2]
    assert [label.get_text() for label in kept.get_yticklabels()] == ["reasoning+conditional", "simple"]
    assert [bar.get_width() for bar in dropped.patches] == [3, 1]
    assert [label.get_text() for label in dropped.get_yticklabels()] == ["near-duplicate", "not evolved"]
    assert kept.get_title(loc="left") == "3 questions"
    assert dropped.get_title(loc="left") == "rejected, of 7 attempts"


def test_no_rejections_are_drawn_as_none():
    assert texts(Testset([BATH]).plot().axes[1]) == ["none"]


def test_the_history_of_a_question_goes_from_its_passage_to_its_answer():
    (axes,) = TESTSET.plot(row=0).axes
    told = texts(axes)
    assert told[0] == "баня.txt 0–46\nБаню можно застраховать только вместе с домом."
    assert told[1] == "✗ seed\nЧто с баней?\nНеясно, о чём речь."
    assert told[2] == "✓ rewrite\nКак застраховать баню?"
    assert told[-1].endswith("Её вносят в полис дома.")
    assert told[-1].startswith("reasoning+conditional: Как застраховать баню")
    assert len(told) == 2 + len(BATH.history)
    places = [text.get_position() for text in axes.texts]
    assert [y for _, y in places] == sorted({y for _, y in places})
    assert [x > 50 for x, _ in places] == [False, True, False, False, False, False]


def test_boxes_do_not_overlap():
    long = BATH.model_copy(
        update={"history": [Trial(kind="seed", question="слово " * 40, feedback="слово " * 100)] * 5}
    )
    figure = Testset([long]).plot(row=0)
    figure.canvas.draw()
    room = 0.4 * 9 * figure.dpi / 72
    boxes = [text.get_window_extent().padded(room) for text in figure.axes[0].texts]
    for upper, lower in pairwise(boxes):
        assert upper.y0 > lower.y1
    assert all(box.x1 <= figure.bbox.x1 for box in boxes)


@pytest.mark.parametrize("row", [3, -4, 99])
def test_a_row_that_is_not_there(row):
    with pytest.raises(ConfigError, match=r"^there is no row -?[0-9]+: the test set has 3, counted from 0$"):
        TESTSET.plot(row=row)


def test_an_empty_set_has_nothing_to_draw():
    with pytest.raises(
        ConfigError, match=r"^there is nothing to plot: the test set has no questions, and nothing was rejected$"
    ):
        Testset([]).plot()


def test_hostile_texts_are_drawn_shortened_and_without_control_characters(tmp_path):
    evil = "$\\oops$ <script> \x1b[31m \u202e" + "x" * 1_000_000
    row = BATH.model_copy(
        update={
            "question": evil,
            "contexts": [evil],
            "spans": [(evil, 0, 1)],
            "reference": evil,
            "evolution": evil,
            "history": [Trial(kind=evil, question=evil, feedback=evil)],
        }
    )
    told = Testset([row], {"attempts": 1, "rejected": {evil: 1}})
    for figure in (told.plot(), told.plot(row=0)):
        figure.savefig(tmp_path / "a.png", dpi=30)
        for axes in figure.axes:
            shown = " ".join([*texts(axes), *(label.get_text() for label in axes.get_yticklabels())])
            assert len(shown) < 3_000
            assert not re.search("[\x1b\u202e]", shown)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for row in (None, 0):
        with pytest.raises(ConfigError, match=r'pip install "langchain-rageval\[plot\]"'):
            TESTSET.plot(row)


def test_each_figure_is_drawn_as_stored():
    assert_stored("plot_of_counts.txt", described(TESTSET.plot()) + described(Testset([BATH]).plot()))
    long = Trial(kind="seed", question="слово " * 90, feedback="отзыв " * 90, accepted=False)
    row = BATH.model_copy(update={"history": [*BATH.history, long], "contexts": ["текст " * 90] * 3, "spans": []})
    assert_stored("plot_of_history.txt", described(TESTSET.plot(row=0)) + described(Testset([row]).plot(row=0)))


def test_the_page_to_review_is_as_stored(tmp_path):
    bare = BATH.model_copy(update={"spans": [], "metadata": {"page": 3, "large": 2**60}, "id": "3"})
    rows = [BATH, SIMPLE, bare.model_copy(update={"rejected": "dropped"})]
    Testset(rows, {"attempts": 7, "rejected": {"near-duplicate": 3}}).to_html(tmp_path / "set.html")
    assert_stored("page_to_review.txt", page_text((tmp_path / "set.html").read_text(encoding="utf-8")))
