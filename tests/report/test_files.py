import errno
import json
import os
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from helpers.each import each, error_of
from helpers.reports import failed, report_of, row, scored, unscored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from langchain_rageval import ConfigError, Finding, OfflineJudge, Report, Sample, Score, Turn, evaluate, faithfulness
from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.report import files
from langchain_rageval.report.files import Canaries, Decision
from langchain_rageval.report.score_table import prepare_table, write_scores

NASTY = ["\u2028\x85\r\n", "</script>", '{"a": 1}', "\x00\x1b[31m", "\ud800", "\ufeff", "\u202e"]
nasty = st.sampled_from(NASTY) | st.text(st.characters(codec=None), max_size=20)  # lone surrogates too
numbers = st.floats(allow_nan=False, allow_infinity=False)
leaves = st.none() | st.booleans() | st.integers() | numbers | nasty
nested = lambda inner: st.lists(inner, max_size=3) | st.dictionaries(nasty, inner, max_size=3)  # noqa: E731
plain = st.recursive(leaves, nested, max_leaves=6)
cites = st.sampled_from([[], ["1.1"]])
findings = st.builds(Finding, kind=st.just("context"), number=st.integers(), text=nasty, verdict=nasty, cites=cites)
usages = st.builds(Usage, calls=st.integers(0), input_tokens=st.none() | st.integers(0), seconds=numbers)
failures = st.builds(Failure, error=nasty, message=nasty, raw_output=st.none() | nasty)
kinds = {"value": numbers, "unscored": nasty, "failure": failures}
outcome = st.one_of(st.fixed_dictionaries({kind: given}) for kind, given in kinds.items())
fields = {"reason": nasty, "findings": st.lists(findings, max_size=2), "usage": usages}
scores = st.builds(lambda outcome, **more: Score(metric="m", aspect="answer", **outcome, **more), outcome, **fields)
samples = st.builds(
    Sample,
    question=nasty,
    answer=st.none() | nasty,
    contexts=st.none() | st.lists(nasty, max_size=2),
    relevance=st.none() | st.dictionaries(nasty, numbers, max_size=2),
    metadata=st.dictionaries(nasty, plain, max_size=3),
)


def report_from(parts, notes):
    rows = [row(index, score).model_copy(update={"sample": sample}) for index, (sample, score) in enumerate(parts)]
    return Report(rows, notes)


reports = st.builds(report_from, st.lists(st.tuples(samples, scores), max_size=3), st.lists(st.text(), max_size=2))


@given(report=reports)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_report_comes_back_equal_whatever_stands_in_it(tmp_path, report):
    report.to_jsonl(tmp_path / "report.jsonl")
    assert Report.load(tmp_path / "report.jsonl") == report


@each("value", [b"\xff", {1, 2}, object(), 1j, float("nan")])
def test_what_json_cannot_hold_does_not_lose_the_report(tmp_path, value):
    """Parquet files have columns of bytes, and a user's metadata holds anything."""
    report = Report([row(0, scored(0.5), metadata={"x": value})])
    report.to_jsonl(tmp_path / "report.jsonl")
    assert Report.load(tmp_path / "report.jsonl").rows[0].scores == report.rows[0].scores


def test_a_row_comes_back_from_the_table_of_a_sink(tmp_path):
    finding = Finding(kind="statement", number=1, text="Мюнхен стар.", verdict="supported", cites=["1.1"])
    cost = Usage(calls=3, input_tokens=70, output_tokens=8, seconds=0.5, money=0.25)
    half = scored(0.5, reason="half", findings=[finding], usage=cost)
    others = unscored("why", "b", direction="lower"), failed("c", failure=Failure(error="E", message="m"))
    sample = {"id": "q-7", "history": [Turn(role="user", text="Кто?")], "contexts": ["c"], "retrieved": ["c", "d"]}
    sample["metadata"] = {"run_id": "r", "language": "ru"}
    run = {"time": datetime(2026, 11, 2, 3, tzinfo=UTC), "tags": {"v": "1"}, "asked": ["faithfulness"]}
    whole = row(0, half, *others, **sample, **run)
    bare = row(1, unscored("why"), answer=None, question="Q?", id="a", time=whole.time)
    with closing(sqlite3.connect(tmp_path / "scores.db", isolation_level=None)) as connection:
        prepare_table(connection)
        for one in (whole, bare):
            write_scores(connection, one)
            connection.execute("COMMIT")
        (stored,) = connection.execute("SELECT findings FROM scores WHERE value = 0.5").fetchone()
    first, second = Report.load(tmp_path / "scores.db").rows
    assert "Мюнхен" in stored
    assert second == whole.model_copy(update={"index": 1})
    assert first.sample == bare.sample.model_copy(update={"metadata": {"run_id": "a"}})
    assert (first.index, first.scores, first.tags, first.asked, first.time) == (0, bare.scores, {}, [], bare.time)


NO_OUTCOME = "Value error, a score has exactly one of value, unscored and failure"


@each(("column", "value", "problem"), [("unscored", None, NO_OUTCOME), ("metadata", "{", "Expecting property name")])
def test_a_damaged_row_of_a_table_is_named(tmp_path, column, value, problem):
    path = tmp_path / f"{column}.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        prepare_table(connection)
        write_scores(connection, row(0, unscored("why"), id="a"))
        connection.execute(f"UPDATE scores SET {column} = ?", (value,))
        connection.execute("COMMIT")
    with pytest.raises(ConfigError, match=f"run a: not a row of a report: {problem}"):
        Report.load(path)


