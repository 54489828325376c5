"""Scoring of sampled runs: scores, counters, limits, sinks, and a chain that is never disturbed."""

import copy
import gc
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import weakref
from datetime import UTC, datetime
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest
from helpers.each import each
from helpers.samples import (
    ANSWER,
    CONTEXTS,
    DOCUMENTS,
    QUESTION,
    Search,
    rag,
    rag_chain,
    watched,
    watching,
    with_callback,
)
from helpers.scripted import answering, broken_judge, offline_reply, recording_judge
from helpers.waiting import PATIENCE, until
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from langsmith.utils import get_env_var, tracing_is_enabled

from langchain_rageval import (
    Budget,
    ConfigError,
    OfflineJudge,
    RagEvalCallback,
    RetryPolicy,
    Sample,
    context_recall,
    context_relevance,
    faithfulness,
    suite,
)
from langchain_rageval.sinks import JsonlSink

ENDS = ("scored", "failed", "dropped", "unscorable", "pending", "running")


def accounted(callback: RagEvalCallback) -> bool:
    """Whether every sampled run is counted once."""
    stats = callback.stats()
    return stats["sampled"] == sum(stats[end] for end in ENDS)


def ask(callback, times=1, chain=None):
    for _ in range(times):
        (chain or rag_chain()).invoke(QUESTION, with_callback(callback))


def scored(times, *metrics, **options):
    """Return the counters and the rows of a closed callback that has watched some calls of a chain."""
    callback, rows = watching(*metrics, **options)
    with callback:
        ask(callback, times)
        assert callback.flush(PATIENCE)
    return callback.stats(), rows


