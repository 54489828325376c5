"""evaluate(batch=Batch()): waves through the APIs of OpenAI and Anthropic; real clients against loopback servers."""

import _thread
import asyncio
import json
import os
import re
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.each import each, error_of
from helpers.lives import evaluated_in_batches, exit_code, started
from helpers.offline import METRICS, RICH, SIX, offline
from helpers.reports import comparable
from helpers.servers.batches import AnthropicBatchServer, BatchServer
from helpers.servers.endpoints import OpenAIServer
from helpers.waiting import PATIENCE, auntil
from langchain_core.callbacks import BaseCallbackHandler
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from langchain_rageval import (
    Audit,
    Batch,
    Budget,
    ConfigError,
    Decided,
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    Report,
    aevaluate,
    answer_relevance,
    cascade,
    context_precision,
    evaluate,
    faithfulness,
    jury,
)
from langchain_rageval.cli.main import run as cli
from langchain_rageval.errors import JournalError, JudgeUnavailable
from langchain_rageval.run.batch.recorder import StoredReply, reported_tokens
from langchain_rageval.run.journal import Journal

FAST = Batch(poll=0.01)


def model(server, **options):
    return ChatOpenAI(model="m", base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0, **options)


def vectors(server):
    address = {"base_url": f"{server.url}/v1", "api_key": "sk-test"}
    return OpenAIEmbeddings(model="e", check_embedding_ctx_length=False, max_retries=0, **address)


def six_metrics(judge, embeddings):
    return [METRICS[name](judge, embeddings) for name in (*SIX[:5], "noise_sensitivity_relevant")]


def values(report):
    return [row.scores["faithfulness"].value for row in report.rows]


@pytest.fixture(scope="module")
def live():
    """Report of the run without batches."""
    with OpenAIServer(offline) as server:
        return evaluate(RICH, six_metrics(Judge(model(server)), vectors(server)), progress=False)


def batched(server, metrics=None, samples=RICH, **options):
    metrics = metrics or six_metrics(Judge(model(server)), vectors(server))
    return evaluate(samples, metrics, progress=False, batch=FAST, **options)


def test_three_waves_give_the_scores_of_a_live_run_and_the_money_of_the_charged_replies(live):
    with BatchServer(offline, polls=3) as server:
        report = batched(server, price={"m": (10.0, 20.0)})
    assert comparable(report) == comparable(live)
    assert report.usage.calls == live.usage.calls == server.calls
    assert report.notes[1:] == [
        "Requests sent through the batch API of OpenAI: 25 in 3 waves; 2 sent live.",
        "The run had no journal: had it ended early, its batches would have been paid for again.",
    ]
    assert max(server.answered.values()) == 1
    usage = report.usage
    assert usage.money == pytest.approx((usage.input_tokens * 10 + usage.output_tokens * 20) / 1e6)
    assert "money" not in report.notes[0]


@pytest.mark.parametrize("outcome", ["expired", *(pytest.param(n, marks=pytest.mark.gate) for n in ("failed", "lost"))])
def test_requests_that_a_batch_does_not_answer_are_sent_again_in_the_next_wave(live, outcome):
    def becomes(batch, place):
        return outcome if batch == 1 and place % 2 else "answered"

    def status(batch):
        return "cancelled" if outcome == "lost" and batch == 1 else "completed"

    with BatchServer(offline, outcome=becomes, status=status) as server:
        report = batched(server)
    assert comparable(report) == comparable(live)
    assert len(server.sent_live) == 2
    assert max(server.answered.values()) == 1


def test_requests_that_two_waves_do_not_answer_are_sent_live(live):
    with BatchServer(offline, outcome=lambda _batch, _place: "expired", status=lambda _batch: "expired") as server:
        report = batched(server)
    assert comparable(report) == comparable(live)
    assert report.usage.calls == live.usage.calls == server.calls
    assert not server.answered


def test_a_refused_request_is_a_failure_of_its_score():
    with BatchServer(offline, outcome=lambda _batch, _place: "refused") as server:
        report = batched(server, [faithfulness(Judge(model(server), mode="json_schema"))], max_concurrency=1)
    (_, failed) = [row.scores["faithfulness"] for row in report.rows]
    assert failed.failure.message == "Error code: 400 - refused by a filter"
    assert failed.usage.calls == 1


