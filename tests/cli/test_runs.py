"""`rageval runs`: the reports of a folder, and `rageval compare` by their names."""

import json

from helpers.reports import failed, report_of, scored

from langchain_rageval import Report
from langchain_rageval.report.files import Decision


def stored(folder, name, value, finished):
    path = folder / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    Report(report_of(*[scored(value)] * 10).rows, finished=finished).to_jsonl(path)


def test_reports_are_listed_the_latest_first_and_other_files_are_ignored(rageval, tmp_path):
    stored(tmp_path, "monday", 0.5, "2026-11-02T10:00:00+00:00")
    stored(tmp_path, "nightly/tuesday", 1.0, "2026-11-03T10:00:00+00:00")
    (tmp_path / "answers.jsonl").write_text('{"question": "?"}', encoding="utf-8")
    code, out, err = rageval("runs", tmp_path, "--json")
    assert (code, err) == (0, "")
    same = {"samples": 10, "complete": True, "judges": [], "gate": ""}
    expected = [
        {"name": "nightly/tuesday", "finished": "2026-11-03T10:00:00+00:00", "means": {"faithfulness": 1.0}, **same},
        {"name": "monday", "finished": "2026-11-02T10:00:00+00:00", "means": {"faithfulness": 0.5}, **same},
    ]
    assert json.loads(out) == {"runs": expected}
    code, out, _ = rageval("runs", tmp_path)
    assert [line.split("│")[1].strip() for line in out.splitlines() if "2026" in line] == ["nightly/tuesday", "monday"]


def test_compare_takes_their_names(rageval, tmp_path):
    stored(tmp_path, "monday", 0.5, "")
    stored(tmp_path, "nightly/tuesday", 1.0, "")
    code, out, _ = rageval("compare", "--runs", tmp_path, "monday", "nightly/tuesday", "--json")
    assert code == 0
    assert json.loads(out)["metrics"]["faithfulness"]["verdict"] == "better"


def test_runs_are_checked_and_the_latest_decides_the_exit_code(rageval, tmp_path):
    stored(tmp_path, "monday", 1.0, "2026-11-02T10:00:00+00:00")
    stored(tmp_path, "tuesday", 0.5, "2026-11-03T10:00:00+00:00")
    code, out, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8", "--json")
    assert {one["name"]: one["gate"] for one in json.loads(out)["runs"]} == {"monday": "passed", "tuesday": "failed"}
    assert (code, err) == (1, "rageval: the latest run, tuesday, does not pass faithfulness=0.8: failed\n")
    stored(tmp_path, "wednesday", 0.9, "2026-11-04T10:00:00+00:00")
    code, out, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    assert (code, err) == (0, "")
    assert "│ passed │" in next(line for line in out.splitlines() if "wednesday" in line)


def test_a_run_whose_lost_samples_could_turn_the_answer_is_undecided(rageval, tmp_path):
    report_of(*[scored(1.0)] * 14, *[failed()] * 6).to_jsonl(tmp_path / "outage.jsonl")
    code, _, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    assert (code, err) == (1, "rageval: the latest run, outage, does not pass faithfulness=0.8: undecided\n")


def test_the_decision_of_a_run_that_stopped_early_is_its_gate(rageval, tmp_path):
    decided = {"faithfulness": Decision("passed", 0.85, 1.0, 60, 0.05, "at least 0.8")}
    Report(report_of(*[scored(0.9)] * 10).rows, decisions=decided).to_jsonl(tmp_path / "early.jsonl")
    assert json.loads(rageval("runs", tmp_path, "--json")[1])["runs"][0]["gate"] == "passed"


def test_a_damaged_report_is_named_and_does_not_hide_the_others(rageval, tmp_path):
    stored(tmp_path, "понедельник", 1.0, "2026-11-02T10:00:00+00:00")
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes((tmp_path / "понедельник.jsonl").read_bytes()[:-40])
    code, out, err = rageval("runs", tmp_path, "--json")
    assert (code, [one["name"] for one in json.loads(out)["runs"]]) == (0, ["понедельник"])
    assert err.startswith(f"rageval: left out: {cut}, line 11: not a row of a report: ")
    code, _, err = rageval("runs", tmp_path, "--fail-under", "faithfulness=0.8")
    problem = "which run is the latest is unknown, because a report is damaged: repair or delete its file"
    assert (code, err.splitlines()[-1]) == (2, f"rageval: {problem}")
    (tmp_path / "понедельник.jsonl").unlink()
    code, _, err = rageval("runs", tmp_path)
    assert (code, err.startswith(f"rageval: {cut}, line 11: ")) == (2, True)
