"""Batch APIs without a network: what providers report, which replies last, and how requests become batches."""

import itertools
import json
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import httpx
import openai
import pytest
from helpers.each import each, error_of
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Budget, BudgetExceeded, ConfigError
from langchain_rageval.errors import JudgeUnavailable
from langchain_rageval.run.batch.providers import AnthropicBatches, OpenAIBatches, batch_line, batch_reply
from langchain_rageval.run.batch.recorder import (
    BatchApi,
    BatchState,
    RecordedRequest,
    Recorder,
    Recording,
    ReplyStore,
    StoredReply,
    Unanswered,
    _Transport,
)
from langchain_rageval.run.batch.wave_files import FileWaves, WaveWritten, last_wave
from langchain_rageval.run.batch.waves import SentBatch, Waves, _parts
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.journal import Journal

CHAT = "/chat/completions"
TENANT = "tenant-7"  # the API key
LOST = openai.APIConnectionError(request=httpx.Request("POST", "https://api"))


def refused(status):
    response = httpx.Response(status, request=httpx.Request("POST", "https://api"))
    return openai.APIStatusError(f"no {TENANT}", response=response, body=None)


class Api(BatchApi):
    """Creates batches in memory; `outcomes` are ids or errors of the attempts to create one."""

    provider, max_requests, max_bytes = "Provider", 3, 10**6

    def __init__(self, *outcomes, states=(), found=None, replies=()):
        self.endpoint, self.credential = "https://api/v1", TENANT
        self.outcomes, self.states, self.found, self.answers = [*outcomes], [*states], found, replies
        self.submitted, self.searched = [], []

    def submit(self, requests, key):
        self.submitted.append([request.id for request in requests])
        outcome = self.outcomes.pop(0) if self.outcomes else "batch"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def find(self, key, count, since):
        self.searched.append((key, count))
        return self.found

    def state(self, batch_id):
        return self.states.pop(0) if self.states else BatchState(True, 0, 0)

    def replies(self, batch_id):
        yield from self.answers


def request(id="r1", api=None, model="m", path=CHAT, **fields):
    body = json.dumps({"model": model, **fields}, separators=(",", ":"))
    return RecordedRequest(id, api, path, body)


# Providers


def test_the_creation_of_a_batch_is_never_retried_by_the_client():
    for kind, create in ((OpenAIBatches, "batches.create"), (AnthropicBatches, "messages.batches.create")):
        client = MagicMock()
        kind(client).submit([request()], "key")
        assert client.with_options.call_args.kwargs == {"max_retries": 5}
        kept = client.with_options.return_value
        assert kept.with_options.call_args.kwargs == {"max_retries": 0}
        found = kept.with_options.return_value
        for name in create.split("."):
            found = getattr(found, name)
        assert found.call_count == 1


@each(
    ("status", "counts", "errors", "expected"),
    [
        ("in_progress", SimpleNamespace(completed=3, failed=1), None, BatchState(False, 3, 1)),
        *((status, None, None, BatchState(False, 0, 0)) for status in ("validating", "finalizing", "cancelling")),
        *((status, None, None, BatchState(True, 0, 0)) for status in ("completed", "expired", "cancelled")),
        ("failed", None, None, BatchState(True, 0, 0, "no reason given")),
        ("failed", None, [("a", "1"), (None, "b"), ("c", None), ("d", "4")], BatchState(True, 0, 0, "a; b; c")),
        ("failed", None, [(None, None)], BatchState(True, 0, 0, "no reason given")),
        ("completed", None, [("a", "1")], BatchState(True, 0, 0)),
    ],
)
def test_the_state_of_a_batch_of_openai(status, counts, errors, expected):
    data = [SimpleNamespace(message=message, code=code) for message, code in errors or ()]
    batch = SimpleNamespace(status=status, request_counts=counts, errors=errors and SimpleNamespace(data=data))
    client = MagicMock()
    client.with_options.return_value.batches.retrieve.return_value = batch
    assert OpenAIBatches(client).state("b") == expected


def test_the_state_of_a_batch_of_anthropic_counts_every_request_without_a_reply_as_failed():
    client = MagicMock()
    counts = SimpleNamespace(processing=1, succeeded=50, errored=200, canceled=3000, expired=40000)
    for status, has_ended in (("ended", True), ("in_progress", False), ("canceling", False)):
        batch = SimpleNamespace(processing_status=status, request_counts=counts)
        client.with_options.return_value.messages.batches.retrieve.return_value = batch
        assert AnthropicBatches(client).state("b") == BatchState(has_ended, 50, 43200)


