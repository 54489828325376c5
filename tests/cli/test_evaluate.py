"""`rageval evaluate`: output, exit codes, gates, audits, models that fail, pipes and journals."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing

import pytest
from helpers.offline import ROWS, offline
from helpers.samples import CONTEXTS, REFUSAL, SAMPLE, TRUE_SAMPLE
from helpers.servers.chat import Faults
from helpers.waiting import PATIENCE, Connections, Pauses, until

from langchain_rageval import Report
from langchain_rageval.run.journal import Journal

PROGRAM = [sys.executable, "-m", "langchain_rageval"]


@pytest.fixture
def unpacked(tmp_path):
    """The 446 real answers, Russian and English."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.decompress(ROWS.read_bytes()))
    return path


@pytest.mark.gate
def test_real_answers_are_scored_offline(rageval, unpacked, tmp_path):
    code, told, complaints = rageval("evaluate", unpacked, "--out", tmp_path / "report.jsonl")
    assert (code, complaints) == (0, "")
    report = Report.load(tmp_path / "report.jsonl")
    summary = report.summary()["faithfulness"]
    rows = [json.loads(line) for line in unpacked.read_text(encoding="utf-8").splitlines()]
    assert [row.sample.id for row in report.rows] == [row["id"] for row in rows]
    assert (len(rows) >= 200, summary.failed) == (True, 0)
    shown = [f"{summary.mean:.3f}", summary.interval, "a smoke test and a baseline to beat, not a measure of quality"]
    shown += ["Worst by faithfulness", str(tmp_path / "report.jsonl")]
    assert [part for part in shown if part not in told] == []


def test_fields_of_any_name_are_mapped(scored, written):
    path = written({"q": "Q?", "a": "Munich was founded in 1158.", "docs": {"text": CONTEXTS}})
    scores, _ = scored(path, "--fields", "question=q, answer=a,contexts=docs.text")
    assert scores["faithfulness"].value == 1.0


def test_invalid_lines_are_skipped_on_request(rageval, written, tmp_path, caplog):
    path = written(SAMPLE, "{oops", {"answer": "a"}, SAMPLE)
    assert rageval("evaluate", path, "--on-error", "skip", "--out", tmp_path / "out.jsonl")[0] == 0
    skipped = [record.getMessage().split(":")[0] for record in caplog.records]
    assert skipped == [f"skipped samples.jsonl, line {number}" for number in (2, 3)]
    assert len(Report.load(tmp_path / "out.jsonl")) == 2


def test_the_demo_uses_the_judge_that_the_options_name(rageval, judged):
    server, judge = judged()
    code, told, _ = rageval("demo", *judge, "--embeddings", "offline")
    assert (code, "hashed words" in told, "Judged offline" in told) == (0, True, False)
    assert server.calls > 150


def test_no_command_leaves_its_journal_open(rageval, written, tmp_path, monkeypatch):
    samples, journal, empty = written(SAMPLE), tmp_path / "run.db", tmp_path / "empty.db"
    with closing(Journal(empty)) as other:
        other.put("key", "value")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "munich.txt").write_text(" ".join(CONTEXTS), encoding="utf-8")
    generated = ["--size", 1, "--distribution", "simple=1", "--out", tmp_path / "set.jsonl", "--journal", journal]
    commands = {
        "evaluate": ["evaluate", samples, "--journal", journal, "--quiet"],
        "resume": ["resume", journal],
        "resume without a command": ["resume", empty],
        "plan": ["plan", samples, "--journal", journal],
        "generate": ["generate", documents, *generated, "--quiet"],
    }
    codes, left_open = {}, {}
    for name, words in commands.items():
        with monkeypatch.context() as patch:
            connections = Connections(patch, tmp_path)
            codes[name] = rageval(*words)[0]
        assert connections.opened, name
        left_open[name] = len(connections.left_open)
    assert codes == {**dict.fromkeys(commands, 0), "resume without a command": 2}
    assert left_open == dict.fromkeys(commands, 0)
    assert "contains no command; run the command with --journal again" in rageval("resume", empty)[2]


