"""Rows that stay on disk: a report that is written while its run goes on, and read row by row."""

import asyncio
import copy
import errno
import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from helpers.offline import rag_samples
from helpers.reports import report_of, scored
from helpers.waiting import PATIENCE, until
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    ConfigError,
    HashingEmbeddings,
    OfflineJudge,
    Report,
    SampleError,
    Score,
    aevaluate,
    answer_correctness,
    context_recall,
    evaluate,
    faithfulness,
)
from langchain_rageval.report import files
from langchain_rageval.report.files import ReportFile, RowsOnDisk

JUDGE = OfflineJudge()
METRICS = [faithfulness(JUDGE), context_recall(JUDGE), answer_correctness(JUDGE, HashingEmbeddings())]
TESTS = Path(__file__).parents[1]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "report.jsonl"


def own(value=1.0, name="own"):
    return RunnableLambda(lambda _: Score(metric=name, aspect="answer", value=value))


def bare(rows):
    """Rows without time and cost: which of two metrics pays for a step they share differs from run to run."""
    return [row.model_dump(exclude={"time": True, "scores": {"__all__": {"usage"}}}) for row in rows]


def many(count):
    return [{"id": f"q-{n}", "question": f"Q{n}?", "answer": "a", "contexts": ["c"]} for n in range(count)]


# The same report


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("kind", ["list", "iterator", "file"])
async def test_rows_are_those_of_the_report_in_memory(out, tmp_path, door, kind):
    samples = [sample.model_copy(update={"metadata": {"n": n, "é": None}}) for n, sample in enumerate(rag_samples(30))]
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(sample.model_dump_json() + "\n" for sample in samples), encoding="utf-8")
    made = {"list": lambda: samples, "iterator": lambda: iter(samples), "file": lambda: path}[kind]
    if door == "evaluate":
        kept, told = (evaluate(made(), METRICS, progress=False, out=place) for place in (None, out))
    else:
        kept, told = [await aevaluate(made(), METRICS, progress=False, out=place) for place in (None, out)]
    assert isinstance(told.rows, RowsOnDisk)
    assert isinstance(told.rows, Sequence)
    assert bare(told.rows) == bare(kept.rows)
    assert (told.notes, told.complete, told.left_out) == (kept.notes, kept.complete, kept.left_out)
    assert Report.load(out) == told == Report.load(out, lazy=True)
    assert os.listdir(tmp_path) in (["report.jsonl", "samples.jsonl"], ["samples.jsonl", "report.jsonl"])


