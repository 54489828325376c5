"""`rageval rubric-study`: the study's table from a file of answers."""

import pytest
from helpers.screens import cells_of

from langchain_rageval import Report

TRUTH = "Полис покрывает пожар и залив бани."


@pytest.fixture
def sheets(written):
    lines = [
        {
            "id": f"q{n}@{model}",
            "question": f"Что покрывает полис {n}?",
            "answer": answer,
            "reference": TRUTH,
            "metadata": {"model": model, "people": {"correctness": grade}},
        }
        for model, answer, grade in (("new", TRUTH, 3), ("old", "Слоны живут в Африке.", 0))
        for n in range(3)
    ]
    return written(*lines)


def test_scales_and_examples_are_studied_beside_each_other(rageval, sheets, tmp_path):
    out = tmp_path / "study.jsonl"
    words = ("--scale", "0-3", "--scale", "1-5", "--labels", "people", "--price", "offline=2,10", "--out", out)
    code, told, _ = rageval("rubric-study", sheets, *words, "--quiet")
    assert code == 0
    rows = cells_of(told)
    assert [row[1] for row in rows] == ["0-3, examples", "0-3, no examples", "1-5, examples", "1-5, no examples"]
    assert [row[4] for row in rows] == ["100%", "100%", "–", "–"]
    assert all(float(row[-1]) > 0 for row in rows)
    assert "No two rows disagree on the order of the models: new > old." in told
    assert len(Report.load(out).rows[0].scores) == 4


def test_one_choice_of_examples_makes_one_row(rageval, sheets):
    _, told, _ = rageval("rubric-study", sheets, "--examples", "none", "--quiet")
    assert "0-3, no examples" in told
    assert "0-3, examples" not in told
