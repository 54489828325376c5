"""Nothing that is finished is lost, or paid for twice: the journal through evaluate, aevaluate and the command line."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.doors import report_by
from helpers.lives import evaluated, exit_code, started
from helpers.offline import offline as offline_brain
from helpers.samples import town
from helpers.scripted import answering, human_of, offline_reply, recording_judge
from helpers.waiting import PATIENCE, Connections, until
from langchain_core.runnables import RunnableLambda

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    Report,
    Sample,
    Score,
    answer_similarity,
    context_recall,
    context_relevance,
    evaluate,
    faithfulness,
    metric,
)
from langchain_rageval.errors import JournalError
from langchain_rageval.evaluation.score_store import ScoreStore
from langchain_rageval.run import journal as journals
from langchain_rageval.run.journal import Journal

SAMPLES = [town(number) for number in range(12)]


def metrics_of(judge):
    asking = [build(judge) for build in (faithfulness, context_recall, context_relevance)]
    return [*asking, answer_similarity(HashingEmbeddings())]


def values(report, *besides):
    told = {"usage", *besides}
    return [{name: score.model_dump(exclude=told) for name, score in row.scores.items()} for row in report.rows]


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "run.db"


# What is in it is not asked again


@pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
async def test_a_second_run_asks_nothing_and_scores_the_same(journal, door):
    first, second = recording_judge(), recording_judge()
    undisturbed = await report_by(door, SAMPLES, metrics_of(recording_judge()))
    before = await report_by(door, SAMPLES, metrics_of(first), journal=journal)
    again = await report_by(door, SAMPLES, metrics_of(second), journal=str(journal))
    assert len(first.asked) > 0
    assert second.asked == []
    assert values(before) == values(again) == values(undisturbed)
    assert [*journal.parent.iterdir()] == [journal]  # closed: no -wal beside it


def test_neither_place_nor_id_nor_metadata_matter_but_every_text_does(journal):
    judge = recording_judge()
    evaluate(SAMPLES, faithfulness(judge), progress=False, journal=journal)
    asked = len(judge.asked)
    moved = [{**given, "id": f"q-{n}", "metadata": {"split": n}} for n, given in enumerate(reversed(SAMPLES))]
    evaluate(moved, faithfulness(judge), progress=False, journal=journal)
    assert len(judge.asked) == asked
    evaluate([town(0, references=["Another."])], faithfulness(judge), progress=False, journal=journal)
    assert len(judge.asked) == asked + 2


def test_a_metric_that_reads_metadata_is_scored_once_for_each_text_of_a_value(journal):
    scored = []

    @metric(reads={"metadata"}, aspect="style")
    def is_cheap(sample):
        scored.append(sample.metadata["price"].euros)
        return float(scored[-1] < 3)

    for euros in (2, 2, 3):
        price = SimpleNamespace(euros=euros)  # JSON has no such value
        evaluate([town(0, metadata={"price": price})], is_cheap, progress=False, journal=journal)
    assert scored == [2, 3]


def test_another_configuration_is_never_mixed_in(journal):
    judge = recording_judge()
    judges = (judge, Judge(judge, draws=3), Judge(judge, language="ru"))
    configurations = [*map(faithfulness, judges), faithfulness(judge, name="mine"), context_relevance(judge)]
    asked = []
    for configuration in configurations * 2:
        before = len(judge.asked)
        evaluate(SAMPLES[:2], configuration, progress=False, journal=journal)
        asked.append(len(judge.asked) - before)
    assert all(asked[:5])
    assert not any(asked[5:])


def test_unscored_is_finished_and_a_failure_is_tried_again(journal):
    class Down(Exception):
        """As a client might raise it."""

    repaired = threading.Event()  # of the server: no setting of the judge

    def answer(messages):
        if not repaired.is_set() and "town 0001" in human_of(messages):
            raise Down
        return offline_reply(messages)

    judge = answering(answer)
    given = [town(0, answer="I do not know."), town(1), town(2)]
    first = evaluate(given, faithfulness(judge), progress=False, journal=journal)
    assert [row.scores["faithfulness"].unscored is not None for row in first.rows] == [True, False, False]
    assert [score.failure.error for _, score in first.failures()] == ["Down"]
    repaired.set()
    asked = len(judge.asked)
    second = evaluate(given, faithfulness(judge), progress=False, journal=journal)
    assert second.failures() == []
    assert len(judge.asked) == asked + 2
    assert all("town 0001" in human_of(messages) for messages in judge.asked[asked:])


def test_what_tells_nothing_of_itself_is_not_journalled_and_the_report_says_so(journal):
    judge, own = recording_judge(), []

    def mine(given):
        own.append(given)
        return Score(metric="mine", aspect="answer", value=1.0)

    metrics = [RunnableLambda(mine, name="mine"), RunnableLambda(lambda s: s) | context_relevance(judge)]
    for _ in range(2):
        report = evaluate(SAMPLES[:2], metrics, progress=False, journal=journal)
    assert len(own) == 4
    assert len(judge.asked) == 4
    reason = "only a single metric, not a chain or a Runnable around several, identifies what its scores depend on"
    assert f"mine is not stored in the journal: {reason}." in report.notes
    assert f"context_relevance is not stored in the journal: {reason}." in report.notes


def test_a_wrapped_metric_is_journalled(journal):
    judge = recording_judge()
    wrapped = faithfulness(judge).with_retry().with_config(tags=["x"])
    evaluate(SAMPLES[:2], wrapped, progress=False, journal=journal)
    asked = len(judge.asked)
    evaluate(SAMPLES[:2], faithfulness(judge), progress=False, journal=journal)
    assert len(judge.asked) == asked > 0


# Broken off


def undisturbed(openai_server, tmp_path):
    server = openai_server(offline_brain)
    assert exit_code(started(evaluated, server.url, tmp_path / "clean.db", tmp_path / "clean.jsonl", SAMPLES)) == 0
    return Report.load(tmp_path / "clean.jsonl"), server.calls


@pytest.mark.gate
def test_a_run_that_is_killed_again_and_again_ends_with_the_scores_of_one_that_was_not(openai_server, tmp_path):
    clean, calls = undisturbed(openai_server, tmp_path)
    reached, killed = threading.Event(), threading.Event()

    def answer(*given):
        if server.calls >= limit:  # none is answered until the process is dead, however late that is
            reached.set()
            killed.wait(PATIENCE)
        return offline_brain(*given)

    server, journal, chance = openai_server(answer), tmp_path / "run.db", random.Random(7)
    kills = 0
    while True:
        reached.clear()
        killed.clear()
        limit = server.calls + chance.randint(6, 30)
        process = started(evaluated, server.url, journal, tmp_path / "out.jsonl", SAMPLES)
        until(lambda process=process: reached.is_set() or not process.is_alive())
        if not process.is_alive():
            break
        process.kill()
        process.join()
        killed.set()
        kills += 1
        assert kills < 40
    assert process.exitcode == 0
    assert kills >= 3
    assert values(Report.load(tmp_path / "out.jsonl"), "instrument") == values(clean, "instrument")
    in_flight_or_unfinished = 4 * 3  # 4 slots; a metric of two calls is one score
    assert calls <= server.calls <= calls + kills * in_flight_or_unfinished


@pytest.mark.gate
def test_four_processes_share_a_journal(openai_server, tmp_path):
    clean, calls = undisturbed(openai_server, tmp_path)
    server, journal = openai_server(offline_brain, latency=0.05), tmp_path / "run.db"
    outs = [tmp_path / f"out-{n}.jsonl" for n in range(4)]
    processes = [started(evaluated, server.url, journal, out, SAMPLES) for out in outs]
    assert [exit_code(process) for process in processes] == [0] * 4
    assert all(values(Report.load(out), "instrument") == values(clean, "instrument") for out in outs)
    assert calls <= server.calls <= 4 * calls
    before = server.calls
    assert exit_code(started(evaluated, server.url, journal, tmp_path / "again.jsonl", SAMPLES)) == 0
    assert server.calls == before


def test_control_c_gives_what_is_finished_and_the_next_run_goes_on(journal):
    """Ctrl-C comes when both slots hold a call; both calls are answered after the run has returned."""
    returned, asked, answered = threading.Event(), [], []

    def answer(messages):
        asked.append(messages)
        number = len(asked)
        if number == 10:
            os.kill(os.getpid(), signal.SIGINT)
        if number in (9, 10):
            assert returned.wait(PATIENCE)
        answered.append(number)
        return offline_reply(messages)

    metric = faithfulness(answering(answer))
    report = evaluate(SAMPLES, metric, progress=False, max_concurrency=2, timeout=None, journal=journal)
    returned.set()
    assert not report.complete
    assert 0 < len(report.rows) < len(SAMPLES)
    assert [row.index for row in report.rows] == sorted(row.index for row in report.rows)
    assert "interrupted" in repr(report)
    until(lambda: len(answered) == 10)
    whole = evaluate(SAMPLES, metric, progress=False, journal=journal)
    assert len(answered) - 10 <= 2 * (len(SAMPLES) - len(report.rows))
    assert whole.complete
    assert values(whole) == values(evaluate(SAMPLES, metric, progress=False))


def test_a_score_that_is_stored_after_the_end_of_its_run_leaves_no_file_open(journal, monkeypatch):
    connections, given = Connections(monkeypatch, journal), Sample.parse(SAMPLES[0])
    metric = faithfulness(recording_judge())
    scores = {"faithfulness": metric.invoke(given)}
    store = ScoreStore(journal, [metric])
    store.close()
    store.save(0, given, scores)
    assert store.load(0, given) == scores
    assert len(connections.opened) == 2
    assert connections.left_open == []


# Places that are none


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path):
    text, database = tmp_path / "notes.txt", tmp_path / "other.db"
    text.write_text("My notes. " * 100)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE mine (a)")
    for path, message in (text, "is damaged or not a journal"), (database, "but not a journal of langchain-rageval"):
        before = path.read_bytes()
        with pytest.raises(JournalError, match=message):
            evaluate(SAMPLES, faithfulness(recording_judge()), progress=False, journal=path)
        assert path.read_bytes() == before


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    judge = recording_judge()
    for path in (tmp_path / "no" / "such" / "folder.db", tmp_path):
        with pytest.raises(JournalError, match=r"cannot be written.*choose a writable path"):
            evaluate(SAMPLES, faithfulness(judge), progress=False, journal=path)
    assert judge.asked == []


def test_a_damaged_journal_is_an_error_and_nothing_is_scored_wrongly(journal):
    evaluate(SAMPLES, faithfulness(recording_judge()), progress=False, journal=journal)
    Journal(journal).close()
    whole = bytearray(journal.read_bytes())
    whole[4096:] = random.Random(3).randbytes(len(whole) - 4096)
    journal.write_bytes(bytes(whole))
    for beside in (f"{journal}-wal", f"{journal}-shm"):
        Path(beside).unlink(missing_ok=True)
    with pytest.raises(JournalError, match=r"damaged or not a journal|holds an entry that is not a score"):
        evaluate(SAMPLES, faithfulness(recording_judge()), progress=False, journal=journal)


def test_a_full_disk_ends_the_run_with_what_to_do_and_keeps_what_is_there(journal, monkeypatch):
    def prepare_full(path, connection):
        prepare(path, connection)
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")

    with closing(Journal(journal)) as empty:
        empty.put("k", "v")
        with empty._open() as connection:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
    prepare = journals._prepare
    monkeypatch.setattr(journals, "_prepare", prepare_full)
    big = [town(n, answer=f"Munich was founded in 1158. {'It lies on the Isar. ' * 200}") for n in range(20)]
    with pytest.raises(JournalError, match="the disk is full: free some space and start again"):
        evaluate(big, faithfulness(recording_judge()), progress=False, journal=journal)
    with closing(Journal(journal)) as full:
        assert full.get("k") == "v"


# The command line


@pytest.mark.gate
def test_processes_that_make_a_journal_at_the_same_moment_do_not_get_in_each_others_way(tmp_path):
    program = """
        import sys, time
        from langchain_rageval.run.journal import Journal
        while time.time() < float(sys.argv[2]):
            pass
        journal = Journal(sys.argv[1])
        journal.put(sys.argv[3], "value")
        assert journal.get(sys.argv[3]) == "value"
    """
    for attempt in range(8):
        moment = str(time.time() + 0.7)
        words = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / f"{attempt}.db"), moment]
        processes = [subprocess.Popen([*words, str(number)], stderr=subprocess.PIPE) for number in range(6)]
        complaints = [process.communicate()[1] for process in processes]
        assert complaints == [b""] * 6
