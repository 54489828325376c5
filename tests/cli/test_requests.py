"""`rageval requests` and `rageval replies`: only files reach the model, here a batch runner of this test."""

import json
from pathlib import Path

import pytest
from helpers.each import each
from helpers.offline import RICH, offline
from helpers.reports import comparable
from helpers.servers.batches import BatchRunner
from helpers.servers.endpoints import OpenAIServer
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from pydantic import TypeAdapter

from langchain_rageval import Report
from langchain_rageval.cli.main import run as cli

METRICS = "faithfulness,context_precision,context_recall"


@pytest.fixture
def runner():
    return BatchRunner(offline)


@pytest.fixture
def answers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    path = tmp_path / "answers.jsonl"
    path.write_text("".join(f"{sample.model_dump_json()}\n" for sample in RICH), encoding="utf-8")
    return path


def write_first_wave(capsys, metrics=METRICS, *words):
    assert cli(["requests", "answers.jsonl", "--metrics", metrics, "--judge", "vllm:m", *words]) == 0
    return capsys.readouterr().err


def read(capsys, *words, code=0):
    """Run `rageval replies`, which ends with a code, and return what it shows."""
    assert cli(["replies", *words]) == code
    return capsys.readouterr()


def test_files_give_the_scores_of_a_live_run(answers, runner, capsys):
    message = write_first_wave(capsys)
    assert message == (
        "rageval: wave 1: 7 requests written to wave-1.jsonl. Answer it, as with `vllm run-batch -i wave-1.jsonl -o "
        "wave-1.out.jsonl --model MODEL`, then run `rageval replies wave-1.out.jsonl --journal run.db`\n"
    )
    runner.run("wave-1.jsonl", "wave-1.out.jsonl")
    shown = read(capsys, "wave-1.out.jsonl", "--journal", "run.db")
    assert shown.err.startswith("rageval: wave 2: 4 requests written to wave-2.jsonl.")
    runner.run("wave-2.jsonl", "wave-2.out.jsonl")
    shown = read(capsys, "wave-2.out.jsonl", "--report", "report.jsonl", "--fail-under", "faithfulness=0.6", code=1)
    report = Report.load("report.jsonl")
    with OpenAIServer(offline) as server:
        judge = ["--judge", "vllm:m", "--base-url", f"{server.url}/v1"]
        cli(["evaluate", "answers.jsonl", "--metrics", METRICS, *judge, "--out", "live.jsonl"])
    assert comparable(report) == comparable(Report.load("live.jsonl"))
    assert runner.calls == server.calls == report.usage.calls


def test_each_line_is_a_request_of_openai_s_own_type(answers, capsys):
    write_first_wave(capsys)
    body = TypeAdapter(CompletionCreateParamsNonStreaming)
    lines = [json.loads(line) for line in Path("wave-1.jsonl").read_text(encoding="utf-8").splitlines()]
    for line in lines:
        parsed = body.validate_python(line["body"])
        assert (parsed["model"], line["url"], len(line["custom_id"])) == ("m", "/v1/chat/completions", 64)
    assert len({line["custom_id"] for line in lines}) == len(lines) == 7


def test_a_journal_holds_the_requests_of_one_run_which_another_command_continues(answers, capsys):
    write_first_wave(capsys, "faithfulness")
    assert cli(["resume", "run.db"]) == 2
    problem = "run.db was written by `rageval requests`; continue with `rageval replies FILE --journal run.db`"
    assert capsys.readouterr().err == f"rageval: {problem}\n"
    write_first_wave(capsys, "faithfulness", "--out", "copy.jsonl")
    assert cli(["requests", "answers.jsonl", "--metrics", "context_recall", "--judge", "vllm:m"]) == 2
    assert capsys.readouterr().err == (
        "rageval: run.db holds the requests of another run, `rageval requests answers.jsonl --metrics faithfulness "
        "--judge vllm:m --out copy.jsonl`; name another file with --journal\n"
    )


def test_lost_lines_are_asked_again(answers, runner, capsys):
    write_first_wave(capsys)
    runner.run("wave-1.jsonl", "wave-1.out.jsonl", leave_out={1})
    shown = read(capsys, "wave-1.out.jsonl")
    assert shown.err.startswith(
        "rageval: 1 of the 7 requests of wave 1 have no line in wave-1.out.jsonl; they are asked again in the next "
        "wave. If the file was cut off on the way, copy it again and repeat the command\n"
        "rageval: wave 2: "
    )
    lost = json.loads(Path("wave-1.jsonl").read_text(encoding="utf-8").splitlines()[1])
    assert lost in [json.loads(line) for line in Path("wave-2.jsonl").read_text(encoding="utf-8").splitlines()]


def test_a_complete_copy_may_be_read_after_an_incomplete_one(answers, runner, capsys):
    write_first_wave(capsys)
    read(capsys, runner.run("wave-1.jsonl", "wave-1.part.jsonl", leave_out={0, 1}))
    shown = read(capsys, runner.run("wave-1.jsonl", "wave-1.out.jsonl"))
    assert shown.err.startswith("rageval: wave 3: 4 requests written to wave-3.jsonl.")
    assert "have no line" not in shown.err