def test_a_batch_that_the_provider_refuses_ends_the_run():
    with BatchServer(offline, status=lambda _batch: "failed") as server, pytest.raises(JudgeUnavailable) as caught:
        batched(server, [faithfulness(Judge(model(server)))])
    assert str(caught.value) == (
        "OpenAI refused the batch batch_1: Enqueued token limit reached. Remove the cause and start the run again; "
        "with the same journal, no reply is paid for twice"
    )


def test_a_server_without_a_batch_api_is_named():
    with OpenAIServer(offline) as server, pytest.raises(ConfigError) as caught:
        batched(server, [faithfulness(Judge(model(server)))])
    assert str(caught.value) == (
        f"{server.url}/v1 has no batch API (HTTP 404): leave batch= out, or write the requests to a file with `rageval "
        "requests` for a server such as vLLM"
    )


def test_a_judge_without_a_batch_api_is_refused_before_any_call():
    error = error_of(ConfigError, evaluate, RICH, [faithfulness(OfflineJudge())], batch=Batch(), progress=False)
    assert str(error) == (
        "OfflineJudge has no supported batch API: batch= takes judges of ChatOpenAI and ChatAnthropic, such as "
        "openai:MODEL and anthropic:MODEL; leave it out for other judges"
    )


@each("poll", [0, -1.5, float("inf"), float("nan"), "fast", True, None])
def test_the_seconds_between_polls_are_checked(poll):
    assert str(error_of(ConfigError, Batch, poll=poll)) == f"poll must be a number of seconds above 0, got {poll!r}"


def test_embeddings_without_a_batch_api_are_called_live():
    with BatchServer(offline) as server:
        report = batched(server, [answer_relevance(Judge(model(server)), HashingEmbeddings())])
    assert all(score.value is not None for row in report.rows for score in row.scores.values())
    assert "HashingEmbeddings was called live: it has no supported batch API." in report.notes


async def test_aevaluate_sends_the_same_waves(live):
    with BatchServer(offline) as server:
        metrics = six_metrics(Judge(model(server)), vectors(server))
        report = await aevaluate(RICH, metrics, progress=False, batch=FAST)
    assert comparable(report) == comparable(live)


async def test_a_cancelled_aevaluate_sends_no_batch(tmp_path):
    """It is cancelled during the first live call."""
    loop, cancelled, journal = asyncio.get_running_loop(), threading.Event(), tmp_path / "run.db"
    with BatchServer(offline) as server:

        def on_state(state):
            if state == "live" and not cancelled.is_set():
                loop.call_soon_threadsafe(run.cancel)
                assert cancelled.wait(PATIENCE)

        server.on_state = on_state
        metrics = [faithfulness(Judge(model(server)))]
        run = asyncio.create_task(aevaluate(RICH, metrics, progress=False, batch=FAST, journal=journal))
        with pytest.raises(asyncio.CancelledError):
            await run
        cancelled.set()
        await auntil(lambda: not Path(f"{journal}-wal").exists())  # the worker thread has ended
    assert server.batches == {}


def test_retries_fallbacks_and_bound_options_are_kept():
    with BatchServer(offline) as server:
        wrapped = model(server).bind(seed=7).with_retry().with_fallbacks([model(server)])
        report = batched(server, [faithfulness(Judge(wrapped))])
    assert values(report) == [0.5, 0.5]
    assert {line["body"]["seed"] for batch in server.sent for line in batch["_lines"]} == {7}


def three_judges(server):
    return jury([Judge(model(server), draws=3), Judge(model(server, seed=1)), Judge(model(server, seed=2))])


def test_a_jury_and_repeated_draws_ask_once_per_vote():
    with OpenAIServer(offline) as server:
        expected = evaluate(RICH, [faithfulness(three_judges(server))], progress=False)
        count = server.calls
    with BatchServer(offline) as server:
        report = batched(server, [faithfulness(three_judges(server))])
    assert values(report) == values(expected)
    assert server.calls == count == report.usage.calls