def test_the_first_sample_is_shown_as_it_was_read_before_a_paid_call(rageval, written, judged):
    _, judge = judged()
    path = written({**SAMPLE, "references": []})
    _, _, complaints = rageval("evaluate", path, *judge)
    shown = ["rageval: first sample: question 'When was Munich founded?', answer 'Munich was founded in 1158."]
    shown += ["contexts 'Munich was founded in 1158 by Henry the Lion.' and 1 more, references none"]
    assert [part for part in shown if part not in complaints] == []
    assert "first sample" not in rageval("evaluate", path, *judge, "--quiet")[2]
    assert "first sample" not in rageval("evaluate", path, "--judge", "offline")[2]


# Gates

GATES = [
    (SAMPLE, "faithfulness=0.5", 0, ""),
    (SAMPLE, "faithfulness=0.8", 1, "faithfulness is 0.500 [0.076, 0.924], at least 0.8 is required"),
    (REFUSAL, "faithfulness=0", 1, "faithfulness has nothing scored, at least 0 is required"),
]


@pytest.mark.parametrize(("sample", "gate", "code", "message"), GATES)
def test_a_gate_decides_the_exit_code(rageval, written, tmp_path, sample, gate, code, message):
    words = ["--judge", "offline", "--fail-under", gate, "--out", tmp_path / "out.jsonl"]
    ended, told, complaints = rageval("evaluate", written(sample), *words)
    assert (ended, bool(complaints), "samples" in told) == (code, bool(code), True)
    assert message.split(" [")[0] in complaints
    assert len(Report.load(tmp_path / "out.jsonl")) == 1


def test_failures_without_a_gate_are_a_warning_and_with_one_they_count(rageval, written, judged):
    path = written(*({**TRUE_SAMPLE, "question": f"Q{n}?"} for n in range(4)))
    faults = ["unauthorized"]  # and with it the first sample
    for gate, code in (
        ([], 0),
        (["--no-canaries", "--fail-under", "faithfulness=0.8"], 1),
        (["--no-canaries", "--fail-under", "faithfulness=0.8", "--max-failed", "0.25"], 0),
    ):
        _, judge = judged(faults=Faults.script(faults))
        ended, _, complaints = rageval("evaluate", path, *judge, "--max-concurrency", "1", *gate)
        assert ended == code, complaints
        assert "rageval: failed scores: 1, excluded from the means; first failure: " in complaints
        assert "is the key in the environment right?" in complaints
        assert "sk-very-secret" not in complaints
    assert "1 of 4 samples have no value" not in complaints


# Models that fail

UNREACHABLE = [
    ("http://127.0.0.1:9/v1", "(http://127.0.0.1:9/v1/chat/completions) ([Errno 111]"),
    ("127.0.0.1:9/v1", "--base-url right?"),
]


@pytest.mark.parametrize("command", ["evaluate", pytest.param("demo", marks=pytest.mark.gate)])
@pytest.mark.parametrize(("url", "mend"), UNREACHABLE, ids=["dead server", "wrong URL"])
def test_an_unreachable_server(rageval, written, tmp_path, monkeypatch, command, url, mend):
    Pauses(monkeypatch)
    words = [written(SAMPLE), "--out", tmp_path / "out.jsonl", "--quiet"] if command == "evaluate" else []
    code, told, complaints = rageval(command, *words, "--judge", "vllm:m", "--base-url", url, "--embeddings", "offline")
    said = [line for line in complaints.splitlines() if " samples, " not in line]  # progress of a busy machine
    assert (code, told, len(said)) == (2, "", 1)
    assert "rageval: every score failed (samples: " in complaints
    assert mend in complaints
    assert (tmp_path / "out.jsonl").exists() == (command == "evaluate")


def test_a_judge_that_never_answers_ends_the_run_with_2_and_the_files_are_written(rageval, written, tmp_path, judged):
    server, judge = judged(faults=Faults.rates(seed=1, unauthorized=1.0))
    out, html = tmp_path / "out.jsonl", tmp_path / "page.html"
    samples = [{**SAMPLE, "id": str(number), "question": f"{number}?"} for number in range(120)]
    words = [*judge, "--max-concurrency", "4", "--metrics", "faithfulness", "--out", out, "--html", html, "--quiet"]
    code, told, complaints = rageval("evaluate", written(*samples), *words)
    assert (code, told, len(complaints.splitlines())) == (2, "", 1)
    assert complaints.startswith("rageval: The run was stopped: ")
    assert "failed 20 times in a row without a valid reply; last failure: OpenAIAuthenticationError" in complaints
    assert "sk-very-secret" not in complaints
    assert len(server.requests) < 40
    assert '"complete": false' in out.read_text()
    assert "The run was stopped: " in html.read_text()