@each(
    ("times", "found"),
    [
        *(([999.0], "0"), ([998.9], None), ([4599.9], "0"), ([4600.0], None)),
        *(([1005.0, 1001.0], "1"), ([4600.0, 1005.0, 998.0], "1"), ([], None)),
    ],
)
def test_the_first_batch_after_the_time_is_that_of_the_run(times, found):
    counts = SimpleNamespace(processing=1, succeeded=2, errored=4, canceled=8, expired=16)
    batches = [
        SimpleNamespace(id=str(n), request_counts=counts, created_at=SimpleNamespace(timestamp=lambda time=time: time))
        for n, time in enumerate(times)
    ]
    client = MagicMock()
    client.with_options.return_value.messages.batches.list.return_value = batches
    assert AnthropicBatches(client).find("key", 31, 1000.0) == found
    assert AnthropicBatches(client).find("key", 30, 1000.0) is None


def test_a_batch_of_openai_is_found_by_its_key_among_the_newest_thousand():
    keys = [None, {}, {"rageval": "other"}, {"rageval": "mine"}, *[{}] * 996]
    client = MagicMock()
    listed = client.with_options.return_value.batches.list
    for before, found in (([], "3"), ([{}], "4"), ([{}] * 996, "999"), ([{}] * 997, None)):
        listed.return_value = (SimpleNamespace(id=n, metadata=key) for n, key in enumerate([*before, *keys]))
        assert OpenAIBatches(client).find("mine", 1, 0.0) == found


def test_a_list_of_batches_that_begins_again_is_read_once():
    client = MagicMock()
    pages = itertools.cycle([SimpleNamespace(id="a", metadata={}), SimpleNamespace(id="b", metadata={})])
    client.with_options.return_value.batches.list.return_value = pages
    assert OpenAIBatches(client).find("mine", 1, 0.0) is None
    assert next(pages).id == "b"  # three were read: a, b, a


def test_a_request_is_one_line_with_its_letters_as_they_are():
    for body in ('{"model":"m","text":"да"}', '{\n "model": "m",\n "text": "да"}'):
        line = batch_line(RecordedRequest("r1", None, CHAT, body))
        assert line.endswith("\n")
        assert line.count("\n") == 1
        assert "да" in line
        head = {"custom_id": "r1", "method": "POST", "url": "/v1/chat/completions"}
        assert json.loads(line) == {**head, "body": {"model": "m", "text": "да"}}


@each(
    ("line", "status", "body"),
    [
        ({"response": {"status_code": 200, "body": {"x": "да"}}}, 200, '{"x": "да"}'),
        ({"response": {"status_code": 429, "body": {}}, "error": None}, 429, "{}"),
        ({"response": {"body": []}}, 200, "[]"),
        ({"response": {"body": {}}, "error": {"code": "x"}}, 500, "{}"),
        ({"response": {"status_code": 200}}, 500, '{"error": null}'),
        ({"response": {}, "error": "нет"}, 500, '{"error": "нет"}'),
        ({"response": "text"}, 500, '{"error": null}'),
        ({"response": None, "error": {"code": "expired"}}, 500, '{"error": {"code": "expired"}}'),
    ],
)
def test_a_line_of_an_output_file_is_a_reply_or_an_error(line, status, body):
    assert batch_reply({"custom_id": "r1", **line}) == ("r1", StoredReply(status, body))


@each(
    ("line", "problem"),
    [
        *((line, "the key custom_id is missing") for line in ([], {}, {"custom_id": 1, "error": "x"})),
        ({"custom_id": "r1", "error": None}, "the keys response and error are both missing"),
    ],
)
def test_another_line_is_no_reply(line, problem):
    assert str(error_of(ValueError, batch_reply, line)) == problem


def test_a_damaged_line_is_named_by_its_file_and_number():
    good = '{"custom_id": "%s", "response": {"status_code": 200, "body": 1}}\n'
    texts = {"out": good % "a" + "\n" + good % "b", "errors": good % "c" + '{"custom_'}
    client = MagicMock()
    client.with_options.return_value.files.content = lambda file_id: SimpleNamespace(text=texts[file_id])
    batch = SimpleNamespace(output_file_id="out", error_file_id="errors")
    client.with_options.return_value.batches.retrieve.return_value = batch
    replies, found = OpenAIBatches(client).replies("b"), []
    with pytest.raises(JudgeUnavailable, match=r"^line 2 of the output file errors is cut off or damaged \("):
        found.extend(id for id, _ in replies)
    assert found == [*"abc"]


