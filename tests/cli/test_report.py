"""`rageval report`, and the pages that other commands write."""

import webbrowser

import pytest
from helpers.reports import report

from langchain_rageval import Report


@pytest.fixture
def opened(monkeypatch):
    """Addresses that a browser was asked to open."""
    found = []
    monkeypatch.setattr(webbrowser, "open", found.append)
    return found


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "report.jsonl"
    report([1.0, 0.0, 0.5], notes=["Judged offline."]).to_jsonl(path)
    return path


def test_no_worst_samples_are_shown_for_a_metric_with_perfect_scores(rageval, tmp_path):
    rows = []
    for row in report([1.0, 1.0]).rows:
        noise = row.scores["claim_noise"].model_copy(update={"failure": None, "unscored": None, "value": 0.0})
        rows.append(row.model_copy(update={"scores": {**row.scores, "claim_noise": noise}}))
    Report(rows).to_jsonl(tmp_path / "report.jsonl")
    _, out, _ = rageval("report", tmp_path / "report.jsonl")
    assert "claim_noise" in out
    assert "Worst by" not in out


def test_it_writes_a_page_with_a_comparison(rageval, saved, tmp_path, opened):
    report([0.5, 0.5, 0.5]).to_jsonl(tmp_path / "before.jsonl")
    page = tmp_path / "page.html"
    code, out, _ = rageval("report", saved, "--html", page, "--baseline", tmp_path / "before.jsonl", "--language", "ru")
    assert code == 0
    assert "Сравнение с прежним прогоном" in page.read_text(encoding="utf-8")
    assert str(page) in out.replace("\n", "")
    assert opened == []


def test_open_puts_the_page_beside_the_report_and_opens_it(rageval, saved, opened):
    code, _, _ = rageval("report", saved, "--open")
    page = saved.with_suffix(".html")
    assert code == 0
    assert page.exists()
    assert opened == [page.as_uri()]


def test_the_demo_ends_with_the_page(rageval, tmp_path, monkeypatch, opened):
    monkeypatch.chdir(tmp_path)
    code, out, _ = rageval("demo", "--open")
    assert code == 0
    assert "rageval-demo.html" in out
    assert opened == [(tmp_path / "rageval-demo.html").as_uri()]


def test_evaluate_writes_the_page_too(rageval, written, tmp_path):
    sample = {"question": "Q?", "answer": "It is so.", "contexts": ["It is so."]}
    code, out, _ = rageval("evaluate", written(sample), "--html", tmp_path / "x.html")
    assert code == 0
    assert "x.html" in out.replace("\n", "")
    assert "faithfulness" in (tmp_path / "x.html").read_text(encoding="utf-8")
