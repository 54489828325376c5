"""Metrics of a user on the command line: MODULE:NAME, and entry points of installed packages."""

import json
import sys

from langchain_rageval import Report

SAMPLE = {"question": "What is a bat?", "answer": "An animal."}


OWN = ("helpers.own.short_enough:short_enough", "helpers.own.politeness:politeness", "helpers.own.tone:tone")


def test_they_are_evaluated_planned_gated_and_resumed_beside_those_of_the_package(rageval, scored, written, tmp_path):
    metrics = ["--metrics", ",".join(["faithfulness", *OWN])]
    samples = written({**SAMPLE, "contexts": ["A bat is an animal."]})
    code, planned, complaints = rageval("plan", samples, *metrics, "--json")
    assert (code, complaints) == (0, "")
    calls = [json.loads(planned)["metrics"][name]["calls"] for name in ("short_enough", "politeness", "tone")]
    assert calls == [0, 1, 1]
    given = [*metrics, "--judge", "offline", "--journal", tmp_path / "j.db"]
    scores, _ = scored(samples, *given, "--fail-under", "politeness=0.5")
    assert [scores[name].value for name in ("short_enough", "politeness", "tone")] == [1.0] * 3
    assert rageval("resume", tmp_path / "j.db", "--budget-calls", "0")[0] == 0
    assert Report.load(tmp_path / "out.jsonl").rows[0].scores == scores


def test_a_module_is_found_in_the_working_directory(scored, written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    source = "from langchain_rageval import metric\n\n@metric(reads={'answer'})\ndef brief(sample):\n    return True\n"
    (tmp_path / "beside_it.py").write_text(source, encoding="utf-8")
    assert scored(written(SAMPLE), "--metrics", "beside_it:brief")[0]["brief"].value == 1.0


def test_an_entry_point_of_a_package_is_listed_and_used(rageval, scored, written, tmp_path, monkeypatch):
    info = tmp_path / "polite-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: polite\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[langchain_rageval.metrics]\nkindness = {OWN[1]}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    _, listed, _ = rageval("metrics")
    assert listed.splitlines()[-1].split(maxsplit=1) == ["kindness", "helpers.own.politeness:politeness of polite"]
    assert [*scored(written(SAMPLE), "--metrics", "kindness")[0]] == ["politeness"]