# Stored replies


def test_refusals_that_the_user_may_resolve_are_asked_again_by_a_later_run(tmp_path):
    later = {200, 299, 399, 400, 413, 422}
    for keeps in (False, True):
        journal = Journal(tmp_path / f"{keeps}.db")
        store = ReplyStore(journal, keeps_refusals=keeps)
        for status in (200, 299, 399, 400, 401, 402, 403, 404, 413, 422, 499):
            store.put(str(status), StoredReply(status, "{}"))
            assert store.get(str(status)) == StoredReply(status, "{}")
            is_kept = ReplyStore(journal).get(str(status)) is not None
            assert is_kept == (keeps or status in later), status


def test_a_reply_is_final_unless_the_error_may_pass():
    temporary = {408, 409, 425, 429, *range(500, 600)}
    for status in range(200, 600):
        assert StoredReply(status, "").is_final == (status not in temporary), status


# Recorder


class Leave:
    """Rate limiter that counts how often it was asked."""

    asked = 0

    def acquire(self):
        self.asked += 1


def recorder(*stored, **options):
    found = Recorder(ReplyStore(None), [], "", **options)
    for id, reply in stored:
        found.store.put(id, reply)
    return found


def ask(found, asked, owner="one", status=200, limiter=None):
    """Return the status of the reply, and whether it is charged and was sent at once; None if it is collected."""
    sent = []

    def send():
        sent.append(1)
        return StoredReply(status, '{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}')

    try:
        with Recording(found, owner).attempt(rate_limiter=limiter) as attempt:
            return found.reply_to(asked, send).status, attempt.is_charged, bool(sent)
    except Unanswered:
        assert not sent
        return None


def test_requests_are_sent_at_once_until_their_model_has_answered_one():
    api, limiter = Api(), Leave()
    found = recorder()
    assert ask(found, request("r1", api), status=400, limiter=limiter) == (400, True, True)
    assert ask(found, request("r2", api), status=503, limiter=limiter) == (503, True, True)
    assert ask(found, request("r2", api), limiter=limiter) == (200, True, True)
    assert ask(found, request("r3", api), limiter=limiter) is None
    assert ask(found, request("r4", api, model="other"), limiter=limiter) == (200, True, True)
    assert ask(found, request("r2", api), limiter=limiter) == (200, True, False)
    assert ask(found, request("r2", api), owner="two") == (200, False, False)
    assert (found.sent_live, limiter.asked, [*found.wave]) == (4, 4, ["r3"])
    assert found.spent == Cost(4, 4 * 7, 0)
    assert [one.owner for one in found.take_wave()] == ["one"]
    assert found.take_wave() == []


@each(("status", "second"), [(200, None), (399, None), (400, (200, True, True))])
def test_a_stored_reply_shows_that_the_model_answers(status, second):
    api, found = Api(), recorder(("r1", StoredReply(status, "{}")))
    assert ask(found, request("r1", api)) == (status, True, False)
    assert ask(found, request("r2", api)) == second


def test_a_request_that_two_waves_left_unanswered_is_sent_at_once_unless_there_is_no_network():
    for live, lost, expected in ((True, 1, None), (True, 2, (200, True, True)), (False, 2, None)):
        api, found = Api(), recorder(("r1", StoredReply(200, "{}")), live=live)
        ask(found, request("r1", api))
        found.losses["r2"] = lost
        assert ask(found, request("r2", api)) == expected


def test_a_request_sent_at_once_keeps_what_the_server_asks_to_wait_and_no_other_header():
    headers = {"Retry-After": "7", "X-Other": "1"}
    answered = []

    def answer(sent):
        answered.append(sent)
        return httpx.Response(429, headers=headers, text='{"late": 1}')

    found = recorder()
    transport = _Transport(found, Api(), httpx.Client(transport=httpx.MockTransport(answer)))
    asked = httpx.Request("POST", f"https://api/v1{CHAT}?v=1", json={"model": "m"}, headers={"anthropic-beta": "b"})
    ids = []
    for draw in (0, 0, 1):
        recording = Recording(found)
        with recording.attempt(draw):
            response = transport.handle_request(asked)
        ids += recording.used
    assert (response.status_code, response.json(), response.headers["retry-after"]) == (429, {"late": 1}, "7")
    assert {*response.headers} == {"content-type", "content-length", "retry-after"}
    assert answered == [asked] * 3
    assert ids[0] == ids[1] != ids[2]


