"""The command line: output, exit codes, and errors."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing

import pytest
from helpers.each import each
from helpers.offline import ROWS, offline
from helpers.samples import CONTEXTS, REFUSAL, SAMPLE, TRUE_SAMPLE
from helpers.servers.chat import Faults
from helpers.waiting import PATIENCE, Connections, Pauses, until

from langchain_rageval import Report
from langchain_rageval._version import __version__
from langchain_rageval.metrics import ASPECTS, BUILDERS, PRESETS, RANKINGS, SCORES
from langchain_rageval.run.journal import Journal

PROGRAM = [sys.executable, "-m", "langchain_rageval"]
SEPARATE = {"aspect_critique", "conversation_metrics"}
EVERY_SCORE = [*(score for name in BUILDERS if name not in SEPARATE for score in SCORES.get(name, [name])), *ASPECTS]


@pytest.fixture
def unpacked(tmp_path):
    """The 446 real answers, Russian and English."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(gzip.decompress(ROWS.read_bytes()))
    return path


# The main job


@pytest.mark.gate
def test_real_answers_are_scored_offline(rageval, unpacked, tmp_path):
    code, told, complaints = rageval("evaluate", unpacked, "--out", tmp_path / "report.jsonl")
    assert (code, complaints) == (0, "")
    report = Report.load(tmp_path / "report.jsonl")
    summary = report.summary()["faithfulness"]
    rows = [json.loads(line) for line in unpacked.read_text(encoding="utf-8").splitlines()]
    assert [row.sample.id for row in report.rows] == [row["id"] for row in rows]
    assert len(rows) >= 200
    assert summary.failed == 0
    assert f"{summary.mean:.3f}" in told
    assert summary.interval in told
    assert "a smoke test and a baseline to beat, not a measure of quality" in told
    assert "Worst by faithfulness" in told
    assert str(tmp_path / "report.jsonl") in told


def test_fields_of_any_name_are_mapped(rageval, written, tmp_path):
    path = written({"q": "Q?", "a": "Munich was founded in 1158.", "docs": {"text": CONTEXTS}})
    fields = "question=q, answer=a,contexts=docs.text"
    assert rageval("evaluate", path, "--fields", fields, "--out", tmp_path / "out.jsonl")[0] == 0
    assert Report.load(tmp_path / "out.jsonl").rows[0].scores["faithfulness"].value == 1.0


def test_invalid_lines_are_skipped_on_request(rageval, written, tmp_path, caplog):
    path = written(SAMPLE, "{oops", {"answer": "a"}, SAMPLE)
    assert rageval("evaluate", path, "--on-error", "skip", "--out", tmp_path / "out.jsonl")[0] == 0
    skipped = [record.getMessage().split(":")[0] for record in caplog.records]
    assert skipped == [f"skipped samples.jsonl, line {number}" for number in (2, 3)]
    assert len(Report.load(tmp_path / "out.jsonl")) == 2


# The other commands


def test_the_demo_uses_the_judge_that_the_options_name(rageval, judged):
    server, judge = judged()
    code, told, _ = rageval("demo", *judge, "--embeddings", "offline")
    assert code == 0
    assert server.calls > 150
    assert "hashed words" in told
    assert "Judged offline" not in told


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


# Which metrics


@pytest.mark.parametrize("number", [30, pytest.param(None, marks=pytest.mark.gate)], ids=["some", "all"])
def test_all_metrics_of_real_answers(scored, unpacked, tmp_path, number):
    lines = unpacked.read_text(encoding="utf-8").splitlines()
    unpacked.write_text("\n".join(lines[:number]), encoding="utf-8")
    names, complaints = scored(unpacked, "--metrics", "all")
    assert [*names] == EVERY_SCORE
    assert complaints == ""
    summary = Report.load(tmp_path / "out.jsonl").summary()
    assert {metric.failed for metric in summary.values()} == {0}
    unscored = {name for name, metric in summary.items() if metric.unscored}
    claims = {*SCORES["claim_metrics"], *SCORES["noise_sensitivity"], *SCORES["citations"]}
    expected = {"faithfulness", "context_entity_recall"}
    assert unscored - claims == expected if number is None else unscored - claims <= expected


