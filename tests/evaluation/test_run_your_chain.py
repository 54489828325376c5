"""docs/how-to/run-your-chain.md: its code and its commands run as they stand."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from helpers.chains import Agent

from langchain_rageval.cli.main import run
from langchain_rageval.testset import Testset
from langchain_rageval.testset.row import TestsetRow

GUIDE = (Path(__file__).parents[2] / "docs/how-to/run-your-chain.md").read_text(encoding="utf-8")
QUESTION = "When is the premium due?"
PREMIUM = "The premium is due on 1 March."


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with the module, the questions and the test set of the guide."""
    app, *_ = blocks("python")
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    row = TestsetRow(id="q1", question=QUESTION, contexts=[PREMIUM], reference=PREMIUM, evolution="simple")
    Testset([row]).to_jsonl(tmp_path / "testset.jsonl")
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "q1", "question": QUESTION}), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    sys.modules.pop("app", None)
    yield tmp_path
    sys.modules.pop("app", None)


def test_every_python_block_runs(folder):
    names = {"model": Agent(), "__name__": "guide"}
    collected = []
    for block in blocks("python"):
        exec(compile(block, "run-your-chain.md", "exec"), names)
        collected += names.pop("samples", [])
    assert [sample.contexts for sample in collected] == [[PREMIUM]] * 3
    assert [sample.metadata["context_sources"] for sample in collected] == [["terms.md"]] * 3
    assert [sample.answer == PREMIUM for sample in collected] == [True, False, True]
    assert names["report"].summary()["faithfulness"].mean == 1.0


def test_every_command_runs(folder, capsys):
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    (echo,) = (shlex.split(line) for line in lines if line.startswith("echo"))
    (folder / echo[-1]).write_text(echo[1], encoding="utf-8")
    commands = [shlex.split(line, comments=True) for line in lines if not line.startswith("echo")]
    assert [(words[:2], run([*words[1:]])) for words in commands] == [
        (["rageval", name], 0) for name in ("run", "evaluate", "run", "resume")
    ]
    assert "1 question asked: 1 without an error, 1 with contexts" in capsys.readouterr().out