def test_failed_requests_are_asked_again(answers, runner, capsys):
    write_first_wave(capsys)
    shown = read(capsys, runner.run("wave-1.jsonl", "wave-1.out.jsonl", status=503))
    assert shown.err.startswith(
        "rageval: 7 of the 7 requests of wave 1 failed on the server; they are asked again in the next wave\n"
        "rageval: wave 1: 7 requests written to wave-1.jsonl."
    )


def test_refused_requests_are_failures_until_their_answers_are_read(answers, runner, capsys):
    write_first_wave(capsys, "context_recall")
    shown = read(capsys, runner.run("wave-1.jsonl", "wave-1.out.jsonl", status=403), "--report", "report.jsonl", code=2)
    assert shown.err == (
        "rageval: every score failed (samples: 2); first failure: OpenAIPermissionDeniedError: Error code: 403 (does "
        "this key have access to the model?)\n"
    )
    shown = read(capsys, runner.run("wave-1.jsonl", "wave-1.out.jsonl"))
    assert shown.err.startswith("rageval: wave 2: 2 requests written to wave-2.jsonl.")
    read(capsys, runner.run("wave-2.jsonl", "wave-2.out.jsonl"), "--report", "report.jsonl")
    assert all(row.scores["context_recall"].value is not None for row in Report.load("report.jsonl").rows)


def error_of(capsys, *words):
    return read(capsys, *words, code=2).err.removeprefix("rageval: ").rstrip("\n")


def replies(capsys, runner):
    """Return the lines of the replies to the first wave, which are in a file."""
    write_first_wave(capsys)
    return Path(runner.run("wave-1.jsonl", "wave-1.out.jsonl")).read_text(encoding="utf-8").splitlines()


CUT = "not a JSON object; the file was cut off or changed on the way: copy it again"
FORMAT = "not a reply in OpenAI's batch format, {}; pass the output of the batch"


NO_REPLIES = [
    (lambda lines: "\n".join(lines)[:-40], f"out.jsonl, line 7: {CUT}"),
    (
        lambda lines: "\n".join([*lines, lines[1]]),
        "out.jsonl, line 8: the request of custom_id {start}… is also answered in out.jsonl, line 2; "
        "pass the output of one run of the batch",
    ),
    (lambda lines: '{"a": 1}', f"out.jsonl, line 1: {FORMAT.format('the key custom_id is missing')}"),
    (
        lambda lines: '{"custom_id": "x"}',
        f"out.jsonl, line 1: {FORMAT.format('the keys response and error are both missing')}",
    ),
    (lambda lines: "", "out.jsonl is empty; pass the output for wave-1.jsonl"),
    (
        lambda lines: Path("wave-1.jsonl").read_text(encoding="utf-8"),
        "out.jsonl, line 1: a request, not a reply; pass the file that the batch has written",
    ),
]


@each(("text", "message"), NO_REPLIES, ids=["cut off", "two replies", "no id", "no reply", "empty", "requests"])
def test_a_file_that_does_not_hold_the_replies_is_refused(answers, runner, capsys, text, message):
    lines = replies(capsys, runner)
    Path("out.jsonl").write_text(text(lines), encoding="utf-8")
    assert error_of(capsys, "out.jsonl") == message.replace("{start}", json.loads(lines[1])["custom_id"][:12])


def test_a_missing_file_and_replies_of_an_earlier_wave_and_of_another_run_are_refused(answers, runner, capsys):
    start = json.loads(replies(capsys, runner)[0])["custom_id"][:12]
    problem = "out.jsonl cannot be read: No such file or directory; pass the output of the batch"
    assert error_of(capsys, "out.jsonl") == problem
    read(capsys, "wave-1.out.jsonl")
    assert error_of(capsys, "wave-1.out.jsonl") == (
        "wave-1.out.jsonl holds the replies of wave 1, which were read before; wave 2 waits for the output for "
        "wave-2.jsonl"
    )
    write_first_wave(capsys, "context_relevance", "--journal", "other.db", "--out", "other.jsonl")
    assert error_of(capsys, "wave-1.out.jsonl", "--journal", "other.db") == (
        f"wave-1.out.jsonl, line 1: custom_id {start}… is of no wave in other.db; pass the output for other.jsonl, "
        "or the journal of the run that wrote the requests"
    )


def test_a_file_holds_the_requests_of_one_model(answers, runner, capsys):
    message = write_first_wave(capsys, "faithfulness,answer_similarity", "--embeddings", "vllm:BAAI/bge-m3")
    names = ["wave-1.BAAI-bge-m3", "wave-1"]
    assert "wave-1" in message
    assert {path.name for path in Path().glob("wave-1*")} == {f"{name}.jsonl" for name in names}
    outputs = [runner.run(f"{name}.jsonl", f"{name}.out.jsonl") for name in names]
    shown = read(capsys, *outputs, "--json")
    assert json.loads(shown.out) == {"wave": 2, "requests": 2, "files": ["wave-2.jsonl"]}