class Gate:
    """A judge that answers when it is let."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.asked = 0
        self.model = answering(self._answer)

    def _answer(self, messages):
        self.asked += 1
        assert self.open.wait(PATIENCE)
        return offline_reply(messages)


# Sampling


@pytest.mark.gate
def test_the_id_of_a_run_decides_whether_it_is_scored_the_same_everywhere():
    ids = [UUID(int=number << 64) for number in range(400)]
    chosen = []
    for _ in range(2):
        callback, rows = watching(sample_rate=0.25, max_pending=1000)
        with callback:
            for run_id in ids:
                rag_chain().invoke(QUESTION, with_callback(callback, run_id=run_id))
        chosen.append({row.sample.metadata["run_id"] for row in rows})
        assert callback.stats()["seen"] == 400
        assert accounted(callback)
    assert chosen[0] == chosen[1]
    assert 60 <= len(chosen[0]) <= 140


# Scores


def test_several_metrics_share_their_steps_and_one_without_its_fields_is_left_out():
    judge = recording_judge()
    both = suite(context_relevance(judge), faithfulness(judge, name="f2"))
    callback, rows = watching(faithfulness(judge), context_recall(judge), both)
    with callback:
        ask(callback)
        ask(callback, chain=RunnableLambda(lambda _: ANSWER))
    (row,) = rows
    assert list(row.scores) == ["faithfulness", "context_relevance", "f2"]
    assert len(judge.asked) == 3  # extract and verify once, select once
    stats = callback.stats()
    assert (stats["scored"], stats["unscorable"], stats["skipped"]) == (1, 1, 1 + 4)
    assert accounted(callback)


def test_a_judge_that_always_fails_is_asked_about_every_run_and_the_rows_are_numbered_as_these_ended():
    judge = broken_judge(ConnectionError("down"))
    stats, rows = scored(22, faithfulness(judge), retry=RetryPolicy(attempts=1))
    found = [(row.index, row.scores["faithfulness"].failure.message) for row in rows]
    assert found == [(number, "down") for number in range(22)]
    assert (len(judge.asked), stats["failed"], stats["broken_off"]) == (22, 22, 0)


def test_a_run_with_one_score_of_two_counts_as_scored():
    metrics = [faithfulness(broken_judge()), context_relevance(OfflineJudge())]
    stats, rows = scored(1, *metrics)
    assert [score.failure is None for score in rows[0].scores.values()] == [False, True]
    assert (stats["scored"], stats["failed"]) == (1, 0)


# Nothing is watched twice, nothing is traced


class RunNames(BaseCallbackHandler):
    """Keeps the names of runs."""

    run_inline = True

    def __init__(self) -> None:
        self.names: list[str] = []

    def on_chain_start(self, *_, name=None, **__):
        self.names.append(name)

    def on_chat_model_start(self, *_, **__):
        self.names.append("model")


def test_the_judges_calls_are_reported_to_the_handlers_in_callbacks_and_not_to_those_of_the_chain():
    judges = RunNames()
    for own in (None, [judges]):
        chains = RunNames()
        callback, rows = watching(callbacks=own)
        part = rag_chain().with_config(run_name="part", callbacks=[callback])  # ends while the chain around it runs
        with callback:
            (RunnableLambda(lambda question: question, name="first") | part).invoke(QUESTION, {"callbacks": [chains]})
        assert (len(rows), chains.names) == (1, ["RunnableSequence", "first", "part"])
    assert judges.names == ["faithfulness", "extract_statements", "model", "verify_statements", "model"]


def test_the_judge_is_not_traced_to_langsmith_even_if_the_chain_is(monkeypatch):
    gate, traced = Gate(), []

    def judge(messages):
        traced.append(tracing_is_enabled())
        return gate._answer(messages)

    callback, rows = watching(faithfulness(answering(judge)))
    with callback:
        ask(callback)
        until(lambda: gate.asked)
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        get_env_var.cache_clear()
        assert tracing_is_enabled()
        gate.open.set()
        assert callback.flush(PATIENCE)
    get_env_var.cache_clear()
    assert len(rows) == 1
    assert traced == [False, False]


def test_a_judge_or_a_sink_that_calls_a_watched_chain_is_not_watched():
    callback = None

    def judge(messages):
        rag_chain().invoke("Am I watched?", with_callback(callback))
        return offline_reply(messages)

    def sink(row):
        rag_chain().invoke("Am I?", with_callback(callback))
        rows.append(row)

    rows = []
    callback = RagEvalCallback(faithfulness(RunnableLambda(judge)), 1.0, [sink])
    with callback:
        ask(callback)
        assert callback.flush(PATIENCE)
        assert (len(rows), callback.stats()["seen"]) == (1, 1)


# Limits


def test_a_full_queue_drops_runs_and_the_chain_goes_on():
    gate = Gate()
    callback, rows = watching(faithfulness(gate.model), max_pending=3)
    with callback:
        for _ in range(10):
            assert rag_chain().invoke(QUESTION, with_callback(callback))["answer"] == ANSWER
        stats = callback.stats()
        assert (stats["pending"], stats["dropped"]) == (3, 7)
        assert not callback.flush(0.01)
        gate.open.set()
        assert callback.flush(PATIENCE)
    assert (len(rows), callback.stats()["scored"], callback.stats()["pending"]) == (3, 3, 0)
    assert accounted(callback)


def test_runs_above_the_rate_per_minute_are_dropped(monkeypatch):
    now = [1000.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    monkeypatch.setattr("langchain_rageval.callbacks.scoring_pipeline.time", clock)
    callback, rows = watching(max_per_minute=2)
    with callback:
        for seconds in (0, 10, 20, 59, 61, 65, 71):
            now[0] = 1000.0 + seconds
            ask(callback)
    assert (len(rows), callback.stats()["dropped"]) == (4, 3)  # at 0, 10, 61 and 71
    assert accounted(callback)


def test_a_budget_holds_for_everything_that_is_scored():
    judge = recording_judge()
    callback, rows = watching(faithfulness(judge), context_relevance(judge), budget=Budget(calls=7))
    with callback:
        for number in range(6):
            rag(Search()).invoke(f"{QUESTION} {number}", with_callback(callback))
            callback.flush(PATIENCE)
    assert len(judge.asked) <= 7
    assert 2 <= len(rows) <= 3
    assert callback.stats()["dropped"] == 6 - len(rows)
    assert accounted(callback)


# extract and redact


def test_extract_reads_the_tree_of_runs_in_its_own_way():
    trees = []

    def extract(tree):
        trees.append(tree)
        if tree["inputs"] == "Hello":
            return None
        found = [run for run in tree["child_runs"] if run["run_type"] == "retriever"]
        return {"q": tree["inputs"], "question": tree["inputs"].upper(), "answer": tree["outputs"],
                "contexts": found[0]["outputs"][:1]}  # fmt: skip

    chain = RunnableLambda(lambda question: Search().invoke(question) and ANSWER, name="bot")
    callback, rows = watching(extract=extract)
    with callback:
        ask(callback, chain=chain)
        list(chain.stream(QUESTION, with_callback(callback)))
        chain.invoke("Hello", with_callback(callback))
    assert [(row.sample.question, row.sample.contexts) for row in rows] == [(QUESTION.upper(), CONTEXTS[:1])] * 2
    assert [row.sample.id for row in rows] == [row.sample.metadata["run_id"] for row in rows]
    assert (callback.stats()["scored"], callback.stats()["unscorable"]) == (2, 1)
    assert trees[0].keys() == {"id", "name", "run_type", "inputs", "outputs", "error", "child_runs"}
    assert (trees[0]["name"], trees[0]["run_type"], trees[0]["outputs"]) == ("bot", "chain", ANSWER)


def test_only_the_redacted_sample_reaches_judge_sinks_and_log(caplog):
    def redact(sample: Sample) -> Sample:
        if "secret" in sample.question:
            raise LookupError(f"cannot redact {sample.question}")
        hidden = {"answer": sample.answer.replace("1158", "****"), "contexts": ["nothing"], "metadata": {}}
        return sample.model_copy(update=hidden)

    judge = recording_judge()
    callback, rows = watching(faithfulness(judge), redact=redact)
    with callback, caplog.at_level(logging.DEBUG):
        ask(callback)
        rag_chain().invoke("secret", with_callback(callback))
        RunnableLambda(lambda _: ANSWER).invoke({"contexts": "secret list", "question": "q"}, with_callback(callback))
    (row,) = rows
    assert "1158" not in row.model_dump_json() + str(judge.asked)
    assert row.sample.metadata["run_id"] == row.sample.id
    assert (callback.stats()["failed"], callback.stats()["scored"]) == (2, 1)
    assert "secret" not in caplog.text
    assert "LookupError" in caplog.text


def test_a_run_is_not_scored_if_redact_returns_no_sample(caplog):
    stats, rows = scored(1, redact=lambda sample: None)
    assert (rows, stats["failed"]) == ([], 1)
    assert caplog.messages == ["a run could not be scored: ConfigError"]


# Sinks


def test_a_sink_that_fails_is_tried_again_and_holds_up_no_other(monkeypatch, caplog):
    monkeypatch.setattr("langchain_rageval.callbacks.scoring_pipeline._RETRY_DELAYS", (0.0, 0.0))
    tries, seen = [], []

    def moody(row):
        tries.append(row)
        if len(tries) < 3:
            raise OSError("disk full")

    stats, _ = scored(3, sinks=[moody, lambda row: 1 / 0, seen.append])
    assert (len(tries), len(seen)) == (5, 3)
    assert stats["sink_errors"] == 2 + 3 + 1 + 1  # a dead sink is tried once a row until it takes one again
    assert (stats["lost"], stats["scored"]) == (3, 3)
    assert caplog.text.count("a sink failed: OSError: disk full") == 1


def test_the_judge_waits_for_a_slow_sink_and_no_row_is_lost():
    seen = []

    def unhurried(row):
        time.sleep(0.002)
        seen.append(row)

    metric = faithfulness(broken_judge(ValueError("no")))
    stats, _ = scored(200, metric, sinks=[unhurried], max_pending=3, max_concurrency=4)
    assert (stats["lost"], stats["pending"], len(seen)) == (0, 0, stats["failed"])


def test_a_sink_that_hangs_blocks_the_judge_once_and_no_other_sink(monkeypatch):
    monkeypatch.setattr("langchain_rageval.callbacks.scoring_pipeline._PUT_TIMEOUT", 0.05)
    go_on, seen = threading.Event(), []
    callback, _ = watching(sinks=[lambda row: go_on.wait(PATIENCE), seen.append], max_pending=2)
    for number in range(1, 9):
        ask(callback)
        until(lambda n=number: len(seen) == n)
    stats = callback.stats()
    assert (stats["dropped"], stats["lost"]) == (0, 6)
    assert not callback.flush(0.01)
    go_on.set()
    assert callback.close(PATIENCE)
    assert accounted(callback)


def test_closing_closes_the_sinks_and_logs_an_error_of_a_sink(caplog):
    class Closing:
        closed = 0

        def __call__(self, row):
            assert not self.closed

        def close(self):
            self.closed += 1
            raise OSError("busy")

    sink = Closing()
    scored(1, sinks=[sink])
    assert sink.closed == 1
    assert "a sink could not be closed: OSError: busy" in caplog.text


def test_without_sinks_the_counts_are_all_there_is_and_the_repr_shows_them():
    callback, _ = watched(rag_chain(), sinks=[])
    callback.on_chain_start({}, {}, run_id=uuid4())  # a closed callback sees no more
    assert repr(callback) == (
        "RagEvalCallback(seen=1, sampled=1, scored=1, failed=0, dropped=0, unscorable=0, sink_errors=0, skipped=0, "
        "broken_off=0, lost=0, pending=0, running=0)"
    )


# A chain that notices nothing


class Hostile(dict):
    """Raises at every look."""

    def items(self):
        raise RuntimeError("do not look")

    get = values = lambda self, *_: self.items()


def itself():
    ring = {"question": "q"}
    ring["ring"] = ring
    return ring


@each(
    "given",
    [None, 7, b"\xff", object(), [], {}, Hostile(question="q"), itself(), {"a": 1, "b": 2}, {"messages": [3]}, "\ud800",
     {"question": "q" * 200_000}, {"question": "{x} </script> '; DROP TABLE scores; --\x00"}],
    ids=range(13),  # the texts of some cannot be shown
)  # fmt: skip
async def test_whatever_goes_in_and_out_the_chain_is_not_disturbed(given):
    def answer(_):
        return {"answer": given, "context": DOCUMENTS} if isinstance(given, str) else given

    chain = RunnableLambda(answer)
    expected = chain.invoke(given)
    callback, _ = watching()
    with callback:
        assert chain.invoke(given, with_callback(callback)) == expected
        assert await chain.ainvoke(given, with_callback(callback)) == expected
    assert (callback.stats()["sampled"], callback.stats()["pending"]) == (2, 0)
    assert accounted(callback)


def test_an_error_in_the_callback_itself_is_logged_and_kept_from_the_chain(monkeypatch, caplog):
    callback, rows = watching()
    monkeypatch.setattr(callback._open, "start_step", lambda *_: 1 / 0)
    with callback:
        assert rag().invoke(QUESTION, with_callback(callback)) == ANSWER
    assert caplog.text.count("an event could not be handled: ZeroDivisionError: division by zero") == 1
    assert "an event could not be handled: ZeroDivisionError: 9 times in all" in caplog.text
    assert rows == []


# Ends


def test_closing_drops_what_is_late_and_watches_nothing_more(caplog):
    gate = Gate()
    callback, rows = watching(faithfulness(gate.model))
    ask(callback, 4)
    until(lambda: gate.asked)
    assert not callback.close(0.01)
    assert caplog.messages == [
        "RagEvalCallback was closed before all runs were scored; dropped: 3; still being scored or delivered, and lost "
        "if the process ends now: 1"
    ]
    assert rag_chain().invoke(QUESTION, with_callback(callback))["answer"] == ANSWER
    stats = callback.stats()
    assert (stats["seen"], stats["dropped"], stats["pending"]) == (4, 3, 1)
    gate.open.set()
    until(lambda: len(rows) == 1)


def test_a_judge_that_raises_a_system_exit_fails_its_run_and_the_next_is_scored():
    def exit_once(messages):
        if not asked:
            asked.append(1)
            raise SystemExit("enough")
        return offline_reply(messages)

    asked = []
    stats, _ = scored(3, faithfulness(RunnableLambda(exit_once)))
    assert (stats["failed"], stats["scored"]) == (1, 2)


def test_flush_waits_for_what_ended_before_it_and_not_for_ever_more():
    callback, rows = watching(max_pending=5)
    stopped = threading.Event()

    def load():
        while not stopped.is_set():
            ask(callback)

    with callback:
        ask(callback)
        thread = threading.Thread(target=load)
        thread.start()
        try:
            assert callback.flush(PATIENCE)
        finally:
            stopped.set()
            thread.join()
        assert rows
        assert callback.flush(PATIENCE)


SCRIPT = """
import sys
from langchain_core.runnables import RunnableLambda
from langchain_rageval import OfflineJudge, RagEvalCallback, faithfulness
from langchain_rageval.sinks import SqliteSink, JsonlSink