async def test_rows_are_in_the_order_of_the_samples_whichever_is_finished_first(out):
    turn = threading.Semaphore(0)

    def late(sample):
        if sample.id in ("q-0", "q-3"):
            turn.acquire(timeout=PATIENCE)
        elif sample.id == "q-9":
            turn.release(2)
        return Score(metric="own", aspect="answer", value=1.0)

    report = evaluate(many(10), RunnableLambda(late), progress=False, out=out)
    assert [row.index for row in report.rows] == list(range(10))
    written = [int(line.split(b",")[0].removeprefix(b'{"index":')) for line in out.read_bytes().splitlines()[1:-1]]
    assert sorted(written) == list(range(10)) != written
    assert [row.index for row in Report.load(out).rows] == list(range(10))


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """The same report with its rows in memory, and on disk."""
    out = tmp_path_factory.mktemp("pair") / "report.jsonl"
    metadata = [{"split": "ab"[n % 2], "document": n // 3} for n in range(30)]
    samples = [one.model_copy(update={"metadata": metadata[n]}) for n, one in enumerate(rag_samples(30))]
    report = evaluate([*samples, {"question": "Q?"}][:30], METRICS, progress=False, out=out)
    return Report.load(out), report


def test_rows_are_a_sequence(pair):
    eager, lazy = (report.rows for report in pair)
    assert [lazy[n] for n in range(-30, 30)] == [eager[n] for n in range(-30, 30)]
    assert lazy[3:20:4] == eager[3:20:4]
    assert list(reversed(lazy)) == eager[::-1]
    assert lazy == eager == lazy
    assert eager[4] in lazy
    assert lazy.index(eager[4]) == 4
    assert all(lazy != other for other in (eager[:-1], [*eager[:-1], eager[0]], tuple(eager)))
    with pytest.raises(IndexError):
        lazy[30]
    assert repr(lazy).startswith("<30 rows in ")


def test_no_samples_make_an_empty_report(out):
    report = evaluate([], own(), progress=False, out=out)
    assert (len(report), list(report.rows), report.complete) == (0, [], True)
    assert Report.load(out) == report


@pytest.mark.gate
def test_memory_does_not_grow_with_the_rows(tmp_path):
    count = 1000

    def samples(count):
        for number in range(count):
            yield {"question": f"Q{number}?", "answer": "a", "contexts": [f"{number:05} " * 3400]}

    def peak(place):
        """Of two runs the smaller peak: what the first imports and keeps for good is not counted."""
        peaks = []
        for _ in range(2):
            gc.collect()
            tracemalloc.start()
            report = evaluate(samples(count), own(), progress=False, out=place, max_concurrency=1)
            report.summary()
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            assert len(report) == count
            del report
        return min(peaks)

    in_memory = peak(None)
    assert in_memory > count * 20_000
    assert peak(tmp_path / "report.jsonl") < in_memory / 4


# What stands there already


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_an_older_report_stays_when_the_run_raises_and_what_was_finished_lies_beside(out, door):
    old = evaluate(many(2), own(0.5), progress=False, out=out)
    samples = iter([*many(3), {"no": "sample"}])
    options = {"progress": False, "out": out, "on_failure": "raise", "max_concurrency": 1}
    with pytest.raises(SampleError):
        await aevaluate(samples, own(), **options) if door == "aevaluate" else evaluate(samples, own(), **options)
    assert Report.load(out) == old
    part = Report.load(f"{out}.part")
    assert not part.complete
    assert {row.scores["own"].value for row in part.rows} <= {1.0}
    assert evaluate(many(4), own(), progress=False, out=out) == Report.load(out)
    assert not Path(f"{out}.part").exists()


def test_mistakes_that_are_seen_at_once_leave_no_trace(tmp_path, out):
    with pytest.raises(SampleError):
        evaluate([{"question": "Q?"}], METRICS, progress=False, out=out)
    with pytest.raises(ConfigError):
        evaluate(many(1), own(), progress=False, out=out, max_concurrency=0)
    assert os.listdir(tmp_path) == []


async def test_a_cancelled_run_leaves_what_was_finished_beside(out):
    async def last_hangs(sample):
        if sample.id == "q-3":
            await asyncio.Event().wait()
        return Score(metric="own", aspect="answer", value=1.0)

    task = asyncio.create_task(aevaluate(many(4), RunnableLambda(last_hangs), progress=False, out=out))
    part = Path(f"{out}.part")
    async with asyncio.timeout(PATIENCE):
        while not part.exists() or part.read_bytes().count(b"\n") < 4:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not out.exists()
    assert [row.index for row in Report.load(part).rows] == [0, 1, 2]


# Killed


SCRIPT = """
import sys, time
sys.path.insert(0, sys.argv[1])
from langchain_core.runnables import RunnableLambda
from langchain_rageval import Score, evaluate
def slow(sample):
    time.sleep(0.02)
    return Score(metric="own", aspect="answer", value=1.0, reason="ы" * 3000)
samples = ({"id": f"q-{n}", "question": f"Q{n}?"} for n in range(100_000))
report = evaluate(samples, RunnableLambda(slow), progress=False, out=sys.argv[2], max_concurrency=4)
print(report.complete, len(report))
"""


@contextmanager
def started(out):
    """Start a run, and wait until it has written some rows."""
    words, part = [sys.executable, "-c", SCRIPT, str(TESTS), str(out)], Path(f"{out}.part")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": TESTS.parent, "text": True}
    with subprocess.Popen(words, **pipes) as process:
        until(lambda: (part.exists() and part.read_bytes().count(b"\n") > 30) or process.poll() is not None)
        yield process


@pytest.mark.gate
def test_a_run_that_is_killed_leaves_its_rows_and_the_older_report(out):
    old = evaluate(many(2), own(0.5), progress=False, out=out)
    part = Path(f"{out}.part")
    with started(out) as process:
        process.kill()
    assert Report.load(out) == old
    report = Report.load(part)
    assert not report.complete
    assert len(report) >= 30
    assert all(row.scores["own"].reason == "ы" * 3000 for row in report.rows)
    assert [row.index for row in report.rows] == sorted(row.index for row in report.rows)
    assert Report.load(part, lazy=True) == report


@pytest.mark.gate
def test_control_c_gives_the_rows_that_were_finished(out):
    with started(out) as process:
        process.send_signal(signal.SIGINT)
        told, complaints = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, complaints
    report = Report.load(out)
    assert not report.complete
    assert told.split() == ["False", str(len(report))]
    assert len(report) >= 30
    assert not Path(f"{out}.part").exists()
    assert any("interrupted" in note for note in report.notes)


def test_an_interrupt_before_anything_is_finished_leaves_the_older_report(out, tmp_path):
    old = evaluate(many(2), own(0.5), progress=False, out=out)

    def interrupted(_):
        raise KeyboardInterrupt

    report = evaluate(many(1), RunnableLambda(interrupted), progress=False, out=out)
    assert (list(report.rows), report.complete) == ([], False)
    assert Report.load(out) == old
    assert os.listdir(tmp_path) == ["report.jsonl"]


def unfinished(path):
    """What a killed process leaves: rows of several bytes a letter, the last thing said about the run at the end."""
    with ReportFile(path) as file:
        for given in reversed(report_of(*(scored(n / 4, reason="да\u2028 🦁") for n in range(4))).rows):
            file.append(given)
        file._write(files.head_line({"notes": ["всё"], "complete": True, "left_out": [(9, "m")]}))
    return Path(f"{path}.part")


def test_wherever_the_file_of_a_killed_run_is_cut_off_it_loads(tmp_path):
    whole = unfinished(tmp_path / "r.jsonl").read_bytes()
    rows = {row.index: row for row in Report.load(tmp_path / "r.jsonl.part").rows}
    cut = tmp_path / "cut.jsonl"
    head = whole.index(b"\n")
    at_line_ends = {at + end for at in range(len(whole) - 1) if whole[at] == 10 for end in (0, 1)}
    for length in at_line_ends.union(range(0, len(whole), 7)):
        cut.write_bytes(whole[:length])
        if length < head:  # nothing but a part of the first line
            with pytest.raises(ConfigError, match="is not a report" if length else "is empty: nothing was written"):
                Report.load(cut)
            continue
        report = Report.load(cut)
        lines = whole[:length].count(b"\n")
        assert not report.complete
        assert (report.notes, report.left_out) == ([], [])
        assert report.rows == [rows[n] for n in range(4 - max(0, lines - 1), 4)]
    report = Report.load(tmp_path / "r.jsonl.part")
    assert (report.complete, report.notes, report.left_out) == (True, ["всё"], [(9, "m")])


# Places that are none


FULL = r"report\.jsonl cannot be written: No space left on device; choose another path"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is always full")
def test_a_disk_that_is_full_from_the_start_is_reported_before_any_call(out):
    Path(f"{out}.part").symlink_to("/dev/full")
    asked = []
    with pytest.raises(ConfigError, match=FULL):
        evaluate(many(2), RunnableLambda(asked.append), progress=False, out=out)
    assert asked == []


class FullDisk(io.FileIO):
    """File on a disk that writes a few bytes at a time, until it is full."""

    def write(self, data):
        if self.tell() > 5_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data[:99])


def test_a_disk_that_gets_full_during_the_run_is_reported_and_what_was_written_loads(out, monkeypatch):
    old = evaluate(many(2), own(0.5), progress=False, out=out)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda path, mode, **_: FullDisk(path, mode))
        with pytest.raises(ConfigError, match=FULL):
            evaluate(many(100), own(), progress=False, out=out)
    assert Report.load(out) == old
    part = Report.load(f"{out}.part")
    assert 5 < len(part) < 50
    assert not part.complete