# Terminals and pipes


def test_untrusted_text_is_shown_without_control_characters(rageval, written):
    answer = "Ratio a:x:b is [bold]bold[/bold] \x1b[31m :smile: [/]."
    hostile = {**SAMPLE, "id": "[red]\x1b]0;owned\x07", "answer": answer}
    code, told, complaints = rageval("evaluate", written(hostile))
    assert (code, complaints) == (0, "")
    assert "Ratio a:x:b is [bold]bold[/bold] \ufffd[31m :smile: [/]" in " ".join(told.split())
    assert "[red]\ufffd]0;owned\ufffd" in told
    assert not {"\x1b", "\x07"} & set(told)


@pytest.mark.gate
def test_a_pipe_gets_no_escape_codes_and_the_whole_table():
    env = {**os.environ, "TERM": "xterm-256color", "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([*PROGRAM, "demo"], capture_output=True, env=env, timeout=PATIENCE)
    assert done.returncode == 0
    assert all(line.startswith(b"rageval: ") for line in done.stderr.splitlines())  # progress, on a busy machine
    assert b"\x1b" not in done.stdout + done.stderr
    assert re.search(r"\n answer_correctness[ |]+1\.000 ", done.stdout.decode())


@pytest.mark.gate
def test_control_c_ends_with_130_and_one_line(written, openai_server, tmp_path):
    server = openai_server(offline, faults=Faults.rates(seed=1, hang=1.0))
    judge = ["--judge", "vllm:m", "--base-url", f"{server.url}/v1"]
    scored = ["--metrics", "faithfulness", "--out", tmp_path / "out.jsonl"]
    words = ["evaluate", written(SAMPLE, TRUE_SAMPLE), *judge, *scored]
    with subprocess.Popen([*PROGRAM, *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until(lambda: server.calls)
        process.send_signal(signal.SIGINT)
        told, complaints = process.communicate(timeout=PATIENCE)
    *before, last = complaints.decode().splitlines()
    assert (process.returncode, told, last) == (130, b"", "rageval: interrupted")
    assert [line.startswith("rageval: first sample: ") for line in before] == [True]
    assert sorted(os.listdir(tmp_path)) == ["samples.jsonl"]


# Tables and reports as input


def test_the_columns_of_a_russian_table_are_named_on_stderr_unless_quiet(rageval, tmp_path, caplog):
    path = tmp_path / "ответы.csv"
    path.write_bytes("Вопрос;Ответ;Контекст;Тема\nГде?;Там.;Там.;гео\n".encode("cp1251"))
    code, _, complaints = rageval("evaluate", path)
    columns = "question from 'Вопрос', answer from 'Ответ', contexts from 'Контекст'; only kept as metadata: 'Тема'"
    assert (code, complaints) == (0, f"rageval: ответы.csv: {columns}\n")
    assert rageval("evaluate", path, "--quiet")[2] == ""
    assert caplog.messages == ["ответы.csv is not UTF-8; read as cp1251"] * 2


def test_a_metric_is_added_to_a_report(rageval, written, tmp_path):
    first, second = tmp_path / "first.rep", tmp_path / "second.rep"
    assert rageval("evaluate", written(SAMPLE, TRUE_SAMPLE), "--out", first, "--quiet")[0] == 0
    assert rageval("evaluate", first, "--metrics", "context_relevance", "--out", second, "--quiet")[0] == 0
    before, after = Report.load(first), Report.load(second)
    assert [row.sample for row in after.rows] == [row.sample for row in before.rows]
    assert [row.scores["faithfulness"] for row in after.rows] == [row.scores["faithfulness"] for row in before.rows]
    assert [[*row.scores] for row in after.rows] == [["faithfulness", "context_relevance"]] * 2
    assert after.instruments()["faithfulness"] == before.instruments()["faithfulness"]


def test_each_turn_of_a_conversation_is_a_sample_on_request(rageval, written):
    history = [{"role": "user", "content": SAMPLE["question"]}, {"role": "assistant", "content": SAMPLE["answer"]}]
    last = [{"role": "user", "content": "А когда?"}, {"role": "assistant", "content": "В 1158 году."}]
    chats = written({"messages": history + last, "thread_id": "t-1"})
    out = chats.with_name("report.jsonl")
    options = ("--judge", "offline", "--metrics", "answer_relevance", "--out", str(out))
    for more, lengths in (((), [2]), (("--each-turn",), [0, 2])):
        assert rageval("evaluate", str(chats), *options, *more)[0] == 0
        assert [len(row.sample.history) for row in Report.load(out).rows] == lengths


# --until-decided stops when the gates are decided


@pytest.mark.parametrize(("threshold", "code", "verdict"), [(0.4, 0, "passed"), (0.99, 1, "failed")])
def test_it_asks_about_as_many_samples_as_the_decision_needs(rageval, written, threshold, code, verdict):
    answers = ("Да, 5 км." if n % 5 else "Нет." for n in range(200))
    samples = written(*({"question": f"{n}?", "answer": one, "reference": "5 км"} for n, one in enumerate(answers)))
    words = ["--metrics", "string_presence", "--fail-under", f"string_presence={threshold}", "--until-decided"]
    ended, told, _ = rageval("evaluate", samples, *words, "--json", "--quiet")
    found = json.loads(told)
    assert ended == code
    assert found["decisions"]["string_presence"]["verdict"] == verdict
    assert found["samples"] < 200
    assert found["samples"] + len(found["left_out"]) == 200


# A metric of the user that fails on some samples

METRICS = """
from langchain_rageval import metric

@metric(reads={"answer"}, aspect="style")
def short(sample):
    if sample.answer == "boom":
        raise ValueError("boom")
    return True
"""


@pytest.mark.parametrize(("failing", "code"), [(1, 0), (50, 1), (100, 2)])
def test_only_failures_of_every_sample_end_with_2(rageval, written, tmp_path, monkeypatch, failing, code):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_short_metric.py").write_text(METRICS, encoding="utf-8")
    answers = ["boom"] * failing + ["fine"] * (100 - failing)
    samples = written(*({"question": f"{number}?", "answer": answer} for number, answer in enumerate(answers)))
    words = ["--metrics", "own_short_metric:short", "--fail-under", "short=0.8", "--quiet"]
    ended, _, complaints = rageval("evaluate", samples, *words)
    assert ended == code
    assert ("every score failed" in complaints) == (failing == 100)


# A reader of stdout that goes away, such as `head`


@pytest.mark.gate
@pytest.mark.parametrize(("threshold", "code", "more"), [(0.8, 1, []), (0.0, 0, []), (0.8, 1, ["--json"])])
def test_the_gate_decides_the_exit_code_although_nobody_reads_stdout(written, tmp_path, threshold, code, more):
    written(*({"question": f"{number}?", "answer": "no", "reference": "5 km"} for number in range(20)))
    words = ["evaluate", "samples.jsonl", "--metrics", "string_presence", "--out", "report.jsonl", "--quiet", *more]
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run(
        [sys.executable, "-m", "langchain_rageval", *words, "--fail-under", f"string_presence={threshold}"],
        stdout=writer,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))},
    )
    os.close(writer)
    assert run.returncode == code
    assert ("at least 0.8 is required" in run.stderr) == bool(code)
    assert "Traceback" not in run.stderr
    assert (tmp_path / "report.jsonl").exists()