sinks = [JsonlSink(sys.argv[1] + "/rows.jsonl"), SqliteSink(sys.argv[1] + "/rows.db")]
callback = RagEvalCallback(faithfulness(OfflineJudge()), 1.0, sinks)
chain = RunnableLambda(lambda q: {"answer": "Munich is old. So is Rome.", "context": ["Munich is old."]})
config = {"callbacks": [callback]}
"""


def run(script, folder):
    source = textwrap.dedent(SCRIPT) + textwrap.dedent(script)
    return subprocess.run([sys.executable, "-c", source, str(folder)], capture_output=True, text=True, timeout=120)


def lines(folder):
    return (folder / "rows.jsonl").read_text(encoding="utf-8").count('{"index"')


@pytest.mark.gate
def test_a_script_that_just_ends_has_its_last_runs_scored(tmp_path):
    done = run("for _ in range(2): chain.invoke('q', config)", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert lines(tmp_path) == 2


@pytest.mark.gate
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_process_that_forks_and_its_child_each_score_their_own(tmp_path):
    done = run(
        """
        import os, sqlite3, warnings
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)  # Python 3.12 on warns where threads run
        chain.invoke("before", config)
        assert callback.flush(60)  # all modules are imported
        for _ in range(19):
            chain.invoke("before", config)
        if os.fork() == 0:
            assert callback.stats()["seen"] == 0 == callback.stats()["pending"]
            for _ in range(10):
                chain.invoke("child", config)
            assert callback.flush(60) and callback.stats()["scored"] == 10
            os._exit(0)
        for _ in range(10):
            chain.invoke("parent", config)
        assert os.wait()[1] == 0
        assert callback.close(60) and callback.stats()["scored"] == 30
        query = "SELECT question, count(*) FROM scores WHERE value = 0.5 GROUP BY question"
        print(dict(sqlite3.connect(sys.argv[1] + "/rows.db").execute(query)))
        """,
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "{'before': 20, 'child': 10, 'parent': 10}"
    assert lines(tmp_path) == 40


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda callback: pickle.loads(pickle.dumps(callback))])
def test_a_copy_watches_for_itself(again, tmp_path):
    callback = RagEvalCallback(faithfulness(OfflineJudge()), 1.0, [JsonlSink(tmp_path / "rows.jsonl")])
    ask(callback)
    assert callback.flush(PATIENCE)
    twin = again(callback)
    assert twin.stats()["seen"] == 0
    ask(twin, 2)
    assert twin.close(PATIENCE)
    assert callback.close(PATIENCE)
    assert (callback.stats()["scored"], twin.stats()["scored"]) == (1, 2)
    assert lines(tmp_path) == 3


# Options


async def async_sink(row):
    raise AssertionError("nobody awaits it")


class AsyncSink:
    async def __call__(self, row):
        await async_sink(row)


def refusing_sink(row):
    raise ConfigError("the run belongs to no trace")


@each(("sink", "cause"), [(refusing_sink, "ConfigError"), (lambda row: async_sink(row), "TypeError")])
def test_a_permanent_error_of_a_sink_is_tried_once_and_counted_by_its_cause(sink, cause, caplog):
    stats, _ = scored(3, sinks=[sink])
    assert (stats["lost"], stats["sink_errors"]) == (3, 3)
    assert f"a sink failed: {cause}: 3 times in all" in caplog.text


@each(
    ("options", "told"),
    [
        ({"sample_rate": 1.5}, "sample_rate is a share from 0 to 1, got 1.5"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"tags": {"version": 1.4}}, "tags must map names to texts, such as {.*}, got {'version': 1.4}"),
        ({"tags": ["version"]}, "tags must map names to texts"),
        ({"tags": {1: "a"}}, "tags must map names to texts"),
        ({"max_pending": 0}, "max_pending must be a whole number of at least 1, got 0"),
        ({"max_per_minute": 1.5}, "max_per_minute must be a whole number of at least 1, got 1.5"),
        ({"sinks": "rows.jsonl"}, r"write sinks=\[JsonlSink\(path\)\]"),
        ({"sinks": print}, r"sinks must be a list of sinks, got builtin_function_or_method"),
        ({"sinks": ["rows.jsonl"]}, r"'rows.jsonl'; pass JsonlSink\(path\)"),
        ({"sinks": [list]}, r"got <class 'list'>; pass JsonlSink\(path\)"),
        ({"sinks": [async_sink]}, "a sink must not be async, got .*async_sink.*; pass a plain function"),
        ({"sinks": [AsyncSink()]}, "a sink must not be async, got .*AsyncSink.*; pass a plain function"),
        ({"callbacks": [watching()[0]]}, "callbacks must not contain a RagEvalCallback: it would score the judge's"),
        ({"extract": "question"}, "extract must be a function, got str"),
        ({"redact": {}}, "redact must be a function, got dict"),
        ({"budget": 100}, r"budget must be a Budget\(calls"),
        ({"retry": 3}, r"retry must be a RetryPolicy"),
        ({"timeout": 0}, "timeout must be a number of seconds above 0"),
        ({"max_concurrency": 0}, "max_concurrency must be a whole number"),
        ({"metrics": []}, "at least one metric"),
        ({"metrics": faithfulness}, "a metric is a Runnable, got function; call it with a judge"),
        ({"metrics": [faithfulness(OfflineJudge())] * 2}, "two metrics are named"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_when_the_callback_is_made(options, told):
    with pytest.raises(ConfigError, match=told):
        RagEvalCallback(**{"metrics": faithfulness(OfflineJudge()), **options})


def test_an_unreferenced_callback_is_garbage_collected(monkeypatch):
    monkeypatch.setattr("langchain_rageval.run.threads._IDLE_SECONDS", 0.01)
    callback, _ = watching()
    ask(callback)
    assert callback.flush(PATIENCE)
    known = weakref.ref(callback)
    del callback

    def collected():
        gc.collect()
        return known() is None

    until(collected)  # its thread may still be about to end


def test_memory_stays_flat_when_the_judge_never_answers():
    gate = Gate()
    callback, _ = watching(faithfulness(gate.model), max_pending=5)
    config, chain = with_callback(callback), rag_chain()
    for _ in range(50):
        chain.invoke("x" * 10_000, config)
    tracemalloc.start()
    for _ in range(200):
        chain.invoke("x" * 10_000, config)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    gate.open.set()
    assert callback.close(PATIENCE)
    assert held < 1_000_000


# Time and tags


def test_a_row_has_its_time_and_the_tags_of_the_callback_without_what_no_file_could_hold():
    """os.environ has lone surrogates where a variable is not UTF-8."""
    before = datetime.now(UTC).replace(microsecond=0)
    _, rows = watched(rag(), tags={"version": "1.4\udcff", "tenant": "акме"})
    assert rows[0].tags == {"version": "1.4\ufffd", "tenant": "акме"}
    assert before <= rows[0].time <= datetime.now(UTC)


def test_keys_in_inputs_and_metadata_reach_no_sink_and_names_and_hosts_stay():
    key = "sk-SECRETSECRETSECRET123"
    kept = {"sort_key": "title", "host": "http://search.local:9200/index"}
    secret = {"api_key": key, "auth": {"session_token": "abcdef", "note": f"sent {key} along"}}
    metadata = {"authorization": f"Bearer {key}", "final_answer": "token"}
    chain = RunnableLambda(lambda x: {"answer": ANSWER, "context": CONTEXTS}).with_config(metadata=metadata)
    _, [row] = watched(chain, {"question": QUESTION, **kept, **secret})
    assert key not in row.model_dump_json()
    masked = {"api_key": "***", "auth": {"session_token": "***", "note": "sent *** along"}, "authorization": "***"}
    expected = {**kept, **masked, "final_answer": "token"}
    assert {name: row.sample.metadata[name] for name in expected} == expected


def test_a_run_is_read_in_the_thread_of_a_worker_and_as_it_was_when_it_ended(monkeypatch):
    readers, output = [], {"answer": ANSWER, "context": [DOCUMENTS[0].model_copy()]}
    read = Sample.parse.__func__

    def parse(cls, obj, fields=None):
        readers.append(threading.current_thread())
        return read(cls, obj, fields)

    monkeypatch.setattr(Sample, "parse", classmethod(parse))
    gate = Gate()
    callback, rows = watching(context_relevance(gate.model))
    ask(callback, 6, RunnableLambda(lambda _: output))  # more than there are workers
    output["answer"], output["context"][0].page_content = "changed", "changed"
    gate.open.set()
    assert callback.flush(PATIENCE)
    assert {(row.sample.answer, *row.sample.contexts) for row in rows} == {(ANSWER, DOCUMENTS[0].page_content)}
    assert readers
    assert threading.current_thread() not in readers