@pytest.mark.parametrize("place", ["folder", "no folder/report.jsonl", "file/report.jsonl", "pipe"])
def test_a_place_that_cannot_be_written_to_is_named_before_any_call(tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    asked = []
    with pytest.raises(ConfigError, match=r"cannot be written.*choose another path"):
        evaluate(many(2), RunnableLambda(asked.append), progress=False, out=tmp_path / place)
    assert asked == []


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
@pytest.mark.parametrize("what", ["the file of samples", "the journal"])
async def test_a_report_does_not_take_the_place_of_samples_or_journal(tmp_path, monkeypatch, door, what):
    path = tmp_path / "samples.jsonl"
    path.write_text('{"question": "Q?"}\n')
    monkeypatch.chdir(tmp_path)
    options = {"out": path} if what == "the file of samples" else {"out": "run.db", "journal": tmp_path / "run.db"}
    run = partial(evaluate if door == "evaluate" else aevaluate, "samples.jsonl", own(), progress=False, **options)
    with pytest.raises(ConfigError, match=f"is {what}; choose another path"):
        await run()
    assert path.read_text() == '{"question": "Q?"}\n'
    with pytest.raises(ConfigError, match="out must be the path of a file, got int"):
        evaluate(path, own(), progress=False, out=5)


# In use


def test_rows_stay_when_the_place_is_removed_or_replaced(out):
    report = evaluate(many(5), own(0.5), progress=False, out=out)
    before = list(report.rows)
    out.unlink()
    assert list(report.rows) == before
    evaluate(many(7), own(0.9), progress=False, out=out)
    assert list(report.rows) == before
    report.to_jsonl(out)
    assert Report.load(out) == report


def test_threads_may_read_at_once(out):
    report = evaluate(many(200), own(), progress=False, out=out)
    wrong, start = [], threading.Barrier(8)

    def read(seed):
        start.wait(PATIENCE)
        for step in range(300):
            place = (seed * 37 + step * 11) % 200
            if report.rows[place].sample.id != f"q-{place}":
                wrong.append(place)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("copied", [lambda given: pickle.loads(pickle.dumps(given)), copy.deepcopy, copy.copy])
def test_a_report_may_be_copied_and_sent_elsewhere(out, monkeypatch, copied):
    monkeypatch.chdir(out.parent)
    report = evaluate(many(5), own(), progress=False, out=out.name)
    sent = pickle.dumps(report)
    assert copied(report) == report
    monkeypatch.chdir("/")
    assert pickle.loads(sent) == report


def test_what_was_sent_never_reads_another_run_s_rows(out):
    sent = pickle.dumps(evaluate(many(5), own(0.5), progress=False, out=out))
    time.sleep(0.02)  # the clock of a file system may tick slowly
    evaluate(many(5), own(0.9), progress=False, out=out)
    with pytest.raises(ConfigError, match="has changed; load the report again"):
        pickle.loads(sent)
    out.unlink()
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory; restore the file"):
        pickle.loads(sent)


def test_a_row_that_was_spoilt_in_place_is_named_by_its_line(out):
    report = evaluate(many(5), own(), progress=False, out=out)
    whole = out.read_bytes()
    at = whole.index(b'"q-3"')
    line = whole[:at].count(b"\n") + 1
    with out.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff\xff")
    with pytest.raises(ConfigError, match=rf"report\.jsonl, line {line}: not a row of a report"):
        list(report.rows)


# Open files


def open_files(folder):
    gc.collect()
    links = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return [target for link in links if link.exists() and str(target := link.resolve()).startswith(str(folder))]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="this system does not list open files")
def test_files_are_closed_when_their_rows_are_no_longer_used(out, tmp_path):
    report = evaluate(many(3), own(), progress=False, out=out)
    loaded = Report.load(out)
    assert len(open_files(tmp_path)) == 1
    rows = report.rows[:]
    del report
    assert open_files(tmp_path) == []
    with pytest.raises(SampleError):
        evaluate(iter([{"no": "sample"}]), own(), progress=False, out=out, on_failure="raise")
    assert open_files(tmp_path) == []
    assert loaded.rows == rows