# Waves


def test_the_size_of_a_request_is_that_of_its_bytes():
    assert RecordedRequest("r1", None, "/x", '"да"').size == 6 + 2 + 2 + 100


@given(st.lists(st.integers(0, 30), min_size=1, max_size=10), st.integers(1, 4), st.data())
def test_batches_are_as_large_as_the_provider_allows(lengths, most, data):
    api = Api()
    requests = [request(f"r{n}", api, text="x" * length) for n, length in enumerate(lengths)]
    sums = [*accumulate(one.size for one in requests)]
    api.max_requests = most
    api.max_bytes = data.draw(st.sampled_from(sums)) + data.draw(st.integers(-1, 1))
    parts = [*_parts(requests)]
    assert [one for part in parts for one in part] == requests
    for part, following in zip(parts, [*parts[1:], []], strict=True):
        size = sum(one.size for one in part)
        assert len(part) <= most
        assert size <= api.max_bytes or len(part) == 1
        assert not following or len(part) == most or size + following[0].size > api.max_bytes


def test_a_batch_has_one_model_path_and_kind_of_headers():
    api = Api()
    kinds = [("m", CHAT, {}), ("n", CHAT, {}), ("m", "/embeddings", {}), ("m", CHAT, {"anthropic-beta": "b"})]
    requests = [
        RecordedRequest(str(n), api, path, json.dumps({"model": model}), headers)
        for n, (model, path, headers) in enumerate(kinds * 2)
    ]
    assert [[one.id for one in part] for part in _parts(requests)] == [["0", "4"], ["1", "5"], ["2", "6"], ["3", "7"]]


def waves(found, journal=None, budget=None, stopped=None):
    return Waves(found, journal, 0.0, stopped or threading.Event(), Governor(budget))


def collected(api, count=2, model="m", path=CHAT):
    found = recorder()
    found.apis = {("Provider", api.endpoint, "key"): api}
    found.wave = {f"r{n}": request(f"r{n}", api, model, path) for n in range(count)}
    return found


def test_a_wave_is_sent_only_if_all_its_requests_fit_the_budget():
    for path, budget, fits in (
        *((CHAT, Budget(calls=calls), calls >= 2) for calls in (1, 2)),
        *(("/embeddings", Budget(embeddings=texts), texts >= 2) for texts in (1, 2)),
    ):
        api = Api(replies=[(f"r{n}", StoredReply(200, '{"usage": {"input_tokens": 5}}')) for n in range(2)])
        found = collected(api, path=path)
        sending = waves(found, budget=budget)
        assert sending.send()
        assert api.submitted == ([["r0", "r1"]] if fits else [])
        assert (sending.number, sending.sent) == ((1, 2) if fits else (0, 0))
        spent = Cost(2, 10) if path == CHAT else Cost(0, 10, 2)
        assert found.spent == (spent if fits else Cost())
        if not fits:
            with pytest.raises(BudgetExceeded), Recording(found).attempt():
                raise Unanswered
        assert not sending.send()


def test_the_creation_of_a_batch_is_tried_five_times_and_a_batch_that_exists_is_not_created_again(tmp_path):
    journal = Journal(tmp_path / "run.db")
    api = Api(LOST, LOST, LOST, LOST, "batch-5")
    assert waves(collected(api), journal).send()
    assert (len(api.submitted), len(api.searched), len({*api.searched}), api.searched[0][1]) == (5, 4, 1, 2)
    api = Api(LOST, found="created")
    assert waves(collected(api), journal).send()
    assert (len(api.submitted), len(api.searched)) == (1, 1)
    assert json.loads(journal.get("batches")) == {}
    api = Api(*[LOST] * 9)
    sending = waves(collected(api), journal)
    with pytest.raises(openai.APIConnectionError):
        sending.send()
    assert (len(api.submitted), sending.under_way) == (5, [])
    (known,) = json.loads(journal.get("batches")).values()  # it may have been created all the same
    assert (known["count"], known["id"]) == (2, None)


