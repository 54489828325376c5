"""Fixtures of the command-line tests."""

import json

import pytest
from helpers.offline import offline

from langchain_rageval import Report
from langchain_rageval.cli.main import load_commands, run


@pytest.fixture(autouse=True)
def one_metric(request, monkeypatch):
    """Score faithfulness where a command names no metrics, so that a test counts the calls of one metric.

    A test that asks for the fixture `default_metrics` gets the real default, the preset core.
    """
    if "default_metrics" not in request.fixturenames:
        shared = load_commands()["plan"]["options"][0]["samples and metrics"]
        option = next(one["--metrics"] for one in shared if "--metrics" in one)
        monkeypatch.setitem(option, "default", "faithfulness")


@pytest.fixture
def default_metrics():
    """Leave the default of --metrics as it is."""


@pytest.fixture
def rageval(capsys, request):
    """Run a command in this process and return exit code, stdout and stderr; there is never a traceback.

    If the test fails, pytest shows what each command wrote to stderr.
    """

    def command(*words):
        try:
            code = run([str(word) for word in words])
        except SystemExit as error:  # raised by argparse
            code = error.code
        output = capsys.readouterr()
        title = f"stderr of {' '.join(map(str, words))}, exit code {code}"
        request.node.add_report_section("call", title, output.err)
        assert "Traceback" not in output.out + output.err
        return code, output.out, output.err

    return command


@pytest.fixture
def written(tmp_path):
    """Write samples as JSON lines, or texts as they are, to a file, and return its path."""

    def write(*samples, name="samples.jsonl"):
        path = tmp_path / name
        lines = [sample if isinstance(sample, str) else json.dumps(sample, ensure_ascii=False) for sample in samples]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return path

    return write


@pytest.fixture
def scored(rageval, tmp_path):
    """Run `rageval evaluate`; return the scores of the first sample by name, and what stderr says."""

    def scores(*words):
        code, _, complaints = rageval("evaluate", *words, "--out", tmp_path / "out.jsonl", "--quiet")
        assert code == 0, complaints
        return Report.load(tmp_path / "out.jsonl").rows[0].scores, complaints

    return scores


@pytest.fixture
def judged(openai_server, monkeypatch):
    """Start a server, and return it with the words that name it as the judge."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")

    def start(reply=offline, **options):
        server = openai_server(reply, **options)
        return server, ["--judge", "openai:m", "--base-url", f"{server.url}/v1"]

    return start