# --audit, and the same options of `rageval plan`


def strict(request):
    """Answer as the offline judge, but find no statement supported."""
    answer = offline(request)
    for verdict in answer.get("verdicts", ()):
        verdict |= {"verdict": "absent", "evidence": []}
    return answer


@pytest.fixture
def samples(written):
    """A file of eighty samples with supported answers."""
    facts = [f"Товар {n} — лампа." for n in range(80)]
    given = ({"answer": fact, "contexts": [fact]} for fact in facts)
    return written(*({"question": f"Что такое товар {n}?", **one} for n, one in enumerate(given)))


@pytest.fixture
def audit(judged):
    """A server, and the words that name it as the strong judge."""
    server, _ = judged(strict)
    return server, ["--audit", "openai:strong", "--audit-base-url", f"{server.url}/v1", "--audit-share", "0.25"]


def test_the_table_shows_the_strong_judges_mean_and_the_gate_takes_it(rageval, samples, audit, tmp_path):
    server, words = audit
    words = [*words, "--quiet", "--out", tmp_path / "report.jsonl", "--fail-under", "faithfulness=0.5"]
    code, told, complaints = rageval("evaluate", samples, *words)
    assert code == 1
    found = Report.load(tmp_path / "report.jsonl").audit["faithfulness"]
    assert (found.mean, found.own_mean, found.audited, found.agreement) == (0.0, 1.0, 20, 0.0)
    assert complaints.splitlines()[-1] == (
        f"rageval: faithfulness is 0.000 [0.000, {found.high:.3f}] by the audit of 20 samples (1.000 by its own "
        "judge), at least 0.5 is required [below-threshold-by-audit]"
    )
    assert [part for part in ("Audit by strong, 95% intervals", "20 of 80") if part not in told] == []
    assert server.calls == 40


