"""Model calls, embeddings and cross-encoders of whole evaluations: what is sent, when, by whom, and what comes of it.

Counts are those of the servers.
"""

import asyncio
import json
import re
import threading
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from helpers.doors import report_by, scores_by
from helpers.each import crossed, each
from helpers.offline import EMBEDDED, METRICS, RICH, offline, rag_samples, says_the_same
from helpers.servers.chat import Embedder, Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from helpers.waiting import PATIENCE, until
from langchain_core.caches import InMemoryCache
from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_rageval import (
    HashingEmbeddings,
    Judge,
    OfflineJudge,
    RetryPolicy,
    Sample,
    aevaluate,
    answer_similarity,
    evaluate,
    faithfulness,
)
from langchain_rageval.metrics.structure import stages_of
from langchain_rageval.run.embedding import BATCH_SIZE

# The pool of calls, on an endpoint with room for fewer, and on a model with a rate limiter of LangChain


class Narrow(OpenAIServer):
    """Has room for some calls at a time and rejects the others.

    It answers no call before it has rejected one, however slowly the calls come.
    """

    def __init__(self, room, *, status=429, after=None, **options):
        super().__init__(offline, **options)
        self.room, self.status, self.after = room, status, after
        self.rejections = self.inside = 0

    def chat(self, received):
        with self._lock:
            if self.inside >= self.room:
                self.rejections += 1
                raise Refused(self.status, "Too many calls", {"Retry-After": self.after} if self.after else {})
            self.inside += 1
        try:
            until(lambda: self.rejections)
            return super().chat(received)
        finally:
            with self._lock:
                self.inside -= 1


def asking(model):
    """Without looking for a rung first, so that all calls come at once."""
    return faithfulness(Judge(model, mode="json_schema"))


REJECTED = re.compile(r"The endpoint rejected calls: between \d+ and 16 were allowed at a time\.")


@pytest.mark.parametrize(
    ("door", "room", "status", "after", "count"),
    [
        *(pytest.param(door, 4, 429, None, 60, marks=pytest.mark.gate) for door in ("evaluate", "aevaluate")),
        *(("evaluate", 1, 429, "0.1", 20), ("aevaluate", 1, 503, "0.1", 20)),
    ],
)
async def test_a_server_with_few_slots_answers_every_call_in_the_end(chat_openai, door, room, status, after, count):
    """How many are rejected: `test_adaptive_limiter.py`."""
    with Narrow(room, status=status, after=after, latency=0.05) as server:
        report = await report_by(door, rag_samples(count), asking(chat_openai(server)), max_concurrency=16)
    assert len(report.rows) == count
    assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)
    assert server.calls == 2 * count
    assert [bool(REJECTED.fullmatch(note)) for note in report.notes if "rejected" in note] == [True]


class Leave(BaseRateLimiter):
    """Gives leave after a while, and counts how often."""

    def __init__(self, seconds=0.0):
        self.seconds, self.given = seconds, 0

    def acquire(self, *, blocking=True):
        self.given += 1
        time.sleep(self.seconds)
        return True

    async def aacquire(self, *, blocking=True):
        self.given += 1
        await asyncio.sleep(self.seconds)
        return True


DOORS = pytest.mark.parametrize("door", ["suite.invoke", "suite.ainvoke", "evaluate", "aevaluate"])


class TestRateLimiter:
    @pytest.mark.gate  # each waits for longer than a timeout that no call reaches
    @pytest.mark.parametrize("max_retries", [0, 2])
    @pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
    async def test_waiting_for_the_limiter_is_no_time_of_the_model(self, endpoint, door, max_retries):
        server, limiter = endpoint.server(offline), Leave()
        metric = asking(endpoint.model(server, rate_limiter=limiter, max_retries=max_retries))
        first, second = rag_samples(2)
        await report_by(door, [first], metric)  # a client's first call takes longer
        limiter.seconds = 1.6
        report = await report_by(door, [second], metric, timeout=1.5, retry=RetryPolicy(attempts=1))
        score = report.rows[0].scores["faithfulness"]
        assert says_the_same(score, second)
        assert score.usage.seconds < 1.6
        assert limiter.given == server.calls == 4

    @DOORS
    async def test_each_draw_of_a_verdict_and_each_try_asks_for_leave(self, openai_server, chat_openai, door):
        server, limiter = openai_server(offline, faults=Faults.script([None, "malformed"])), Leave()
        judge = Judge(chat_openai(server, rate_limiter=limiter), mode="json_schema", draws=3)
        await scores_by(door, rag_samples(1), [faithfulness(judge)])
        assert limiter.given == server.calls == 5

    @DOORS
    async def test_a_reply_from_the_models_cache_needs_no_leave(self, openai_server, chat_openai, door):
        server, limiter = openai_server(offline), Leave()
        metric = asking(chat_openai(server, rate_limiter=limiter, cache=InMemoryCache()))
        for _ in range(2):
            await scores_by(door, rag_samples(1), [metric])
        assert limiter.given == server.calls == 2


# Embeddings and cross-encoders


JUDGE = OfflineJudge()
ONCE = RetryPolicy(attempts=1)
QUESTION = "What stands in the line?"
REFERENCES = ["A word stands in the line.", "In the line there is a word."]


def about(number, **more):
    """A sample that shares question and references with the others."""
    answer = f"The line {number} holds a word. It is word {number}."
    return Sample(**{"question": QUESTION, "answer": answer, "references": REFERENCES, **more})


def metrics_with(embeddings, names=EMBEDDED):
    return [METRICS[name](JUDGE, embeddings) for name in names]


