"""Sinks: what they write, several processes on one file, and files that are full, torn or foreign."""

import copy
import json
import logging
import os
import pickle
import sqlite3
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
import requests
from helpers.each import each, error_of
from helpers.samples import ANSWER, CONTEXTS, QUESTION, row
from langsmith import Client

from langchain_rageval import ConfigError, Finding, Report
from langchain_rageval.callbacks.sinks import files
from langchain_rageval.data.schema import Usage
from langchain_rageval.sinks import JsonlSink, LangSmithSink, LoggingSink, OpenTelemetrySink, SqliteSink


def together(source, count, folder):
    """The same script in several processes at once; all must end well."""
    command = [sys.executable, "-c", textwrap.dedent(HEAD + source), str(folder)]
    running = [subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True) for n in range(count)]
    for process in running:
        assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)


HEAD = """
    import sys
    from langchain_rageval import Row, Sample, Score
    from langchain_rageval.sinks import JsonlSink, SqliteSink
    folder, process = sys.argv[1:]

    def row(number):
        run_id = f"{process}-{number}"
        score = Score(metric="faithfulness", aspect="grounding", value=0.5)
        sample = Sample(id=run_id, question="q", answer="ё" * 1000, metadata={"run_id": run_id})
        return Row(index=number, sample=sample, scores={"faithfulness": score})
"""


# JsonlSink


def test_its_file_is_a_report(tmp_path):
    sink = JsonlSink(tmp_path / "new" / "rows.jsonl")
    sink.notes.append("From production.")
    given = [row(0.25), row(0.75, question="Когда?", metadata={"when": object}), row(None)]
    for one in given:
        sink(one)
    report = Report.load(sink.path)
    assert [(one.sample.id, one.scores) for one in report.rows] == [(one.sample.id, one.scores) for one in given]
    assert report.rows[0].sample == given[0].sample
    assert (report.summary()["faithfulness"].mean, report.summary()["faithfulness"].failed) == (0.5, 1)
    assert report.notes == ["From production."]
    assert Report.load(sink.path, lazy=True).rows[1].sample.question == "Когда?"


@pytest.mark.parametrize("torn", ['{"index":12,"sample"', '{"index":12,' + "x" * 200_000])
def test_an_incomplete_line_of_a_killed_process_is_removed(tmp_path, torn):
    (tmp_path / "rows.jsonl").write_text('{"rageval_report": {"vers')  # an incomplete first line
    sink = JsonlSink(tmp_path / "rows.jsonl")
    sink(row())
    with sink.path.open("a") as file:
        file.write(torn)
    assert len(Report.load(sink.path)) == 1
    sink(row())
    assert len(Report.load(sink.path)) == 2
    assert sink.path.read_bytes().endswith(b"}\n")


def test_a_large_file_is_rotated_and_the_last_backups_are_kept(tmp_path):
    sink = JsonlSink(tmp_path / "rows.jsonl", max_bytes=3000, backups=2)
    given = [row() for _ in range(20)]
    for one in given:
        sink(one)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["rows.jsonl", "rows.jsonl.1", "rows.jsonl.2"]
    assert all(path.stat().st_size <= 3000 for path in tmp_path.iterdir())
    kept = [each.sample.id for name in reversed(names) for each in Report.load(tmp_path / name).rows]
    assert kept == [each.sample.id for each in given][-len(kept) :]
    assert len(kept) >= 6