def test_an_invalid_reply_is_asked_again_in_a_further_wave():
    seen = set()

    def breaks_once(request):
        text = json.dumps(request.body["messages"])
        if request.schema_title == "Verdicts" and text not in seen and len(request.messages) == 2:
            seen.add(text)
            return "I cannot decide"
        return offline(request)

    with BatchServer(breaks_once) as server:
        report = batched(server, [faithfulness(Judge(model(server)))])
    assert values(report) == [0.5, 0.5]
    assert report.usage.calls == 6
    assert report.notes[1].startswith("Requests sent through the batch API of OpenAI: 5 in 3 waves; 1 sent live.")


def test_the_first_request_of_a_model_is_sent_live_to_learn_its_format():
    with BatchServer(offline, rungs={"json_mode"}) as server:
        report = batched(server, [faithfulness(Judge(model(server)))])
    assert values(report) == [0.5, 0.5]
    assert report.notes[0].endswith("was called in json_mode mode.")
    formats = {line["body"]["response_format"]["type"] for batch in server.sent for line in batch["_lines"]}
    assert formats == {"json_object"}


def test_a_wave_beyond_the_budget_is_not_sent():
    with BatchServer(offline) as server:
        report = batched(server, [faithfulness(Judge(model(server)))], budget=Budget(calls=2))
    assert 0 < server.calls == report.usage.calls <= 2
    assert any(note.startswith("The budget of 2 calls is spent") for note in report.notes)


def test_a_reply_without_a_usage_reports_no_tokens():
    usage = '{"usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7, "input_tokens": null}}'
    bodies = {"no JSON": 0, "[]": 0, "{}": 0, '{"usage": null}': 0, usage: 7}
    assert {body: reported_tokens(StoredReply(200, body)) for body in bodies} == bodies


def test_a_stopping_rule_draws_samples_in_growing_waves(monkeypatch):
    monkeypatch.setattr("langchain_rageval.evaluation.batched_evaluation._FIRST_SAMPLES", 20)
    fact = "Город {} стоит на реке.".format
    samples = [
        {"id": str(number), "question": f"Где город {number}?", "answer": fact(number), "contexts": [fact(number)]}
        for number in range(300)
    ]
    with BatchServer(offline) as server:
        report = batched(server, [faithfulness(Judge(model(server)))], samples, until=Decided({"faithfulness": 0.5}))
    assert report.decisions["faithfulness"].verdict == "passed"
    assert len(report.rows) == 20
    assert len(report.left_out) == 280


def test_traces_show_each_step_once():
    started = []

    class Handler(BaseCallbackHandler):
        def on_chain_start(self, serialized, inputs, *, name=None, **_):
            started.append(name)

        def on_chain_error(self, error, **_):
            started.append(error)

        def on_llm_error(self, error, **_):
            started.append(error)

    with BatchServer(offline) as server:
        report = batched(server, [faithfulness(Judge(model(server)))], callbacks=[Handler()])
    assert sorted(started) == sorted(["faithfulness", "extract_statements", "verify_statements"] * 2)
    assert report.usage.calls == server.calls == 4


def test_the_replies_in_a_journal_serve_another_metric_with_the_same_requests(tmp_path):
    with BatchServer(offline) as server:
        judge = Judge(model(server))
        first, count = batched(server, [faithfulness(judge)], journal=tmp_path / "run.db"), server.calls
        second = batched(server, [faithfulness(judge, name="second")], journal=tmp_path / "run.db")
    assert [row.scores["second"].value for row in second.rows] == values(first)
    assert server.calls == count


def test_a_failed_score_is_asked_for_again_by_a_later_run(tmp_path):
    replies = iter(["nonsense"] * 3)

    def fails_first(request):
        return next(replies, None) or offline(request)

    with BatchServer(fails_first) as server:
        metrics = [faithfulness(Judge(model(server), mode="prompt"))]
        first = batched(server, metrics, RICH[:1], journal=tmp_path / "run.db", max_concurrency=1)
        second = batched(server, metrics, RICH[:1], journal=tmp_path / "run.db", max_concurrency=1)
    assert first.rows[0].scores["faithfulness"].failure.error == "JudgeOutputError"
    assert second.rows[0].scores["faithfulness"].value == 0.5


