"""`rageval label` and `rageval agreement`: from a report to a sheet, and back from the sheet."""

import pytest
from helpers.reports import report_of, scored, unscored
from helpers.screens import cells_of

from langchain_rageval import agreement
from langchain_rageval.report.labelling import load_labels


@pytest.fixture
def report(tmp_path):
    made = report_of(*[scored(value / 9) for value in range(10)], unscored())
    made.to_jsonl(tmp_path / "report.jsonl")
    return made


def test_a_sheet_is_drawn_filled_in_and_compared(rageval, report, tmp_path):
    sheet = tmp_path / "labels.csv"
    code, told, _ = rageval("label", tmp_path / "report.jsonl", "--n", 10, "--out", sheet, "--semicolons")
    assert code == 0
    assert f"10 samples to label for faithfulness, written to {sheet}: fill in the column 'label'" in told
    assert "1 sample without a score of faithfulness cannot be drawn." in told
    head, *lines = sheet.read_text(encoding="utf-8-sig").splitlines()
    said = [f"{line}{'да' if number > 2 else 'нет'}" for number, line in enumerate(lines)]
    sheet.write_text("\n".join([head, *said]), encoding="utf-8")
    code, told, _ = rageval("agreement", tmp_path / "report.jsonl", sheet)
    assert code == 0
    found = agreement(report.scores(), load_labels(sheet))
    assert cells_of(told) == [list(cells) for cells in found.cells()]
    assert "Agreement with binary labels on 10 pairs" in told


def test_grades_and_thresholds_are_taken(rageval, report, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\n" + "".join(f"q-{number},{number // 3}\n" for number in range(10)))
    words = "agreement", tmp_path / "report.jsonl", labels, "--metric", "faithfulness"
    code, told, _ = rageval(*words, "--kind", "ordinal", "--scale", 0, 3)
    assert code == 0
    assert "within_one" in told
    assert "–" not in told