def test_without_backups_a_large_file_is_replaced_and_a_row_above_the_limit_is_kept(tmp_path):
    sink = JsonlSink(tmp_path / "rows.jsonl", max_bytes=10, backups=0)
    for _ in range(3):
        sink(row())
    assert len(Report.load(sink.path)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.gate
@pytest.mark.parametrize("most", [60_000, 100_000_000])
def test_processes_share_a_file_also_while_it_is_rotated(tmp_path, most):
    script = f"""
    sink = JsonlSink(folder + "/rows.jsonl", max_bytes={most}, backups=100)
    for number in range(100):
        sink(row(number))
    """
    together(script, 2, tmp_path)
    found = [one.sample.id for path in tmp_path.iterdir() for one in Report.load(path).rows]
    assert sorted(found) == sorted(f"{process}-{number}" for process in range(2) for number in range(100))
    assert (len(list(tmp_path.iterdir())) > 5) == (most < 100_000)


def test_a_row_goes_to_the_new_file_if_another_process_rotates_it_meanwhile(tmp_path, monkeypatch):
    def put_aside(file, operation):
        if sink.path.exists() and not aside.exists():
            sink.path.rename(aside)

    sink, aside = JsonlSink(tmp_path / "rows.jsonl"), tmp_path / "rows.jsonl.1"
    first, second = row(), row()
    sink(first)
    monkeypatch.setattr(files.fcntl, "flock", put_aside)
    sink(second)
    assert [each.sample.id for each in Report.load(aside).rows] == [first.sample.id]
    assert [each.sample.id for each in Report.load(sink.path).rows] == [second.sample.id]


def test_where_files_cannot_be_shared_the_other_sink_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigError, match=r"on Windows; write SqliteSink\(path\)"):
        JsonlSink(tmp_path / "rows.jsonl")


@pytest.mark.parametrize("kind", [JsonlSink, SqliteSink])
@pytest.mark.parametrize("again", [copy.deepcopy, lambda sink: pickle.loads(pickle.dumps(sink))])
def test_a_copy_writes_to_the_same_place(kind, again, tmp_path):
    sink = kind(tmp_path / "rows")
    sink(row())
    again(sink)(row())
    sink(row())
    assert len(Report.load(sink.path)) == 3


def test_threads_share_a_sink(tmp_path):
    sink = JsonlSink(tmp_path / "rows.jsonl", max_bytes=20_000, backups=100)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(sink, [row() for _ in range(100)]))
    assert sum(len(Report.load(path)) for path in tmp_path.iterdir()) == 100


