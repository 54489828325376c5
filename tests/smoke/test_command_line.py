"""The command `rageval` of the installed package, with the offline judge, in a temporary folder."""

import json
import re
import sys

import pytest

SAMPLES = [
    {
        "question": f"Question {number}: when was Munich founded?",
        "answer": "Munich was founded in 1158. A million elephants live there.",
        "contexts": ["Munich was founded in 1158 by Henry the Lion."],
    }
    for number in range(6)
]
FAITHFUL, OUT = ("--metrics", "faithfulness"), ("--out", "report.jsonl")


def complaints(done):
    """Return what a program wrote to stderr, without the progress that a run of more than some seconds tells there."""
    return re.sub(r"^rageval: \d+/\d+ samples, .*\n", "", done.stderr, flags=re.MULTILINE)


@pytest.fixture
def answers(tmp_path):
    """A file of six samples; one of the two statements of each answer is supported."""
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(json.dumps(sample) + "\n" for sample in SAMPLES), encoding="utf-8")
    return path.name


@pytest.fixture
def summary(rageval):
    """Return the summary of faithfulness in a saved report."""

    def read(report):
        done = rageval("report", report, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        found = json.loads(done.stdout)["metrics"]["faithfulness"]
        return {name: found[name] for name in ("mean", "scored", "unscored", "failed", "calls")}

    return read


@pytest.mark.gate
def test_the_demo_scores_its_answers_in_both_languages(rageval):
    done = rageval("demo")
    assert (done.returncode, complaints(done)) == (0, "")
    for expected in ("40 answers to questions", "faithfulness", "answer_correctness", "0 failed", "Шурин", "supported"):
        assert expected in done.stdout


@pytest.mark.gate
def test_the_module_is_the_same_program(execute, rageval):
    module, program = execute(sys.executable, "-m", "langchain_rageval", "--version"), rageval("--version")
    assert (module.returncode, module.stdout, module.stderr) == (0, program.stdout, "")
    assert program.stdout.startswith("rageval ")


@pytest.mark.gate
def test_a_file_is_scored_and_its_report_shown(rageval, summary, answers):
    done = rageval("evaluate", answers, *FAITHFUL, "--out", "report.jsonl")
    assert (done.returncode, complaints(done)) == (0, "")
    assert "Report written to report.jsonl" in done.stdout
    assert summary("report.jsonl") == {"mean": 0.5, "scored": 6, "unscored": 0, "failed": 0, "calls": 12}
    shown = rageval("report", "report.jsonl")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "Worst by faithfulness" in shown.stdout


@pytest.mark.gate
@pytest.mark.parametrize(("threshold", "code"), [(0.1, 0), (0.9, 1)])
def test_a_gate_decides_the_exit_code(rageval, answers, threshold, code):
    done = rageval("evaluate", answers, *FAITHFUL, "--judge", "offline", "--fail-under", f"faithfulness={threshold}")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert bool(complaints(done)) == bool(code)


def test_a_missing_file_is_an_error_without_a_traceback(rageval):
    done = rageval("evaluate", "none.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("rageval: ")
    assert "Traceback" not in done.stderr


@pytest.mark.gate
def test_a_run_that_stopped_is_resumed_and_finished_scores_are_not_paid_again(rageval, summary, answers):
    """Each sample takes two calls: the first run pays for two samples, the second one for the other four."""
    begun = rageval("evaluate", answers, *FAITHFUL, "--journal", "run.db", "--budget-calls", "4", *OUT)
    assert (begun.returncode, complaints(begun)) == (0, "")
    assert summary("report.jsonl") == {"mean": 0.5, "scored": 2, "unscored": 0, "failed": 0, "calls": 4}
    resumed = rageval("resume", "run.db", "--budget-calls", "8")
    assert (resumed.returncode, complaints(resumed)) == (0, "")
    assert summary("report.jsonl") == {"mean": 0.5, "scored": 6, "unscored": 0, "failed": 0, "calls": 12}
