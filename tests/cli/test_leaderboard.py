"""`rageval leaderboard`: one report of several models, or a report each."""

import pytest
from helpers.screens import cells_of

from langchain_rageval import OfflineJudge, Sample, evaluate, rubric

TRUTH = "Полис покрывает пожар и залив бани."
ANSWERS = {"new": TRUTH, "old": "Слоны живут в Африке."}


@pytest.fixture
def report():
    """Write the report of some models' answers to ten questions; the models' names where they are wanted."""

    def write(path, models, named=True):
        samples = [
            Sample(
                id=f"q{n}@{model}" if named else f"q{n}",
                question=f"Что покрывает полис {n}?",
                answer=ANSWERS[model],
                references=[TRUTH],
                metadata={"model": model} if named else {},
            )
            for model in models
            for n in range(10)
        ]
        evaluate(samples, rubric(OfflineJudge()), progress=False).to_jsonl(path)
        return path

    return write


def test_models_are_ranked_with_their_grades(rageval, report, tmp_path):
    code, told, _ = rageval("leaderboard", report(tmp_path / "r.jsonl", ["old", "new"]))
    assert code == 0
    first, second, *grades = cells_of(told)
    assert (first[:3], second[:2]) == (["1", "new", "1.000"], ["2", "old"])
    assert second[-1] == "< 0.001"
    assert [line[:2] for line in grades] == [["new", "3.00"], ["old", "0.00"]]
    assert "…" not in told
    assert "Judged offline by word overlap" in told


def test_a_report_per_model_is_named_after_its_file(rageval, report, tmp_path):
    paths = [report(tmp_path / f"{model}.jsonl", [model], named=False) for model in ANSWERS]
    code, told, _ = rageval("leaderboard", *paths)
    assert code == 0
    assert [line[1] for line in cells_of(told)[:2]] == ["new", "old"]
    assert cells_of(told)[1][-1] == "< 0.001"


def test_reports_with_the_same_file_name_are_named_by_their_paths(rageval, report, tmp_path):
    for model in ANSWERS:
        (tmp_path / model).mkdir()
    paths = [report(tmp_path / model / "graded.jsonl", [model], named=False) for model in ANSWERS]
    _, told, _ = rageval("leaderboard", *paths)
    assert told.startswith("2 models by rubric")