def interrupt_once(server):
    """Interrupt the main thread when the first batch is asked about, as Ctrl-C does."""

    def on_state(state):
        if state == "in_progress":
            server.on_state = lambda _state: None
            _thread.interrupt_main()

    server.on_state = on_state


def test_ctrl_c_leaves_the_batches_running_and_says_how_to_come_back(tmp_path, live):
    journal = tmp_path / "run.db"
    with BatchServer(offline, polls=2) as server:
        interrupt_once(server)
        report = batched(server, journal=journal)
        names = ", ".join(f"batch_{place + 1} at OpenAI" for place in range(len(server.batches)))
        again = batched(server, journal=journal)
        assert not (tmp_path / "run.db-wal").exists()  # closed
    assert not report.complete
    assert report.notes[1] == (
        f"Batches that have not ended: {names}. The same call with the same journal picks up their replies, as does "
        f"`rageval resume {journal}` for a run of `rageval evaluate`."
    )
    assert comparable(again) == comparable(live)
    assert max(server.answered.values()) == 1


def test_ctrl_c_without_a_journal_says_that_the_replies_are_lost():
    with BatchServer(offline, polls=2) as server:
        interrupt_once(server)
        report = batched(server, [faithfulness(Judge(model(server)))])
    assert report.notes[1] == (
        "Batches that have not ended: batch_1 at OpenAI. Their replies are lost, because the run had no journal."
    )


