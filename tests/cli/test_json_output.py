"""Machine-readable input and output: `--json`, samples on stdin, reports on stdout."""

import io
import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from helpers.each import each
from helpers.offline import offline
from helpers.reports import report
from helpers.samples import CONTEXTS, REFUSAL, SAMPLE
from helpers.servers.batches import BatchRunner

from langchain_rageval import Report, Testset
from langchain_rageval.cli.main import load_commands, run

KEYS = {name: command["keys"] for name, command in load_commands().items() if "keys" in command}
LINES = "".join(json.dumps(sample, ensure_ascii=False) + "\n" for sample in (SAMPLE, REFUSAL))
COMMANDS = {
    "evaluate": ["samples.jsonl", "--budget-calls", "1", "--quiet"],
    "replies": ["wave-1.out.jsonl"],
    "report": ["report.jsonl"],
    "compare": ["report.jsonl", "report.jsonl"],
    "trend": ["live.jsonl", "--baseline", "report.jsonl"],
    "runs": ["."],
    "plan": ["samples.jsonl"],
    "generate": ["documents", "--size", "2", "--quiet"],
    "metrics": [],
    "qualify": ["--repeats", "1", "--quiet"],
    "probe": [],
    "diff": ["testset.jsonl", "testset.jsonl"],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where samples, a report and documents are."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "samples.jsonl").write_text(LINES, encoding="utf-8")
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "munich.txt").write_text(" ".join(CONTEXTS), encoding="utf-8")
    bench = report([1.0, 0.0, 0.5] * 3, notes=["Судил никто."])
    bench.to_jsonl(tmp_path / "report.jsonl")
    start = datetime(2026, 11, 2, tzinfo=UTC)
    live = [row.model_copy(update={"time": start + timedelta(hours=row.index)}) for row in bench.rows]
    Report(live).to_jsonl(tmp_path / "live.jsonl")
    Testset([]).to_jsonl(tmp_path / "testset.jsonl")
    run(["requests", "samples.jsonl", "--judge", "vllm:m", "--quiet"])
    BatchRunner(offline).run("wave-1.jsonl", "wave-1.out.jsonl")
    return tmp_path


@pytest.fixture
def given(monkeypatch):
    """Put bytes on stdin."""

    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


def documented(command, name):
    """The keys that the help lists under one of the object's own."""
    (line,) = (line for line in KEYS[command] if line.startswith(f"{name}: by name "))
    return {*line.removeprefix(f"{name}: by name ").split(", ")}


# --json


@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=pytest.mark.gate if name == "qualify" else ()) for name in COMMANDS]
)
def test_stdout_has_one_object_with_the_keys_that_the_help_lists(rageval, folder, command):
    code, out, err = rageval(command, *COMMANDS[command], "--json")
    assert (code, err) == (0, "")
    assert out.count("\n") == 1
    told = json.loads(out)
    assert list(told) == [line.partition(":")[0] for line in KEYS[command]]
    for metric in told.get("metrics", {}).values() if command != "metrics" else ():
        assert metric.keys() == documented(command, "metrics")
    help_text = " ".join(rageval(command, "--help-all")[1].split())
    assert " ".join(KEYS[command]) in help_text


def test_every_command_with_the_option_is_tried(rageval):
    helps = {command: rageval(command, "--help")[1] for command in (*COMMANDS, "demo", "label")}
    assert {command for command, text in helps.items() if "\n  --json " in text} == COMMANDS.keys() == KEYS.keys()


def test_the_numbers_are_those_of_the_report(rageval, folder):
    told = json.loads(rageval("report", "report.jsonl", "--json")[1])
    saved = Report.load("report.jsonl")
    for name, metric in saved.summary().items():
        shown = told["metrics"][name]
        assert (shown["mean"], shown["low"], shown["high"]) == (metric.mean, metric.low, metric.high)
        assert (shown["scored"], shown["calls"], shown["seconds"]) == (metric.scored, metric.calls, metric.seconds)
    assert told["notes"] == ["Судил никто."]
    assert told["diagnosis"] == saved.diagnose().counts
    assert told["samples"] == 9


def test_the_verdicts_are_those_of_the_comparison(rageval, folder):
    report([0.1] * 9).to_jsonl("worse.jsonl")
    code, out, err = rageval("compare", "report.jsonl", "worse.jsonl", "--json", "--fail-if-worse", "--margin", "0.01")
    told = json.loads(out)
    expected = Report.load("worse.jsonl").compare(Report.load("report.jsonl"), 0.01)
    verdicts = {name: metric.verdict for name, metric in expected.items()}
    assert told["margin"] == 0.01
    assert {name: metric["verdict"] for name, metric in told["metrics"].items()} == verdicts
    assert told["metrics"]["faithfulness"]["candidate"] == pytest.approx(0.1)
    assert code == bool(err) == ("worse" in verdicts.values())


