"""`rageval generate`: from a folder of documents to a file of questions."""

import json
from contextlib import closing

import pytest
from helpers.texts import corpus
from helpers.waiting import Pauses

from langchain_rageval import Row, Sample, Score
from langchain_rageval.sinks import SqliteSink
from langchain_rageval.testset import Testset


@pytest.fixture
def folder(tmp_path):
    """Three Russian documents."""
    place = tmp_path / "docs"
    place.mkdir()
    for number, document in enumerate(corpus("ru_wiki")[:3]):
        (place / f"{number}.txt").write_text(document.page_content, encoding="utf-8")
    return place


def test_it_writes_a_test_set_and_shows_a_summary(rageval, folder, tmp_path):
    out = tmp_path / "t.jsonl"
    words = ["generate", folder, "--size", 4, "--distribution", "simple=0.5,reasoning=0.5", "--seed", 7, "--quiet"]
    code, told, complaints = rageval(*words, "--out", out)
    assert (code, complaints) == (0, "")
    testset = Testset.load(out)
    assert testset.counts == {"simple": 2, "reasoning": 2}
    assert "4 questions" in told
    assert "Written offline by word overlap" in told
    assert f"Test set written to {out}" in told
    again = tmp_path / "again.jsonl"
    rageval(*words, "--out", again)
    assert again.read_bytes() == out.read_bytes()


def test_a_journal_and_a_budget(rageval, folder, tmp_path):
    words = ["generate", folder, "--size", 4, "--distribution", "simple=1", "--quiet", "--journal", tmp_path / "j.db"]
    code, told, _ = rageval(*words, "--out", tmp_path / "a.jsonl", "--budget-calls", 14)
    assert code == 0
    assert "2 of 4 rows were generated: the budget is spent." in told
    code, told, _ = rageval(*words, "--out", tmp_path / "b.jsonl", "--budget-calls", 14)
    assert Testset.load(tmp_path / "b.jsonl").complete


def test_an_unreachable_server_is_reported_in_one_line(rageval, folder, tmp_path, monkeypatch):
    Pauses(monkeypatch)
    words = ["--writer", "vllm:m", "--base-url", "http://127.0.0.1:9/v1", "--embeddings", "offline", "--quiet"]
    code, _, complaints = rageval("generate", folder, "--size", 2, "--out", tmp_path / "t.jsonl", *words)
    assert code == 2
    assert "no question was accepted in 6 attempts: " in complaints
    assert complaints.endswith("(is the server running, and is --base-url right?)\n")
    assert "Connection" in complaints
    assert not (tmp_path / "t.jsonl").exists()


def test_the_table_and_the_json_object_show_calls_tokens_and_calls_per_row(rageval, folder, tmp_path):
    words = ["generate", folder, "--size", 2, "--distribution", "simple=1", "--quiet", "--out", tmp_path / "t.jsonl"]
    usage = Testset.load(tmp_path / "t.jsonl").usage if rageval(*words)[0] == 0 else None
    tokens = usage.input_tokens + usage.output_tokens
    assert f"14 calls, {tokens:,} tokens; 7.0 calls per question" in rageval(*words)[1]
    found = json.loads(rageval(*words, "--json")[1])
    assert found["usage"]["calls"] == sum(step["calls"] for step in found["steps"].values()) == 14
    assert found["usage"]["input_tokens"] == usage.input_tokens
    assert found["calls_per_row"] == 7.0


def test_personas_share_the_part_of_the_distribution_that_names_them(rageval, folder, tmp_path):
    people = ["Студент, который спешит", "Нотариус, любит точность"]
    words = ["--persona", people[0], "--persona", people[1], "--quiet", "--out", tmp_path / "t.jsonl", "--size", 4]
    assert rageval("generate", folder, *words, "--distribution", "simple=0.5, reasoning + persona=0.5")[0] == 0
    asked = [row.metadata["persona"] for row in Testset.load(tmp_path / "t.jsonl") if row.evolution != "simple"]
    assert sorted(asked) == sorted(people)
    code, told, _ = rageval("plan", folder, "--generate", *words[:4], "--distribution", "persona=1", "--json")
    assert code == 0
    assert "persona" in json.loads(told)["steps"]


def test_questions_are_stratified_by_a_name_in_the_metadata(rageval, tmp_path):
    documents = zip(corpus("ru_wiki")[:4], ["towns", "towns", "lakes", "lakes"], strict=True)
    lines = [json.dumps({"text": one.page_content, "topic": topic}, ensure_ascii=False) for one, topic in documents]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines), encoding="utf-8")
    words = ["--size", 2, "--distribution", "simple=1", "--quiet", "--out", tmp_path / "t.jsonl"]
    assert rageval("generate", tmp_path / "docs.jsonl", "--stratify", "topic", *words)[0] == 0
    assert {row.metadata["topic"] for row in Testset.load(tmp_path / "t.jsonl")} == {"towns", "lakes"}


def test_a_tree_has_every_evolution(rageval, folder, tmp_path):
    words = ["--tree", "--size", 4, "--distribution", "simple=1,reasoning=1", "--quiet", "--out", tmp_path / "t.jsonl"]
    assert rageval("generate", folder, *words)[0] == 0
    testset = Testset.load(tmp_path / "t.jsonl")
    assert [row.evolution for row in testset] == ["simple", "reasoning"] * 2
    assert len({row.tree_id for row in testset}) == 2


def test_a_run_without_an_accepted_question_shows_the_words_of_the_critic(rageval, tmp_path):
    (tmp_path / "poor.txt").write_text("Да.", encoding="utf-8")
    code, _, complaints = rageval("generate", tmp_path / "poor.txt", "--size", 1, "--quiet", "--out", tmp_path / "t")
    assert code == 2
    assert "no question was accepted in " in complaints
    assert "An example of passage rejected: " in complaints


def test_questions_of_production_with_low_scores_become_rows(rageval, folder, tmp_path, monkeypatch):
    with closing(SqliteSink(tmp_path / "live.sqlite")) as sink:
        for question, value in (("Кто основал город, спросил Пётр?", 0.2), ("Что это?", 0.9)):
            score = Score(metric="faithfulness", aspect="grounding", value=value, instrument="i")
            sink(Row(index=0, sample=Sample(question=question, answer="Да."), scores={"faithfulness": score}))
    (tmp_path / "privacy.py").write_text(
        "def redact(sample):\n"
        "    return sample.model_copy(update={'question': sample.question.replace(', спросил Пётр', '')})\n"
    )
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "t.jsonl"
    words = ["generate", folder, "--adopt", tmp_path / "live.sqlite", "--out", out, "--quiet"]
    code, told, complaints = rageval(*words, "--where", "faithfulness < 0.5", "--redact", "privacy:redact")
    assert (code, complaints) == (0, "")
    (row,) = Testset.load(out).rows
    assert (row.question, row.evolution, row.metadata["asked"]) == ("Кто основал город?", "adopted", 1)
    assert "Пётр" not in out.read_text(encoding="utf-8") + told