# Writing


def full_after_the_first_row(rows):
    yield rows[0]
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def interrupted(rows):
    yield rows[0]
    raise KeyboardInterrupt


@each("old", [None, "what was there before"])
@each(("make", "error"), [(full_after_the_first_row, ConfigError), (interrupted, KeyboardInterrupt)])
def test_a_write_that_does_not_end_leaves_the_old_file_and_nothing_else(tmp_path, make, error, old):
    target, rows = tmp_path / "report.jsonl", report_of(scored(1.0), scored(0.5)).rows
    target.unlink(missing_ok=True)
    if old is not None:
        target.write_text(old)
    raised = error_of(error, files.write_report, target, make(rows), {"notes": []})
    if error is ConfigError:
        assert str(raised) == f"{target} cannot be written: No space left on device; choose another path"
    assert [path.read_text() for path in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_report_is_written_over_an_older_one_and_others_may_read_it(tmp_path):
    target = tmp_path / "report.jsonl"
    report_of(scored(0.1)).to_jsonl(target)
    report_of(scored(0.9), scored(0.8)).to_jsonl(target)
    assert [row.scores["faithfulness"].value for row in Report.load(target).rows] == [0.9, 0.8]
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


# Reading


def test_a_report_knows_when_and_by_which_version_it_was_made_and_is_named_after_its_file(tmp_path):
    sample = Sample(question="Q?", answer="It is so.", contexts=["It is so."])
    made = evaluate([sample], faithfulness(OfflineJudge()))
    assert datetime.fromisoformat(made.finished).utcoffset() == timedelta(0)
    assert (made.version, made.name) == (__version__, "")
    made.to_jsonl(tmp_path / "monday.run.jsonl")
    again = Report.load(tmp_path / "monday.run.jsonl")
    assert (again.name, again.finished, again.version) == ("monday.run", made.finished, __version__)
    on_disk = evaluate([sample], faithfulness(OfflineJudge()), out=tmp_path / "disk.jsonl")
    read = Report.load(tmp_path / "disk.jsonl")
    assert (read.name, read.finished, read.version) == ("disk", on_disk.finished, __version__)


def test_a_report_of_an_earlier_version_keeps_it_when_it_is_written_again(tmp_path):
    (tmp_path / "old.jsonl").write_text(f"{HEAD}\n")
    Report.load(tmp_path / "old.jsonl").to_jsonl(tmp_path / "new.jsonl")
    again = Report.load(tmp_path / "new.jsonl")
    assert (again.version, again.name, again.finished) == ("0", "old", "")


def test_all_that_is_known_about_a_run_comes_back(tmp_path):
    report = Report(
        report_of(scored(1.0)).rows,
        ["a\nb"],
        complete=False,
        left_out=[(1, "m")],
        decisions={"m": Decision("passed", 0.8, 1.0, 30, 0.05, "at least 0.8", "low")},
        unreadable=3,
        canaries=Canaries(24, 20, ["judge"], Usage(calls=24, seconds=1.5)),
        asked_again=Usage(calls=7, input_tokens=9),
    )
    report.to_jsonl(tmp_path / "report.jsonl")
    again = Report.load(tmp_path / "report.jsonl")
    assert again == report
    assert again.usage.calls == 24 + 7
    assert json.loads((tmp_path / "report.jsonl").read_text().splitlines()[0])["rageval_report"].keys() >= {"canaries"}


HEAD = '{"rageval_report": {"version": "0", "notes": []}}'
LINE = row(0, scored(0.5)).model_dump_json()


@each(
    ("content", "message"),
    [
        ("", "is empty: nothing was written to it yet"),
        ("not JSON", "its first line lacks 'rageval_report'"),
        (LINE, "its first line lacks 'rageval_report'"),
        ("[1, 2]", "its first line lacks 'rageval_report'"),
        ('{"rageval_report": 7}', "its first line lacks 'rageval_report'"),
        ("[" * 100_000, "its first line lacks 'rageval_report'"),
        ('{"rageval_report": {"notes": 7}}', "its first line lacks 'rageval_report'"),
        (f"{HEAD}\n{LINE}\n{LINE[:-20]}\n", "line 3: not a row of a report"),
        (f"{HEAD}\n{LINE}\n\n{{}}\n", "line 4: not a row of a report: index: Field required"),
        (f"{HEAD}\n{LINE.replace('0.5', '[]')}\n", r"line 2: .*scores\.faithfulness\.value"),
        (f"{HEAD}\n{LINE.replace('0.5', 'NaN')}\n", "line 2"),
        (f"{HEAD}\n{LINE.replace('0.5', 'null')}\n", "line 2: .*exactly one of value, unscored and failure"),
    ],
)
def test_a_broken_file_is_refused_with_the_line_that_is_wrong(tmp_path, content, message):
    (tmp_path / "report.jsonl").write_text(content)
    with pytest.raises(ConfigError, match=message) as caught:
        Report.load(tmp_path / "report.jsonl")
    assert "report.jsonl" in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "latin.jsonl").write_bytes('{"é": 1}'.encode("latin-1"))
    for place in (tmp_path / "nowhere.jsonl", tmp_path, tmp_path / "latin.jsonl"):
        with pytest.raises(ConfigError, match=r"cannot be read: .*; name a file of --out, Report\.to_jsonl or a sink$"):
            Report.load(place)
