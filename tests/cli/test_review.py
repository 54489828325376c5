"""`rageval review` and `rageval label --html`: the pages that they write, and when they open them."""

import webbrowser

import pytest
from helpers.reports import report_of, scored
from helpers.screens import seen

from langchain_rageval.testset import Testset, TestsetRow, Trial


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


def test_review_writes_the_page_beside_the_test_set(rageval, saved):
    code, out, err = rageval("review", saved)
    page = saved.with_suffix(".html")
    assert (code, err) == (0, "")
    assert out == (
        f"1 row to review, written to {page}: open it in a browser; it saves testset.reviewed.jsonl, a test set\n"
    )
    assert page.exists()


def test_review_writes_the_page_where_it_is_asked_to_and_in_its_language(rageval, saved, tmp_path):
    page = tmp_path / "page.html"
    code, out, _ = rageval("review", saved, "--html", page, "--language", "ru", "--no-open")
    assert code == 0
    assert "it saves page.reviewed.jsonl, a test set" in out
    assert "<title>Проверка тестового набора</title>" in page.read_text(encoding="utf-8")


@pytest.mark.gate
def test_the_page_is_opened_in_a_terminal_with_a_display_unless_it_should_not_be(opened, saved, report, tmp_path):
    labels = tmp_path / "labels.html"
    for words, page in ((["review", saved], saved.with_suffix(".html")), (["label", report, "--html", labels], labels)):
        assert opened(*words) == page.as_uri()
        assert opened(*words, "--no-open") == ""
    assert opened("review", saved, display="") == ""


def test_the_page_is_not_opened_without_a_terminal(rageval, saved, monkeypatch):
    found = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    monkeypatch.setenv("DISPLAY", ":0")
    assert rageval("review", saved)[0] == 0
    assert found == []


def test_label_writes_a_page_instead_of_a_sheet(rageval, report, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = rageval("label", "report.jsonl", "--n", 10, "--html")
    assert code == 0
    assert out == (
        "10 samples to label for faithfulness, written to labels.html: open it in a browser; it saves labels.csv, for "
        "rageval agreement\n"
    )
    assert (tmp_path / "labels.html").exists()
    assert not (tmp_path / "labels.csv").exists()


def test_label_writes_a_sheet_too_if_it_is_named(rageval, report, tmp_path):
    sheet, page = tmp_path / "sheet.csv", tmp_path / "page.html"
    code, out, _ = rageval("label", report, "--html", page, "--out", sheet, "--scale", 0, 3, "--instruction", "Fine?")
    assert code == 0
    assert out.splitlines()[:2] == [
        f"10 samples to label for faithfulness, written to {sheet}: fill in the column 'label'",
        f"10 samples to label for faithfulness, written to {page}: open it in a browser; it saves page.csv, for "
        "rageval agreement",
    ]
    assert sheet.exists()
    assert page.exists()


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