def test_all_has_the_metrics_of_conversations_if_a_sample_has_a_history(scored, written):
    chat = {**SAMPLE, "history": [{"role": "user", "text": "Hello."}, {"role": "assistant", "text": "Hi."}]}
    names, _ = scored(written(chat), "--metrics", "all")
    assert {name for name in names if name.startswith("conversation_")} == {*SCORES["conversation_metrics"]}


def test_a_preset_scores_each_sample_with_the_metrics_whose_fields_it_has(scored, written, tmp_path):
    path = written(SAMPLE, {**SAMPLE, "references": ["Munich is old."]}, {"question": "Q?", "answer": "Munich is old."})
    names, _ = scored(path, "--metrics", "core")
    assert [*names] == [*PRESETS["core"]]
    report = Report.load(tmp_path / "out.jsonl")
    counts = {name: (metric.scored, metric.unscored) for name, metric in report.summary().items()}
    assert counts["faithfulness"] == (2, 1)
    assert counts["context_recall"] == counts["answer_correctness"] == (1, 2)
    assert counts["answer_relevance"] == (3, 0)
    notes = [note for note in report.notes if "lack a field" in note]
    assert notes == [
        "1 of 3 samples lack a field of faithfulness, context_precision.",
        "2 of 3 samples lack a field of context_recall, answer_correctness.",
    ]


def test_a_preset_leaves_out_what_no_sample_can_be_scored_by(scored, written):
    names, complaints = scored(written(SAMPLE, SAMPLE | {"question": "Q?"}), "--metrics", "core")
    assert [*names] == ["faithfulness", "answer_relevance", "context_precision"]
    assert "context_recall left out: no sample has references; --fields maps other names\n" in complaints


def test_the_first_sample_is_shown_as_it_was_read_before_a_paid_call(rageval, written, judged):
    _, judge = judged()
    path = written({**SAMPLE, "references": []})
    _, _, complaints = rageval("evaluate", path, *judge)
    assert (
        "rageval: first sample: question 'When was Munich founded?', answer 'Munich was founded in 1158." in complaints
    )
    assert "contexts 'Munich was founded in 1158 by Henry the Lion.' and 1 more, references none" in complaints
    assert "first sample" not in rageval("evaluate", path, *judge, "--quiet")[2]
    assert "first sample" not in rageval("evaluate", path, "--judge", "offline")[2]


@pytest.mark.usefixtures("default_metrics")
def test_core_is_the_default_and_a_gated_metric_of_it_is_not_optional(rageval, scored, written):
    path = written(SAMPLE, {"question": "Q?", "answer": "Munich is old."})
    assert [*scored(path)[0]] == ["faithfulness", "answer_relevance", "context_precision"]
    code, _, complaints = rageval("evaluate", path, "--judge", "offline", "--fail-under", "faithfulness=0.4")
    assert (code, "failed" in complaints) == (1, True), complaints


def test_all_metrics_without_a_scorable_sample_is_an_error(rageval, written):
    code, _, complaints = rageval("evaluate", written({"question": "Q?"}), "--metrics", "all")
    assert code == 2
    assert "no metric can score these samples; add answer, contexts or references" in complaints


@each(
    ("given", "names"),
    [
        ("harmfulness, coherence", ["harmfulness", "coherence"]),
        ("aspect_critique", list(ASPECTS)),
        ("coherence,aspect_critique", ["coherence", *(aspect for aspect in ASPECTS if aspect != "coherence")]),
        ("faithfulness,faithfulness", ["faithfulness"]),
        ("answer_relevance,context_precision", ["answer_relevance", "context_precision"]),
    ],
)
def test_metrics_are_named_in_any_order_and_aspects_by_their_own_names(scored, written, given, names):
    assert [*scored(written(SAMPLE), "--metrics", given)[0]] == names


def test_embeddings_are_named_when_the_judge_is_a_real_one(scored, written, judged):
    judge = ["--metrics", "answer_relevance", *judged()[1]]
    assert [*scored(written(SAMPLE), *judge, "--embeddings", "offline")[0]] == ["answer_relevance"]
    names, complaints = scored(written(SAMPLE), *judge, "--metrics", "all")
    assert [*names] == [
        *("faithfulness", "context_precision", "context_relevance"),
        *(*SCORES["citations"], "rubric", "answer_completeness", *ASPECTS),
    ]
    assert "answer_relevance, answer_similarity, answer_correctness left out: no embeddings" in complaints


