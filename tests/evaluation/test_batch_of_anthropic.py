"""evaluate(batch=Batch()): Anthropic's message batches, with the real client against a loopback server."""

import json
import time

import pytest
from helpers.offline import RICH
from helpers.reports import comparable
from helpers.servers.batches import AnthropicBatchServer

from langchain_rageval import Batch, Judge, context_precision, evaluate, faithfulness
from langchain_rageval.run.journal import Journal

anthropic = pytest.importorskip("langchain_anthropic")


def metrics(server):
    model = anthropic.ChatAnthropic(model="m", base_url=server.url, api_key="k", max_retries=0, max_tokens=1000)
    judge = Judge(model)
    return [faithfulness(judge), context_precision(judge)]


def run(server, **options):
    return evaluate(RICH, metrics(server), progress=False, batch=Batch(poll=0.01), **options)


@pytest.fixture(scope="module")
def live():
    with AnthropicBatchServer() as server:
        return evaluate(RICH, metrics(server), progress=False)


def test_waves_give_the_scores_of_a_live_run(live):
    with AnthropicBatchServer(polls=3) as server:
        report = run(server)
    assert comparable(report) == comparable(live)
    assert report.usage.calls == live.usage.calls == server.calls
    assert report.notes[1] == "Requests sent through the batch API of Anthropic: 5 in 2 waves; 1 sent live."
    assert max(server.answered.values()) == 1


@pytest.mark.parametrize("outcome", ["errored", "expired", "canceled"])
def test_requests_that_a_batch_does_not_answer_are_sent_again(live, outcome):
    with AnthropicBatchServer(outcome=lambda batch, place: outcome if batch == 1 and place else "succeeded") as server:
        report = run(server)
    assert comparable(report) == comparable(live)
    assert max(server.answered.values()) == 1


def test_an_invalid_request_is_a_failure_of_its_score():
    with AnthropicBatchServer(outcome=lambda _batch, _place: "invalid") as server:
        report = run(server)
    failures = [score.failure for row in report.rows for score in row.scores.values()]
    assert len([failure for failure in failures if failure is not None]) >= 2
    assert "refused by a filter" in failures[-1].message


def test_a_batch_created_just_before_the_process_ended_is_picked_up(tmp_path, live):
    with AnthropicBatchServer() as server:
        run(server)
        calls_before, batches_before = server.calls, len(server.batches)
        for earlier in server.batches.values():
            earlier["created_at"] = "2026-01-01T00:00:00Z"
        requests = server.batches["msgbatch_1"]["_requests"]
        batch = {"key": "k", "provider": "Anthropic", "endpoint": server.url, "count": len(requests)}
        Journal(tmp_path / "run.db").put("batches", json.dumps({"k": {**batch, "since": time.time(), "id": None}}))
        server._create(requests)
        report = run(server, journal=tmp_path / "run.db")
    assert comparable(report) == comparable(live)
    assert len(server.batches) == 2 * batches_before
    assert server.calls == 2 * calls_before == 2 * report.usage.calls
