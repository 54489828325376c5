"""`rageval trend`: the table, the exit code of an alarm, and a live SQLite file."""

import json
from datetime import UTC, datetime, timedelta

from helpers.reports import row, scored

from langchain_rageval import Report
from langchain_rageval.sinks import SqliteSink

START = datetime(2026, 11, 2, tzinfo=UTC)


def rows(values, days=1):
    for number, value in enumerate(values):
        one = row(number, scored(value), id=f"r{number}", question=f"Q{number}?", metadata={"run_id": f"r{number}"})
        yield one.model_copy(update={"time": START + timedelta(days=number * days / len(values))})


def test_the_file_of_a_sink_is_shown_by_day_while_it_is_open(rageval, tmp_path):
    sink = SqliteSink(tmp_path / "live.db")
    for one in rows([1.0] * 40, days=2):
        sink(one)
    code, out, err = rageval("trend", tmp_path / "live.db")
    assert (code, err) == (0, "")
    assert [line.split("│")[1:3] for line in out.splitlines() if "2026" in line] == [
        [" 2026-11-02 ", "      20 "],
        [" 2026-11-03 ", "      20 "],
    ]
    sink.close()


def test_an_alarm_ends_with_1_and_is_in_the_object_and_on_the_page(rageval, tmp_path):
    Report(list(rows([1.0] * 60))).to_jsonl(tmp_path / "dev.jsonl")
    Report(list(rows([0.0] * 60))).to_jsonl(tmp_path / "live.jsonl")
    page = tmp_path / "trend.html"
    words = ["trend", tmp_path / "live.jsonl", "--baseline", tmp_path / "dev.jsonl", "--html", page]
    code, out, _ = rageval(*words)
    assert (code, out.endswith(f"\nTrend written to {page}\n")) == (1, True)
    assert '<h1 id="title">Drift: faithfulness</h1>' in page.read_text(encoding="utf-8")
    code, out, err = rageval(*words, "--language", "ru", "--json")
    assert "Дрейф: faithfulness" in page.read_text(encoding="utf-8")
    found = json.loads(out)
    assert (code, out.count("\n")) == (1, 1)
    assert list(found) == ["periods", "baseline", "alarms", "changes", "judge_shift", "notes"]
    assert found["periods"]["2026-11-02"]["faithfulness"]["mean"] == 0.0
    assert found["baseline"]["faithfulness"]["scored"] == 60
    assert found["alarms"]["faithfulness"].keys() == {"raised", "since", "mean", "baseline", "samples", "judge"}
    drift = "rageval: faithfulness has drifted: 0.000 since 2026-11-02 00:00 UTC, 1.000 in the baseline; raised on "
    assert err.startswith(drift)


def test_changes_of_a_mean_are_shown_and_in_the_object(rageval, tmp_path):
    Report(list(rows([1.0] * 60 + [0.0] * 60, days=4))).to_jsonl(tmp_path / "live.jsonl")
    code, out, _ = rageval("trend", tmp_path / "live.jsonl")
    assert code == 0
    assert "faithfulness changed from 1.000 to 0.000 on 2026-11-04 00:00 UTC (estimate)" in out
    _, out, _ = rageval("trend", tmp_path / "live.jsonl", "--json")
    change = {"since": "2026-11-04T00:00:00+00:00", "before": 1.0, "after": 0.0}
    assert json.loads(out)["changes"] == {"faithfulness": [change]}


def test_a_baseline_with_too_few_scores_is_refused_and_the_page_says_so(rageval, tmp_path):
    Report(list(rows([1.0] * 60))).to_jsonl(tmp_path / "live.jsonl")
    Report(list(rows([1.0] * 3))).to_jsonl(tmp_path / "dev.jsonl")
    files = (tmp_path / "live.jsonl", "--baseline", tmp_path / "dev.jsonl")
    page = tmp_path / "trend.html"
    code, out, err = rageval("trend", *files, "--html", page)
    problem = "the baseline has too few scores to watch faithfulness: at least 6 scored samples are needed"
    assert (code, err.startswith(f"rageval: {problem}")) == (2, True)
    assert "2026-11-02" in out
    assert problem in page.read_text(encoding="utf-8")


def test_the_page_is_opened_next_to_the_report(rageval, tmp_path, monkeypatch):
    Report(list(rows([1.0] * 20))).to_jsonl(tmp_path / "live.jsonl")
    opened = []
    monkeypatch.setattr("langchain_rageval.cli.terminal.webbrowser.open", opened.append)
    assert rageval("trend", tmp_path / "live.jsonl", "--open")[0] == 0
    assert opened == [(tmp_path / "live.html").as_uri()]