def test_a_gate_may_name_a_score_of_claim_metrics(rageval, scored, written):
    path = written({**SAMPLE, "references": ["Munich was founded in 1158."]})
    given = ["--judge", "offline", "--metrics", "claim_metrics,noise_sensitivity"]
    names, _ = scored(path, *given, "--fail-under", "claim_hallucination=1")
    assert [*names] == [*SCORES["claim_metrics"], *SCORES["noise_sensitivity"]]
    assert rageval("evaluate", path, *given, "--fail-under", "claim_f1=1.1")[0] == 1


def test_all_leaves_out_what_is_not_installed(scored, written, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    names, complaints = scored(written(SAMPLE), "--metrics", "all")
    assert {"bleu", "chrf"} & {*names} == set()
    assert "faithfulness" in names
    assert "bleu left out: bleu needs sacrebleu: pip install sacrebleu" in complaints


def test_metrics_of_one_suite_are_left_out_in_one_line(scored, written):
    _, complaints = scored(written(SAMPLE), "--metrics", "all")
    lacking = [line for line in complaints.splitlines() if "no sample has references" in line]
    assert sum("claim_" in line for line in lacking) == 1
    assert (
        f"{', '.join(SCORES['claim_metrics'])}, noise_sensitivity_relevant left out: no sample has references"
        in complaints
    )


def test_metrics_lists_one_name_a_line_first(rageval):
    code, told, complaints = rageval("metrics")
    assert (code, complaints) == (0, "")
    assert [line.split()[0] for line in told.splitlines()] == [*BUILDERS, *ASPECTS, *(f"{name}@K" for name in RANKINGS)]
    assert "the share of the answer's statements that the contexts support" in told


def test_the_version(rageval):
    assert rageval("--version") == (0, f"rageval {__version__}\n", "")


# Gates


@pytest.mark.parametrize(
    ("sample", "gate", "code", "message"),
    [
        (SAMPLE, "faithfulness=0.5", 0, ""),
        (SAMPLE, "faithfulness=0.8", 1, "faithfulness is 0.500 [0.076, 0.924], at least 0.8 is required"),
        (REFUSAL, "faithfulness=0", 1, "faithfulness has nothing scored, at least 0 is required"),
    ],
)
def test_a_gate_decides_the_exit_code(rageval, written, tmp_path, sample, gate, code, message):
    ended, told, complaints = rageval(
        "evaluate", written(sample), "--judge", "offline", "--fail-under", gate, "--out", tmp_path / "out.jsonl"
    )
    assert ended == code
    assert message.split(" [")[0] in complaints
    assert bool(complaints) == bool(code)
    assert "samples" in told
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


@pytest.mark.parametrize("command", ["evaluate", pytest.param("demo", marks=pytest.mark.gate)])
@pytest.mark.parametrize(
    ("url", "mend"),
    [
        ("http://127.0.0.1:9/v1", "(http://127.0.0.1:9/v1/chat/completions) ([Errno 111]"),
        ("127.0.0.1:9/v1", "--base-url right?"),
    ],
    ids=["dead server", "wrong URL"],
)
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
    words = [written(*samples), *judge, "--max-concurrency", "4"]
    code, told, complaints = rageval(
        "evaluate", *words, "--metrics", "faithfulness", "--out", out, "--html", html, "--quiet"
    )
    assert (code, told, len(complaints.splitlines())) == (2, "", 1)
    assert complaints.startswith("rageval: The run was stopped: ")
    assert "failed 20 times in a row without a valid reply; last failure: OpenAIAuthenticationError" in complaints
    assert "sk-very-secret" not in complaints
    assert len(server.requests) < 40
    assert '"complete": false' in out.read_text()
    assert "The run was stopped: " in html.read_text()


def test_an_unexpected_error_ends_in_one_line(rageval, monkeypatch):
    def broken(*_, **__):
        raise LookupError("what is\nthis \x1b[31m?")

    monkeypatch.setattr("langchain_rageval.cli.demo.evaluate", broken)
    code, _, complaints = rageval("demo")
    assert (code, complaints) == (2, "rageval: unexpected LookupError: what is this \ufffd[31m?\n")


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
    source = written(SAMPLE, TRUE_SAMPLE)
    assert rageval("evaluate", source, "--out", first, "--quiet")[0] == 0
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