def test_the_object_contains_left_out_scores_and_is_written_when_a_gate_fails(rageval, folder):
    words = ["evaluate", "samples.jsonl", "--json"]
    told = json.loads(rageval(*words, "--budget-calls", "1")[1])
    assert told["left_out"] == [{"index": 0, "metric": "faithfulness"}]  # the refusal is drawn first, one call
    code, out, err = rageval(*words, "--judge", "offline", "--fail-under", "faithfulness=1")
    assert (code, json.loads(out)["metrics"]["faithfulness"]["unscored"]) == (1, 1)
    assert "at least 1 is required" in err


def test_json_and_a_report_file_can_be_written_together(rageval, folder):
    for words in (["evaluate", "samples.jsonl"], ["generate", "documents", "--size", "1"]):
        assert rageval(*words, "--json", "--out", "x.jsonl")[0] == 0
        assert (folder / "x.jsonl").is_file()


# - for stdin and stdout


@pytest.mark.parametrize("command", ["evaluate", "plan"])
def test_samples_come_from_stdin(rageval, folder, given, command):
    from_file = rageval(command, "samples.jsonl", "--json")[1]
    given(LINES.encode())
    told = json.loads(rageval(command, "-", "--json")[1])
    assert told["samples"] == 2
    for metric in [*told["metrics"].values(), *(expected := json.loads(from_file))["metrics"].values()]:
        metric.pop("seconds", None)
    assert told == expected


STDIN = [
    (b"", "stdin contains no samples: pass at least one"),
    (b"{oops\n", "stdin, line 1: not valid JSON"),
    (LINES.encode() + b'{"answer": "a"}\n', "stdin, line 3: the sample lacks a question"),
    ('{"question": "где"}'.encode("cp1251"), "stdin, line 1, question 'где': faithfulness reads"),
]


@each(("content", "mend"), STDIN)
def test_errors_on_stdin_name_the_line(rageval, given, content, mend):
    given(content)
    code, out, err = rageval("evaluate", "-")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert mend in err


def test_fields_and_skipped_lines_on_stdin(rageval, given, tmp_path):
    given(LINES.replace("question", "q").encode() + b"{oops\n")
    words = ["evaluate", "-", "--fields", "question=q", "--on-error", "skip", "--out", tmp_path / "out.jsonl"]
    assert rageval(*words)[0] == 0
    assert [row.sample.question for row in Report.load(tmp_path / "out.jsonl").rows] == [SAMPLE["question"]] * 2


@each("stdout", ["-", "/dev/stdout"])
def test_the_report_or_the_test_set_goes_to_stdout_and_the_table_to_stderr(rageval, folder, stdout):
    code, out, err = rageval("evaluate", "samples.jsonl", "--out", stdout)
    (folder / "piped.jsonl").write_text(out, encoding="utf-8")
    assert [row.sample.question for row in Report.load("piped.jsonl").rows] == [SAMPLE["question"]] * 2
    assert (code, "2 samples" in err, "Judged offline" in err, "written to" in err) == (0, True, True, False)
    assert not (folder / "-").exists()
    code, out, err = rageval("generate", "documents", "--size", "2", "--quiet", "--out", stdout)
    (folder / "piped.jsonl").write_text(out, encoding="utf-8")
    assert (code, len(Testset.load("piped.jsonl")), "2 questions" in err) == (0, 2, True)


def test_a_resumed_run_reads_stdin_again_and_writes_to_the_original_path(rageval, folder, given, monkeypatch):
    given(LINES.encode())
    words = ["evaluate", "-", "--journal", "run.db", "--html", "page.html", "--quiet", "--json"]
    first = json.loads(rageval(*words)[1])
    (folder / "elsewhere").mkdir()
    (folder / "page.html").unlink()
    monkeypatch.chdir(folder / "elsewhere")
    given(LINES.encode())
    again = json.loads(rageval("resume", "../run.db")[1])
    assert (folder / "page.html").is_file()
    assert again["metrics"]["faithfulness"]["mean"] == first["metrics"]["faithfulness"]["mean"]


@pytest.mark.gate
def test_a_pipe_of_any_locale_carries_utf_8(folder):
    words = [sys.executable, "-m", "langchain_rageval", "evaluate", "-", "--quiet", "--out", "-"]
    line = '{"question": "Где?", "answer": "Тут.", "contexts": ["Тут."]}\n'.encode()
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(words, input=line, capture_output=True, env=environment, timeout=120)
    assert done.returncode == 0
    assert "Где?" in done.stdout.decode("utf-8")


def test_the_json_of_an_interrupted_run_says_that_it_is_not_complete(folder, monkeypatch, capsys):
    def interrupted(*_, **__):
        return Report(report([1.0]).rows, complete=False)

    monkeypatch.setattr("langchain_rageval.cli.evaluate.evaluate", interrupted)
    assert run(["evaluate", "samples.jsonl", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["complete"] is False
