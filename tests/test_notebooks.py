"""Each notebook runs from top to bottom, with public names only."""

import json
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


def cells(path):
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for number, cell in enumerate(cells(path), 1):
        exec(compile(cell, f"{path.name}, cell {number}", "exec"), names)
    if "testset" in names:
        assert names["testset"].complete
    assert not names["report"].failures()
    assert all(metric.scored for metric in names["report"].summary().values())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_uses_public_names_and_keeps_no_outputs(path):
    told = json.loads(path.read_text(encoding="utf-8"))
    assert all(not cell.get("outputs") for cell in told["cells"])
    for module in re.findall(r"from (langchain_rageval[\w.]*) import", "\n".join(cells(path))):
        assert module in ("langchain_rageval", "langchain_rageval.testset", "langchain_rageval.steps")