@pytest.fixture(params=["evaluate", "aevaluate"])
def report_of(request):
    """Both doors in turn: `report = await report_of(samples, metrics, **options)`."""
    return partial(report_by, request.param, retry=ONCE)


def embedded_in(report):
    return sum(score.usage.embedded for row in report.rows for score in row.scores.values())


def check_scores(report):
    assert report.failures() == []
    assert all(says_the_same(score, row.sample) for row in report.rows for score in row.scores.values())


class TestBatches:
    @crossed("report_of")
    async def test_each_text_of_a_run_is_embedded_once_and_charged_once(self, endpoint, report_of):
        server = endpoint.server(offline)
        samples = [about(number) for number in range(30)]
        report = await report_of(samples, metrics_with(endpoint.embeddings(server)))
        check_scores(report)
        sent = Counter(server.embedder.texts)
        assert set(sent.values()) == {1}
        # the question, two references; of each sample the answer and two regenerated questions
        assert len(sent) == 1 + 2 + 30 * 3
        assert embedded_in(report) == len(sent)
        assert max(map(len, server.embedder.batches)) <= BATCH_SIZE


class Noted(Embeddings):
    """Notes the threads of its sync calls and the loops of its async ones."""

    embed_query = None

    def __init__(self):
        self.seen = set()

    def embed_documents(self, texts):
        self.seen.add(threading.current_thread().name)
        return HashingEmbeddings().embed_documents(texts)

    async def aembed_documents(self, texts):
        self.seen.add(asyncio.get_running_loop())
        return HashingEmbeddings().embed_documents(texts)


async def test_sync_runs_embed_in_threads_also_beside_a_loop_and_async_ones_on_the_callers_loop_alone():
    sync, on_loop = Noted(), Noted()
    check_scores(evaluate(RICH, metrics_with(sync), progress=False))
    check_scores(await aevaluate(RICH, metrics_with(on_loop), progress=False))
    assert (sync.seen, on_loop.seen) == ({"rageval"}, {asyncio.get_running_loop()})


class TestSecrets:
    @crossed("report_of")
    async def test_a_key_of_the_embeddings_that_the_server_repeats_is_removed_from_failures(
        self, endpoint, report_of, monkeypatch
    ):
        """And so from all that is made of them: tests/evaluation/test_hostile.py."""
        secret = "sk-very-secret-1234" if endpoint.name == "openai" else "dmVyeS1zZWNyZXQ6MTIzNA=="
        options = {"api_key": secret} if endpoint.name == "openai" else {"credentials": secret}
        server = endpoint.server(offline, embedder=Embedder(faults=Faults.rates(seed=1, unauthorized=1.0)))
        monkeypatch.setattr(server, "error_body", lambda status, said: {"error": {"message": f"{said} ({secret})"}})
        metrics = metrics_with(endpoint.embeddings(server, **options))
        report = await report_of(RICH, metrics)
        failed = [score.failure for row in report.rows for score in row.scores.values() if score.failure]
        assert len(failed) == len(EMBEDDED) * len(RICH)
        assert all("***" in failure.message for failure in failed)
        instruments = [stage.instrument for metric in metrics for stage in stages_of(metric)]
        shown = str(report.rows) + repr([metric.steps for metric in metrics]) + json.dumps(instruments, default=repr)
        assert not [text for text in (secret, "loopback-token") if text in shown]


class Scorer(BaseCrossEncoder):
    """Scores pairs by a function of them all; notes the threads."""

    def __init__(self, scores):
        self.scores = scores
        self.threads = []

    def score(self, text_pairs):
        self.threads.append(threading.current_thread())
        return self.scores(text_pairs)


class TestCrossEncoder:
    @each(
        ("scores", "error", "told"),
        [
            ([1.5, 0.2], "ConfigError", 'say scale="sigmoid"'),  # more numbers: tests/steps/test_measure_similarity.py
            ([0.5] * 3, "ModelOutputError", "returned 3 scores for 2 pairs"),
            (None, "ModelOutputError", "no list of scores"),
            (["high", 0.2], "ModelOutputError", "'high'"),
            ([[0.1, 0.9], [0.2, 0.8]], "ModelOutputError", "no list of scores"),
            ([[0.1], [0.2, 0.8]], "ModelOutputError", "no numbers"),
            (RuntimeError("out of memory"), "RuntimeError", "out of memory"),
        ],
    )
    async def test_scores_that_mean_nothing_are_failures(self, report_of, scores, error, told):
        def scored(_pairs):
            if isinstance(scores, Exception):
                raise scores
            return scores

        report = await report_of([RICH[0]], answer_similarity(Scorer(scored)))
        failure = report.rows[0].scores["answer_similarity"].failure
        assert (failure.error, failure.step) == (error, "measure_similarity")
        assert told in failure.message

    async def test_scores_of_numpy_are_taken(self, report_of):
        metric = answer_similarity(Scorer(lambda _: np.array([0.25, 0.5], dtype=np.float32)))
        (row,) = (await report_of([RICH[0]], metric)).rows
        assert [finding.verdict for finding in row.scores["answer_similarity"].findings] == ["0.25", "0.5"]

    async def test_one_that_takes_too_long_is_left_behind_and_counted(self, report_of):
        hang = threading.Event()
        metric = answer_similarity(Scorer(lambda _: hang.wait(PATIENCE)))
        report = await report_of(RICH, metric, timeout=0.2)
        assert [row.scores["answer_similarity"].failure.error for row in report.rows] == ["TimeoutError"] * 2
        assert "2 calls took longer than 0.2 s and were abandoned." in report.notes
        hang.set()
