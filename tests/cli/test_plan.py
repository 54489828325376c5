"""`rageval plan`, and the budget of `rageval evaluate`."""

import json
import os

import pytest
from helpers.samples import CONTEXTS, town
from helpers.screens import cells_of

from langchain_rageval import Report


@pytest.fixture
def samples(written):
    """A file of twenty samples that share no text."""
    return written(*map(town, range(20)))


@pytest.fixture
def document(tmp_path):
    """A folder with one document."""
    path = tmp_path / "documents" / "munich.txt"
    path.parent.mkdir()
    path.write_text(" ".join(CONTEXTS), encoding="utf-8")
    return path.parent


def test_the_estimate_equals_the_cost_of_the_run(rageval, samples, judged, tmp_path):
    server, judge = judged()
    words = [samples, "--metrics", "faithfulness,context_recall", *judge]
    code, told, complaints = rageval("plan", *words)
    assert (code, complaints, server.calls) == (0, "", 0)
    assert "Plan for 20 samples" in told
    lines = {name: cells for name, *cells in cells_of(told)}
    assert set(lines) == {"faithfulness", "context_recall", "total"}
    assert rageval("evaluate", *words, "--quiet", "--out", tmp_path / "out.jsonl")[0] == 0
    summary = Report.load(tmp_path / "out.jsonl").summary()
    for name, metric in summary.items():
        assert lines[name][0] == str(metric.calls)
        assert int(lines[name][1].replace(",", "")) >= metric.input_tokens
    assert lines["total"][0] == str(server.calls)


def test_a_plan_needs_no_key_and_no_address(rageval, samples, monkeypatch):
    keys = ("OPENAI_API_KEY", "GIGACHAT_CREDENTIALS")
    for name in keys:
        monkeypatch.delenv(name, raising=False)
    for judge in ("openai:m", "vllm:m", "gigachat:m"):
        code, told, complaints = rageval("plan", samples, "--judge", judge, "--embeddings", "openai:e")
        assert (code, complaints, "Plan for 20 samples" in told) == (0, "", True)
    assert {*keys}.isdisjoint(os.environ)
    monkeypatch.setenv("OPENAI_API_KEY", "")
    code, _, complaints = rageval("plan", samples, "--judge", "vllm:m", "--journal", samples.with_name("run.db"))
    assert (code, "base_url" in complaints or "--base-url" in complaints) == (2, True)  # it identifies stored scores
    assert os.environ["OPENAI_API_KEY"] == ""
    assert rageval("plan", samples, "--judge", "openai:m", "--pilot", 2)[0] == 2


def test_a_price_is_of_the_model_as_judge_names_it(rageval, samples, monkeypatch):
    for judge in ("openai:m", "offline"):
        _, told, _ = rageval("plan", samples, "--judge", judge, "--price", f"{judge}=1,2", "--json")
        assert json.loads(told)["total"]["money"] > 0


# The budget


def test_tokens_and_texts_are_bounded_too(rageval, samples, judged, tmp_path):
    server, judge = judged()
    out = tmp_path / "out.jsonl"
    words = ["evaluate", samples, *judge, "--quiet", "--out", out]
    assert rageval(*words, "--budget-tokens", "12000")[0] == 0
    assert 0 < server.tokens["total_tokens"] <= 12_000
    assert 0 < len(Report.load(out)) < 20
    both = ["--metrics", "answer_similarity", "--embeddings", "offline", "--budget-embeddings", "8"]
    code, told, _ = rageval(*words, *both, "--budget-calls", "3")
    assert (code, "The budget of 3 calls and 8 embeddings is spent" in told) == (0, True)
    assert len(Report.load(out)) == 4


def test_a_gate_on_one_of_two_metrics_that_was_left_out(rageval, samples, tmp_path):
    words = ["--judge", "offline", "--metrics", "faithfulness,answer_similarity", "--budget-calls", "0", "--quiet"]
    words = ["evaluate", samples, *words, "--fail-under"]
    ended, _, complaints = rageval(*words, "answer_similarity=0")
    assert (ended, complaints) == (0, "")
    ended, _, complaints = rageval(*words, "faithfulness=0", "--fail-under", "answer_similarity=2")
    told = "has nothing scored (20 left out), at least 0 is required [not-scored-at-all]; answer_similarity is "
    assert (ended, told in complaints) == (1, True)


def test_resume_goes_on_with_the_budget_anew_or_with_another(rageval, samples, judged, tmp_path):
    server, judge = judged()
    journal, out = tmp_path / "run.db", tmp_path / "out.jsonl"
    words = ["--journal", journal, "--out", out, "--budget-calls", "10", "--quiet"]
    assert rageval("evaluate", samples, *judge, *words)[0] == 0
    seen = [(server.calls, len(Report.load(out)))]
    for more in ([], ["--budget-calls", "4"], ["--budget-calls", "1000"]):
        assert rageval("resume", journal, *more)[0] == 0
        seen.append((server.calls, len(Report.load(out))))
    assert seen == [(10, 5), (20, 10), (24, 12), (40, 20)]
    assert Report.load(out).left_out == []


# plan --generate


def test_a_generation_is_planned_by_step_without_a_call(rageval, judged, document):
    server, judge = judged()
    words = ["plan", document, "--generate", "--size", 4, "--distribution", "simple=1,reasoning=1", *judge]
    code, out, err = rageval(*words, "--json")
    assert (code, err, server.calls) == (0, "", 0)
    estimate = json.loads(out)
    assert list(estimate) == ["questions", "rehearsed", "steps", "total", "notes"]
    assert estimate["questions"] == 4
    assert estimate["total"]["calls"] == sum(step["calls"] for step in estimate["steps"].values()) == 2 * 7 + 2 * 11
    assert estimate["total"]["most_calls"] > estimate["total"]["calls"]
    table, shown = rageval(*words)[1], ("Plan for 4 questions: 9.0 calls each if none is rejected", "write_answer")
    assert [part for part in shown if part not in table] == []


def test_the_plan_of_a_generation_takes_the_models_of_the_generation(rageval, document):
    words = ["plan", document / "munich.txt", "--generate", "--size", 1, "--distribution", "simple=1", "--json"]
    models, prices = ["--writer", "openai:w", "--critic", "openai:c"], ["--price", "w=0,1000000", "--price", "c=0,1"]
    of_one, of_both = [json.loads(rageval(*words, *models[:n], *prices)[1])["total"]["money"] for n in (2, 4)]
    assert of_one > of_both > 0
    assert rageval(*words, "--writer", "vllm:w")[0] == 0  # without the address of its server