def test_json_has_the_audit_and_a_resumed_run_keeps_it(rageval, samples, audit, tmp_path):
    server, words = audit
    journal = tmp_path / "run.db"
    code, told, _ = rageval("evaluate", samples, *words, "--quiet", "--json", "--journal", journal)
    found = json.loads(told)["audit"]["faithfulness"]
    assert code == 0
    assert (found["mean"], found["own_mean"], found["agreement"], found["audited"]) == (0.0, 1.0, 0.0, 20)
    assert (found["calls"], found["calls_saved"]) == (40, 120)
    assert [one["strong"] for one in found["parted"]] == [0.0] * 10
    calls = server.calls
    assert json.loads(rageval("resume", journal)[1])["audit"] == {"faithfulness": found}
    assert server.calls == calls


def test_a_merge_request_shows_the_strong_judges_mean_and_its_gate(rageval, samples, audit, tmp_path):
    _, words = audit
    page = tmp_path / "summary.md"
    code, _, _ = rageval("ci", samples, *words, "--quiet", "--fail-under", "faithfulness=0.5", "--markdown", page)
    assert code == 1
    lines = page.read_text(encoding="utf-8").splitlines()
    place = lines.index("### Audit by a strong judge")
    head = "| metric | strong judge | 95% interval | own judge | agree | audited | calls | calls saved |"
    cells = lines[place + 4].split(" | ")
    assert lines[place + 2] == head
    assert [*cells[:2], *cells[3:]] == ["| faithfulness", "0.000", "1.000", "0%", "20 of 80", "40", "120 |"]
    assert any("❌ mean at least 0.5" in line for line in lines)


def test_a_strong_judge_that_fails_is_reported_on_stderr(rageval, samples, audit):
    server, words = audit
    server.reply = lambda request: "I cannot say." if "Товар 7" in str(request) else strict(request)
    code, _, complaints = rageval("evaluate", samples, *words, "--quiet")
    problem = "rageval: failed scores of the audit: 2; first failure: JudgeOutputError: "
    assert (code, complaints.startswith(problem)) == (0, True)


def test_plan_shows_audit_waves_and_the_samples_that_a_pilot_expects(rageval, samples, audit):
    _, words = audit
    code, told, _ = rageval("plan", samples, *words, "--batch", "--json")
    found = json.loads(told)
    assert (code, found["audit"]["faithfulness"]["calls"], found["total"]["calls"]) == (0, 40, 200)
    assert (found["waves"], found["asked"]) == (2, 80)
    gate = ["--fail-under", "faithfulness=0.5", "--until-decided"]
    found = json.loads(rageval("plan", samples, *gate, "--pilot", "5", "--json")[1])
    assert found["asked"] <= 80
    assert "audit of faithfulness" in rageval("plan", samples, *words)[1]