@pytest.mark.gate
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_fork_in_the_middle_of_a_row_leaves_the_file_unlocked(tmp_path):
    script = """
    import os, threading, warnings
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12 on warns where threads run
    sink = JsonlSink(folder + "/rows.jsonl")
    writing, forked, write = threading.Event(), threading.Event(), os.write

    def slowly(file, data):
        os.write = write
        writing.set()
        assert forked.wait(60)
        return write(file, data)

    os.write = slowly
    thread = threading.Thread(target=sink, args=[row(0)])
    thread.start()
    assert writing.wait(60)
    child = os.fork()
    if child == 0:
        sink(row(1))
        os._exit(0)
    forked.set()
    thread.join()
    sink(row(2))
    assert os.waitpid(child, 0)[1] == 0
    """
    together(script, 1, tmp_path)
    assert {each.sample.id for each in Report.load(tmp_path / "rows.jsonl").rows} == {"0-0", "0-1", "0-2"}


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    sink = JsonlSink(tmp_path / "rows.jsonl")
    sink(row())
    before, write = sink.path.read_bytes(), files.os.write

    def full(file, data):
        if len(data) < 100:
            raise OSError(28, "No space left on device")
        return write(file, data[: len(data) // 2])

    monkeypatch.setattr(files.os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        sink(row())
    assert sink.path.read_bytes() == before


@pytest.mark.parametrize("content", ["important\n", '{"question": "q"}\n', "x"])
def test_a_file_that_is_not_a_report_is_not_changed(tmp_path, content):
    path = tmp_path / "mine.jsonl"
    sink = JsonlSink(path)
    path.write_text(content)
    for write in (lambda: JsonlSink(path), lambda: sink(row())):
        expected = f"{path} is not a report that this package wrote; choose another path"
        assert str(error_of(ConfigError, write)) == expected
    assert path.read_text() == content


@each(
    ("sink", "name", "options", "told"),
    [
        (JsonlSink, "a", {"max_bytes": 0}, "max_bytes must be a whole number of at least 1, or None, got 0"),
        (JsonlSink, "a", {"backups": -1}, "backups must be a whole number of at least 0, got -1"),
        (JsonlSink, "", {}, "is a folder; pass the path of a file"),
        (SqliteSink, "", {}, "is a folder; pass the path of a file"),
    ],
)
def test_paths_and_options_that_cannot_be_used_are_refused(tmp_path, sink, name, options, told):
    assert str(error_of(ConfigError, sink, tmp_path / name, **options)).endswith(told)


# SqliteSink


def asked(sink, query):
    with closing(sqlite3.connect(sink.path)) as connection:
        return connection.execute(query).fetchall()


def test_each_score_is_a_row_of_its_table_once(tmp_path):
    sink = SqliteSink(tmp_path / "new" / "scores.db")
    good, bad = row(0.5, metadata={"when": object()}), row(None, answer="'); DROP TABLE scores; --\x00")
    for one in (row(0.25, run_id=good.sample.id), bad):
        sink(one)
    sink.close()
    sink(good)  # replaces the earlier score of its run
    columns = "run_id, metric, value, unscored, error, message, calls, input_tokens, question, answer"
    shared = (QUESTION, bad.sample.answer)
    assert asked(sink, f"SELECT {columns} FROM scores") == sorted(
        [
            (good.sample.id, "faithfulness", 0.5, None, None, None, 2, 100, QUESTION, ANSWER),
            (bad.sample.id, "faithfulness", None, None, "RateLimitError", "too many", 2, 100, *shared),
            (bad.sample.id, "answer_relevance", None, "the answer states no facts", None, None, 0, None, *shared),
        ]
    )
    ((contexts, metadata),) = asked(sink, "SELECT contexts, metadata FROM scores WHERE value = 0.5")
    assert (json.loads(contexts), json.loads(metadata)["run_id"]) == (CONTEXTS, good.sample.id)
    sink.close()


def test_its_file_is_a_report_too(tmp_path):
    sink = SqliteSink(tmp_path / "scores.db")
    late = datetime(2026, 11, 2, 12, tzinfo=UTC)
    chat = row(None, history=[("user", "Какой город?"), ("assistant", "Мюнхен.")])
    rows = [
        row(0.5).model_copy(update={"time": late, "tags": {"version": "1.4"}, "asked": ["faithfulness"]}),
        chat.model_copy(update={"time": late - timedelta(days=1)}),
    ]
    finding = Finding(kind="statement", number=1, text="Мюнхен.", verdict="supported")
    update = {"findings": [finding], "usage": Usage(calls=2, input_tokens=100, output_tokens=10, money=0.25)}
    rows[0].scores["faithfulness"] = rows[0].scores["faithfulness"].model_copy(update=update)
    for one in rows:
        sink(one)
    loaded = Report.load(sink.path)
    assert [(one.index, one.time, one.tags, one.asked) for one in loaded.rows] == [
        (0, rows[1].time, {}, []),
        (1, late, {"version": "1.4"}, ["faithfulness"]),
    ]
    assert loaded.rows[1].scores == rows[0].scores
    found, written = (
        {name: (score.comment, score.usage) for name, score in one.scores.items()} for one in (loaded.rows[0], rows[1])
    )
    assert found == written
    assert [one.sample for one in loaded.rows] == [rows[1].sample, rows[0].sample]
    assert (loaded.name, loaded.complete) == ("scores", False)
    assert loaded.summary()["faithfulness"].mean == 0.5
    sink.close()


def test_a_file_of_an_earlier_version_gets_the_new_columns(tmp_path):
    path = tmp_path / "scores.db"
    sink = SqliteSink(path)
    sink(row(0.5))
    sink.close()
    with closing(sqlite3.connect(path)) as connection:
        for name in ("sample_id", "tags", "history", "money", "asked"):
            connection.execute(f"ALTER TABLE scores DROP COLUMN {name}")
    (old,) = Report.load(path).rows
    assert (old.sample.question, old.sample.history, old.tags) == (QUESTION, [], {})
    sink(row(0.25).model_copy(update={"tags": {"version": "2"}}))
    assert [one.tags for one in Report.load(path).rows] == [{}, {"version": "2"}]
    sink.close()


def test_another_database_is_not_a_report(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE scores (name)")
    expected = f"{path} has no scores of a SqliteSink; load a file that SqliteSink or Report.to_jsonl wrote"
    assert str(error_of(ConfigError, Report.load, path)) == expected


@pytest.mark.gate
def test_processes_and_threads_share_a_database_and_readers_do_not_wait(tmp_path):
    script = """
    from concurrent.futures import ThreadPoolExecutor
    sink = SqliteSink(folder + "/scores.db")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(sink, map(row, range(100))))
    """
    together(script, 2, tmp_path)
    sink = SqliteSink(tmp_path / "scores.db")
    assert asked(sink, "SELECT count(*), count(DISTINCT run_id) FROM scores") == [(200, 200)]
    assert asked(sink, "PRAGMA journal_mode") == [("wal",)]


def test_a_file_that_is_not_a_database_is_an_error_and_not_changed(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("important " * 100)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        SqliteSink(path)(row())
    assert path.read_text() == "important " * 100


# LangSmithSink


PROJECT_ID = str(uuid4())
PROJECT = json.dumps(
    {"id": PROJECT_ID, "tenant_id": PROJECT_ID, "name": "bot", "start_time": "2026-01-01", "reference_dataset_id": None}
).encode()


class Session(requests.Session):
    """Keeps what is posted; answers with the status it is given."""

    def __init__(self, status=200):
        super().__init__()
        self.status, self.posted = status, []

    def request(self, method, url, *args, **options):
        self.posted.append((method, url, json.loads(options.get("data") or "{}")))
        response = requests.Response()
        response.status_code, response.url = self.status, url
        response._content = PROJECT if "/sessions" in url else b"{}"
        return response


def langsmith(status=200):
    session = Session(status)
    client = Client(api_url="http://127.0.0.1:9", api_key="x", session=session, auto_batch_tracing=False, info={})
    return LangSmithSink(client, "bot"), session


def test_scores_are_feedback_on_the_run_that_was_traced():
    sink, session = langsmith()
    given = row(None)
    sink(given)
    sink(row(0.5))
    sink(given)
    bodies = [body for method, url, body in session.posted if url.endswith("/feedback")]
    assert [(body["key"], body.get("score"), body["comment"]) for body in bodies[:3]] == [
        ("faithfulness", None, "RateLimitError: too many"),
        ("answer_relevance", None, "the answer states no facts"),
        ("faithfulness", 0.5, "because"),
    ]
    assert {body["session_id"] for body in bodies} == {PROJECT_ID}
    assert bodies[0]["run_id"] == given.sample.metadata["run_id"]
    assert bodies[2]["feedback_source"]["metadata"]["aspect"] == "grounding"
    assert [body["id"] for body in bodies[3:]] == [body["id"] for body in bodies[:2]]  # posted again, the same
    assert "500" in str(error_of(Exception, langsmith(status=500)[0], given))


def test_any_object_with_create_feedback_is_a_client():
    posted = []
    LangSmithSink(SimpleNamespace(create_feedback=lambda **told: posted.append(told)))(row(None, run_id="r-1"))
    found = [(told["run_id"], told["key"], told["score"]) for told in posted]
    assert found == [("r-1", "faithfulness", None), ("r-1", "answer_relevance", None)]


# LoggingSink


def test_scores_are_log_records_that_hold_no_question(caplog):
    sink = LoggingSink()
    with caplog.at_level(logging.INFO, "langchain_rageval.scores"):
        sink(row(0.5, run_id="r-1"))
        sink(row(None, run_id="r-2"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "run r-1: faithfulness 0.500: because"),
        ("WARNING", "run r-2: faithfulness -: RateLimitError: too many"),
        ("INFO", "run r-2: answer_relevance -: the answer states no facts"),
    ]
    shown = {"run_id": "r-1", "metric": "faithfulness", "value": 0.5, "comment": "because"}
    assert caplog.records[0].rageval == shown


@each("sink", [LangSmithSink, OpenTelemetrySink])
def test_a_sink_refuses_what_it_cannot_use(sink):
    with pytest.raises(ConfigError, match=r"takes a (meter|langsmith\.Client\(\)), got str"):
        sink("http://localhost")


def test_sinks_show_where_they_write_and_no_secret(tmp_path):
    sinks = (JsonlSink(tmp_path / "a"), SqliteSink(tmp_path / "a"), LoggingSink(), langsmith()[0])
    path = repr(str(tmp_path / "a"))
    expected = [f"JsonlSink({path})", f"SqliteSink({path})", "LoggingSink('langchain_rageval.scores')"]
    assert [*map(repr, sinks)] == [*expected, "LangSmithSink()"]
