"""Test sets: `rageval generate`, `review` and `diff`, and the pages of `label --html`."""

import json
import webbrowser
from contextlib import closing

import pytest
from helpers.reports import report_of, scored
from helpers.screens import seen
from helpers.texts import corpus
from helpers.waiting import Pauses

from langchain_rageval import Row, Sample, Score
from langchain_rageval.sinks import SqliteSink
from langchain_rageval.testset import Testset, TestsetRow, Trial


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
    assert Testset.load(out).counts == {"simple": 2, "reasoning": 2}
    shown = ("4 questions", "Written offline by word overlap", f"Test set written to {out}")
    assert [part for part in shown if part not in told] == []
    rageval(*words, "--out", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == out.read_bytes()


def test_a_journal_and_a_budget(rageval, folder, tmp_path):
    words = ["generate", folder, "--size", 4, "--distribution", "simple=1", "--quiet", "--journal", tmp_path / "j.db"]
    code, told, _ = rageval(*words, "--out", tmp_path / "a.jsonl", "--budget-calls", 14)
    assert (code, "2 of 4 rows were generated: the budget is spent." in told) == (0, True)
    rageval(*words, "--out", tmp_path / "b.jsonl", "--budget-calls", 14)
    assert Testset.load(tmp_path / "b.jsonl").complete


def test_an_unreachable_server_is_reported_in_one_line(rageval, folder, tmp_path, monkeypatch):
    Pauses(monkeypatch)
    words = ["--writer", "vllm:m", "--base-url", "http://127.0.0.1:9/v1", "--embeddings", "offline", "--quiet"]
    code, _, complaints = rageval("generate", folder, "--size", 2, "--out", tmp_path / "t.jsonl", *words)
    assert (code, "no question was accepted in 6 attempts: " in complaints) == (2, True)
    assert complaints.endswith("(is the server running, and is --base-url right?)\n")
    assert ("Connection" in complaints, (tmp_path / "t.jsonl").exists()) == (True, False)


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
    assert (code, "persona" in json.loads(told)["steps"]) == (0, True)


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
    assert (code, "no question was accepted in " in complaints) == (2, True)
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


# review and label --html: the pages that they write, and when they open them


@pytest.fixture
def saved(tmp_path):
    row = TestsetRow(id="a", question="Why?", contexts=["So."], reference="So.", evolution="simple")
    Testset([row]).to_jsonl(tmp_path / "testset.jsonl")
    return tmp_path / "testset.jsonl"


@pytest.fixture
def report(tmp_path):
    report_of(*[scored(value / 9) for value in range(10)]).to_jsonl(tmp_path / "report.jsonl")
    return tmp_path / "report.jsonl"


@pytest.fixture
def opened(tmp_path):
    """Run a command in a terminal with a display; return the address that it opened in the browser, or ""."""
    script, address = tmp_path / "browser", tmp_path / "address"
    script.write_text(f'#!/bin/sh\nprintf %s "$1" > "{address}"\n')
    script.chmod(0o755)

    def run(*words, display=":0"):
        address.write_text("")
        seen(100, *words, DISPLAY=display, WAYLAND_DISPLAY="", BROWSER=f"{script} %s")
        return address.read_text()

    return run


def test_review_writes_the_page_beside_the_test_set_or_where_it_is_asked_to_and_in_its_language(
    rageval, saved, tmp_path
):
    page = saved.with_suffix(".html")
    told = f"1 row to review, written to {page}: open it in a browser; it saves testset.reviewed.jsonl, a test set\n"
    assert (rageval("review", saved), page.exists()) == ((0, told, ""), True)
    page = tmp_path / "page.html"
    code, out, _ = rageval("review", saved, "--html", page, "--language", "ru", "--no-open")
    assert (code, "it saves page.reviewed.jsonl, a test set" in out) == (0, True)
    assert "<title>Проверка тестового набора</title>" in page.read_text(encoding="utf-8")


@pytest.mark.gate
def test_the_page_is_opened_in_a_terminal_with_a_display_unless_it_should_not_be(opened, saved, report, tmp_path):
    labels = tmp_path / "labels.html"
    for words, page in ((["review", saved], saved.with_suffix(".html")), (["label", report, "--html", labels], labels)):
        assert opened(*words) == page.as_uri()
        assert opened(*words, "--no-open") == ""
    assert opened("review", saved, display="") == ""


def test_the_page_is_not_opened_without_a_terminal(rageval, saved, monkeypatch):
    monkeypatch.setattr(webbrowser, "open", (found := []).append)
    monkeypatch.setenv("DISPLAY", ":0")
    assert rageval("review", saved)[0] == 0
    assert found == []


def test_label_writes_a_page_and_a_sheet_too_only_if_it_is_named(rageval, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = "10 samples to label for faithfulness, written to"
    page = "{0}.html: open it in a browser; it saves {0}.csv, for rageval agreement"
    code, out, _ = rageval("label", "report.jsonl", "--n", 10, "--html")
    assert (code, out) == (0, f"{told} {page.format('labels')}\n")
    assert ((tmp_path / "labels.html").exists(), (tmp_path / "labels.csv").exists()) == (True, False)
    more = ["--html", "page.html", "--out", "sheet.csv", "--scale", 0, 3, "--instruction", "Fine?"]
    code, out, _ = rageval("label", report, *more)
    lines = [f"{told} sheet.csv: fill in the column 'label'", f"{told} {page.format('page')}"]
    assert (code, out.splitlines()[:2]) == (0, lines)
    assert (tmp_path / "sheet.csv").exists()
    assert (tmp_path / "page.html").exists()


def test_two_reviews_are_merged_with_their_agreement(rageval, saved, tmp_path):
    (row,) = Testset.load(saved).rows
    reviewed = row.model_copy(update={"history": [Trial(kind="review", question=row.question)]})
    Testset([reviewed]).to_jsonl(tmp_path / "anna.jsonl")
    merged = tmp_path / "anna.merged.jsonl"
    for more, path in (([], merged), (["--out", tmp_path / "both.jsonl"], tmp_path / "both.jsonl")):
        code, told, complaints = rageval("review", "--merge", tmp_path / "anna.jsonl", tmp_path / "anna.jsonl", *more)
        assert (code, complaints, f" Written to {path}: 1 rows\n" in told) == (0, "", True)
        assert Testset.load(path).notes[-1] in told
        assert [len(row.history) for row in Testset.load(path)] == [1]


# diff


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
    shown = ("1 added, 1 dropped, 1 changed, 1 the same", "b reference: Ответ. -> [red]Другой.", "e Вопрос e?")
    assert [part for part in shown if part not in out] == []


def test_json_has_the_data_of_the_difference_which_fails_if_it_was_asked_for(rageval, files):
    difference = Testset.load("old.jsonl").diff(Testset.load("new.jsonl"))
    code, out, _ = rageval("diff", "old.jsonl", "new.jsonl", "--json")
    assert (code, json.loads(out)) == (0, difference.to_dict())
    code, _, err = rageval("diff", "old.jsonl", "new.jsonl", "--fail-if-changed")
    assert (code, err) == (1, f"rageval: old.jsonl and new.jsonl differ: {difference.title}\n")
    assert rageval("diff", "old.jsonl", "old.jsonl", "--fail-if-changed")[0] == 0