NO_API = (
    "https://api/v1 has no batch API (HTTP {}): leave batch= out, or write the requests to a file with `rageval "
    "requests` for a server such as vLLM"
)


@each(
    ("status", "kind", "message"),
    [
        *((status, ConfigError, NO_API.format(status)) for status in (404, 405, 501)),
        (401, JudgeUnavailable, "Provider refused the batch (HTTP 401): no ***"),
        (None, ValueError, "no"),
    ],
)
def test_a_refused_batch_is_not_tried_again_and_not_remembered(tmp_path, status, kind, message):
    journal, api = Journal(tmp_path / f"{status}.db"), Api(*[refused(status) if status else ValueError("no")] * 9)
    sending = waves(collected(api), journal)
    assert str(error_of(kind, sending.send)) == message
    assert (len(api.submitted), sending.under_way, json.loads(journal.get("batches"))) == (1, [], {})


def test_an_earlier_run_is_continued_with_the_batches_that_were_created(tmp_path):
    journal = Journal(tmp_path / "run.db")
    sent = [SentBatch(key, "Provider", endpoint, 1, 5.0, id) for key, endpoint, id in SENT]
    journal.put("batches", json.dumps({batch.key: asdict(batch) for batch in sent}))
    api = Api(found="found", replies=[("r0", StoredReply(200, "{}")), ("r1", StoredReply(500, "{}"))])
    found, shown = collected(api), []
    resumed = waves(found, journal)
    resumed.show = shown.append
    resumed.resume()
    assert api.searched == [("b", 1)]
    assert [*json.loads(journal.get("batches"))] == ["c"]  # of another endpoint
    assert found.store.get("r0").status == 200
    assert found.store.get("r1") is None
    assert shown == ["earlier wave: 2 batches, 0 answered"]
    lost = collected(Api())
    journal.put("batches", json.dumps({"b": asdict(sent[1])}))
    resumed = waves(lost, journal)
    resumed.resume()  # the process ended before the batch was created
    assert (json.loads(journal.get("batches")), resumed.under_way) == ({}, [])


SENT = [("a", "https://api/v1", "id"), ("b", "https://api/v1", None), ("c", "https://other", "id")]


def test_a_batch_that_the_provider_refused_as_a_whole_is_not_waited_for_again(tmp_path):
    journal, api = Journal(tmp_path / "run.db"), Api(states=[BatchState(True, 0, 0, "too long")])
    sending = waves(collected(api), journal)
    with pytest.raises(JudgeUnavailable, match=r"^Provider refused the batch batch: too long\. Remove the cause"):
        sending.send()
    assert (json.loads(journal.get("batches")), [*sending.interruption_notes]) == ({}, [])


def test_the_progress_of_a_wave_counts_all_its_batches_and_a_request_without_a_reply_is_lost():
    api = Api("one", "two", states=[BatchState(False, 1000, 0), BatchState(True, 1, 2), BatchState(True, 1003, 1)])
    api.answers = [("r0", StoredReply(200, "{}")), ("r1", StoredReply(429, "{}"))]
    found, shown = collected(api, 5), []
    sending = waves(found)
    sending.show = shown.append
    assert sending.send()
    assert shown == ["wave 1: 2 batches, 1,001 answered, 2 failed", "wave 1: 2 batches, 1,004 answered, 3 failed"]
    assert found.losses == {"r1": 1, "r2": 1, "r3": 1, "r4": 1}
    assert (sending.number, sending.sent, found.store.get("r0").owner) == (1, 5, "")


def test_a_stopped_run_asks_for_no_second_state():
    stopped = threading.Event()
    stopped.set()
    sending = waves(collected(Api(states=[BatchState(False, 0, 0)])), stopped=stopped)
    with pytest.raises(CancelledError):
        sending.send()


def test_files_of_requests_are_numbered_from_the_path_of_the_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, names in ((Path("round.jsonl"), ["round.jsonl", "round-2.jsonl"]), (None, ["wave-1.jsonl"] * 2)):
        journal, written = Journal(tmp_path / f"{names[0]}.db"), []
        for count, own_path in ((1, path), (2 if path else 1, None)):
            with pytest.raises(WaveWritten) as caught:
                FileWaves(collected(Api(), count), journal, own_path).send()
            written += caught.value.wave.paths
            assert last_wave(journal) == caught.value.wave
        assert written == names
    assert not FileWaves(collected(Api(), 0), journal, None).send()