def test_the_command_line_resumes_an_interrupted_batch(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Batch.__init__, "__defaults__", (0.01,))
    lines = "".join(f"{sample.model_dump_json()}\n" for sample in RICH)
    (tmp_path / "answers.jsonl").write_text(lines, encoding="utf-8")
    with BatchServer(offline, polls=2) as server:
        interrupt_once(server)
        options = "--judge vllm:m --metrics faithfulness --batch --journal run.db --quiet --base-url"
        assert cli(["evaluate", "answers.jsonl", *options.split(), f"{server.url}/v1"]) == 130
        assert capsys.readouterr().err == (
            "rageval: Batches that have not ended: batch_1 at OpenAI. The same call with the same journal picks up "
            "their replies, as does `rageval resume run.db` for a run of `rageval evaluate`.\n"
            f"rageval: ChatOpenAI(model='m', openai_api_base='{server.url}/v1', temperature=0.1) was called in "
            "json_schema mode.\n"
            "rageval: Requests sent through the batch API of OpenAI: 2 in 1 wave; 1 sent live.\n"
            "rageval: interrupted\n"
        )
        assert cli(["resume", "run.db", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"]["faithfulness"]["mean"] == 0.5
    assert server.calls == 4


def test_the_progress_shows_waves_and_the_counts_of_the_provider(monkeypatch):
    shown = []
    monkeypatch.setattr("langchain_rageval.run.progress.Progress.show", lambda _self, state: shown.append(state))
    with BatchServer(offline, polls=2, outcome=lambda _batch, _place: "answered") as server:
        batched(server, [faithfulness(Judge(model(server)))])
    counts = ((1, 0), (1, 2), (2, 0), (2, 1))
    assert shown == [f"wave {wave}: 1 batch, {answered} answered" for wave, answered in counts]


def test_a_poll_that_meets_an_outage_is_repeated(live, monkeypatch):
    at_once = SimpleNamespace(**{**vars(time), "sleep": lambda _seconds: None})
    monkeypatch.setattr("openai._base_client.time", at_once)
    with BatchServer(offline, polls=1, outages=3) as server:
        report = batched(server, [faithfulness(Judge(model(server)))])
    assert values(report) == [0.5, 0.5]


def test_an_audited_run_in_batches_equals_the_live_one():
    samples = [
        {"question": f"Что такое товар {n}?", "answer": f"Товар {n} — лампа.", "contexts": [f"Товар {n} — лампа."]}
        for n in range(24)
    ]

    def audited(server, **options):
        audit = Audit(Judge(model(server), max_statements=4), share=0.25)
        return evaluate(samples, faithfulness(Judge(model(server))), audit=audit, progress=False, **options)

    with OpenAIServer(offline) as server:
        expected = audited(server)
    with BatchServer(offline) as server:
        report = audited(server, batch=FAST)
        sizes = [len(batch["_lines"]) for batch in server.sent]
    audit, other = report.audit["faithfulness"], expected.audit["faithfulness"]
    assert (audit.mean, audit.low, audit.high, audit.audited) == (other.mean, other.low, other.high, 20)
    assert values(report) == values(expected)
    assert (len(sizes), sum(sizes) + 1) == (2, server.calls)


def test_a_cascade_in_batches_counts_each_request_once():
    def unsure(request):
        answer = offline(request)
        return {"verdicts": []} if "verdicts" in answer and request.body["model"] == "m1" else answer

    with BatchServer(unsure) as server:
        cheap = Judge(ChatOpenAI(model="m1", base_url=f"{server.url}/v1", api_key="sk-test", max_retries=0))
        judge = cascade(cheap, Judge(model(server)))
        report = batched(server, [faithfulness(judge)])
    notes = [note.partition(" passed ")[2].partition(" on to ") for note in report.notes if " passed " in note]
    assert [(note[0], note[2].rpartition(": ")[2]) for note in notes] == [("2 of 4 requests", "2 incomplete.")]
    assert all(row.scores["faithfulness"].value is not None for row in report.rows)


class RawServer(BatchServer):
    """Writes output files as unescaped JSON, as pydantic does, and changes them."""

    def __init__(self, change):
        super().__init__(offline, polls=1)
        self._change = change

    def _end(self, batch):
        super()._end(batch)
        name = f"{batch['id']}-output"
        if name in self.files:
            lines = self.files[name].decode().splitlines()
            raw = "".join(json.dumps(json.loads(line), ensure_ascii=False) + "\n" for line in lines)
            self.files[name] = self._change(raw).encode()


@each("separator", ["\u2028", "\u2029", "\u0085"])
def test_a_reply_may_hold_any_separator_but_a_line_feed(tmp_path, separator):
    def with_separator(raw):
        return re.sub(r"(?<=[a-zа-я]) (?=[a-zа-я])", separator, raw)

    with RawServer(with_separator) as server:
        report = batched(server, faithfulness(model(server)), journal=tmp_path / f"{ord(separator)}.db")
    assert [row.scores["faithfulness"].failure for row in report.rows] == [None] * len(RICH)
    assert any(separator in finding.text for row in report.rows for finding in row.scores["faithfulness"].findings)


def test_a_cut_off_output_file_is_named_and_its_whole_lines_are_kept(tmp_path):
    cut = [True]

    with RawServer(lambda raw: raw[:-20] if cut[0] else raw) as server:
        with pytest.raises(JudgeUnavailable, match=r"^line \d+ of the output file batch_?\S* is cut off or damaged \("):
            batched(server, faithfulness(model(server)), journal=tmp_path / "run.db")
        cut[0] = False
        server._end(server.batches["batch_1"])  # the whole file now
        report = batched(server, faithfulness(model(server)), journal=tmp_path / "run.db")
    assert all(row.scores["faithfulness"].failure is None for row in report.rows)


def test_a_second_run_on_the_journal_of_one_under_way_is_refused_before_it_pays(tmp_path):
    journal = Journal(tmp_path / "run.db")
    with BatchServer(offline) as server, journal.claimed("batches"):
        with pytest.raises(JournalError, match=r"another run uses the batches of the journal .*run\.db .*: wait until"):
            batched(server, faithfulness(model(server)), journal=tmp_path / "run.db")
        assert (server.calls, server.batches) == (0, {})
        assert evaluate(RICH[:1], faithfulness(OfflineJudge()), journal=journal, progress=False).rows
    with BatchServer(offline) as server:
        report = batched(server, faithfulness(model(server)), journal=tmp_path / "run.db")
    assert all(row.scores["faithfulness"].failure is None for row in report.rows)


# Anthropic's message batches


def anthropic_metrics(server):
    anthropic = pytest.importorskip("langchain_anthropic")
    model = anthropic.ChatAnthropic(model="m", base_url=server.url, api_key="k", max_retries=0, max_tokens=1000)
    judge = Judge(model)
    return [faithfulness(judge), context_precision(judge)]


def batched_by_anthropic(server, **options):
    return batched(server, anthropic_metrics(server), **options)


@pytest.fixture(scope="module")
def live_anthropic():
    with AnthropicBatchServer() as server:
        return evaluate(RICH, anthropic_metrics(server), progress=False)


def test_waves_give_the_scores_of_a_live_run(live_anthropic):
    with AnthropicBatchServer(polls=3) as server:
        report = batched_by_anthropic(server)
    assert comparable(report) == comparable(live_anthropic)
    assert report.usage.calls == live_anthropic.usage.calls == server.calls
    assert report.notes[1] == "Requests sent through the batch API of Anthropic: 5 in 2 waves; 1 sent live."
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("outcome", ["errored", "expired", "canceled"])
def test_requests_that_a_batch_does_not_answer_are_sent_again(live_anthropic, outcome):
    with AnthropicBatchServer(outcome=lambda batch, place: outcome if batch == 1 and place else "succeeded") as server:
        report = batched_by_anthropic(server)
    assert comparable(report) == comparable(live_anthropic)
    assert max(server.answered.values()) == 1


def test_an_invalid_request_is_a_failure_of_its_score():
    with AnthropicBatchServer(outcome=lambda _batch, _place: "invalid") as server:
        report = batched_by_anthropic(server)
    failures = [score.failure for row in report.rows for score in row.scores.values()]
    assert len([failure for failure in failures if failure is not None]) >= 2
    assert "refused by a filter" in failures[-1].message


def test_a_batch_created_just_before_the_process_ended_is_picked_up(tmp_path, live_anthropic):
    with AnthropicBatchServer() as server:
        batched_by_anthropic(server)
        calls_before, batches_before = server.calls, len(server.batches)
        for earlier in server.batches.values():
            earlier["created_at"] = "2026-01-01T00:00:00Z"
        requests = server.batches["msgbatch_1"]["_requests"]
        batch = {"key": "k", "provider": "Anthropic", "endpoint": server.url, "count": len(requests)}
        Journal(tmp_path / "run.db").put("batches", json.dumps({"k": {**batch, "since": time.time(), "id": None}}))
        server._create(requests)
        report = batched_by_anthropic(server, journal=tmp_path / "run.db")
    assert comparable(report) == comparable(live_anthropic)
    assert len(server.batches) == 2 * batches_before
    assert server.calls == 2 * calls_before == 2 * report.usage.calls


# A run that is killed between every two states


class KillAtEachState:
    """Kills the current process the first time that a wave of the server reaches a state."""

    def __init__(self, server):
        self.server = server
        self.process = None
        self.killed = []

    def __call__(self, state):
        reached = f"{state} {len(self.server.batches)}"
        if state != "live" and reached not in self.killed:
            self.killed.append(reached)
            os.kill(self.process.pid, signal.SIGKILL)


@pytest.mark.gate
def test_a_run_that_is_killed_between_every_two_states_pays_for_nothing_twice(tmp_path):
    with BatchServer(offline, polls=2) as server:
        clean = batched(server, [faithfulness(Judge(model(server)))])
        calls, batches = server.calls, len(server.batches)
    with BatchServer(offline, polls=2) as server:
        server.on_state = killer = KillAtEachState(server)
        code = None
        while code != 0:
            assert len(killer.killed) < 30
            files = tmp_path / "run.db", tmp_path / "out.jsonl"
            killer.process = started(evaluated_in_batches, server.url, *files, RICH)
            code = exit_code(killer.process)
            assert code in (0, -signal.SIGKILL)
    report = Report.load(tmp_path / "out.jsonl")
    assert comparable(report) == comparable(clean)
    assert server.calls == calls
    assert len(server.batches) == batches
    assert set(server.answered.values()) == {1}
    states = ["uploaded", "created", "in_progress", "completed", "downloaded"]
    assert Counter(state.partition(" ")[0] for state in killer.killed) == dict.fromkeys(states, batches)
    assert report.usage.calls == calls
