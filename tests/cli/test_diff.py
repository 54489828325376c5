"""`rageval diff`."""

import json

import pytest

from langchain_rageval.testset import Testset, TestsetRow


def row(name, **fields):
    values = {"question": f"Вопрос {name}?", "contexts": ["Поле."], "reference": "Ответ.", "evolution": "simple"}
    return TestsetRow(**{"id": name, **values, **fields})


@pytest.fixture
def files(tmp_path, monkeypatch):
    """An earlier and a later test set."""
    monkeypatch.chdir(tmp_path)
    Testset([row("a"), row("b"), row("c")]).to_jsonl("old.jsonl")
    Testset([row("a"), row("b", reference="[red]Другой."), row("e")], number=2).to_jsonl("new.jsonl")


def test_it_shows_rows_and_fields_and_exits_with_0(rageval, files):
    code, out, err = rageval("diff", "old.jsonl", "new.jsonl")
    assert (code, err) == (0, "")
    assert "1 added, 1 dropped, 1 changed, 1 the same" in out
    assert "b reference: Ответ. -> [red]Другой." in out
    assert "e Вопрос e?" in out


def test_a_difference_fails_if_it_was_asked_for(rageval, files):
    old, new = Testset.load("old.jsonl"), Testset.load("new.jsonl")
    code, _, err = rageval("diff", "old.jsonl", "new.jsonl", "--fail-if-changed")
    assert (code, err) == (1, f"rageval: old.jsonl and new.jsonl differ: {old.diff(new).title}\n")
    assert rageval("diff", "old.jsonl", "old.jsonl", "--fail-if-changed")[0] == 0


def test_json_has_the_data_of_the_difference(rageval, files):
    code, out, _ = rageval("diff", "old.jsonl", "new.jsonl", "--json")
    assert (code, json.loads(out)) == (0, Testset.load("old.jsonl").diff(Testset.load("new.jsonl")).to_dict())
