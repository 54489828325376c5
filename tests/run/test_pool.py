"""The pool of model calls on an endpoint that has room for fewer, and on a model with a rate limiter of LangChain's."""

import asyncio
import re
import time

import pytest
from helpers.doors import report_by
from helpers.offline import METRICS, RICH, offline, rag_samples, says_the_same
from helpers.servers.chat import Embedder, Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from helpers.waiting import until
from langchain_core.caches import InMemoryCache
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_rageval import Judge, RetryPolicy, faithfulness
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import prepare_samples

BOTH = pytest.mark.parametrize("door", ["evaluate", "aevaluate"])


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


async def slots_after(door, samples, metric, **options):
    """Score samples through evaluate or aevaluate, 16 calls at a time; every score must be there. Return the slots."""
    job = Evaluation(metric, {"max_concurrency": 16, **options})
    source = prepare_samples(samples, job.metrics)
    rows = list(job.rows(source)) if door == "evaluate" else [row async for row in job.arows(source)]
    assert len(rows) == len(samples)
    assert all(says_the_same(score, row.sample) for row in rows for score in row.scores.values())
    return job.run.governor.limiter


class TestTooManyCalls:
    @pytest.mark.gate  # how many are rejected: `test_adaptive_limiter.py`
    @pytest.mark.parametrize(
        ("door", "status", "after"),
        [("evaluate", 429, None), ("evaluate", 429, "0.2"), ("aevaluate", 429, None), ("aevaluate", 503, "0.2")],
    )
    async def test_a_server_with_four_slots_answers_every_call_in_the_end(self, chat_openai, door, status, after):
        with Narrow(4, status=status, after=after, latency=0.15) as server:
            slots = await slots_after(door, rag_samples(60), asking(chat_openai(server)))
        assert server.calls == 120
        assert server.rejections
        assert slots.lowest_size < 16

    @BOTH
    async def test_rejected_embeddings_do_not_change_the_slots(self, chat_openai, openai_embeddings, door):
        embedder = Embedder(faults=Faults.script(["429"] * 3))
        with OpenAIServer(offline, embedder=embedder) as server:
            metric = METRICS["answer_similarity"](None, openai_embeddings(server))
            slots = await slots_after(door, RICH, metric, retry=RetryPolicy(initial=0.01))
        assert embedder.faulted == {"429": 3}
        assert (slots.lowest_size, slots.size) == (16, 16)


@BOTH
async def test_the_report_notes_rejected_calls(chat_openai, door):
    with Narrow(1, after="0.1", latency=0.05) as server:
        report = await report_by(door, rag_samples(20), asking(chat_openai(server)))
    (note,) = (note for note in report.notes if note.startswith("The endpoint rejected calls"))
    assert re.fullmatch(r"The endpoint rejected calls: between \d+ and 16 were allowed at a time\.", note)


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


async def scored(door, samples, metric, **options):
    """The scores by one of the four doors."""
    if door == "invoke":
        return [metric.invoke(sample) for sample in samples]
    if door == "ainvoke":
        return [await metric.ainvoke(sample) for sample in samples]
    report = await report_by(door, samples, metric, **options)
    return [score for row in report.rows for score in row.scores.values()]


DOORS = pytest.mark.parametrize("door", ["invoke", "ainvoke", "evaluate", "aevaluate"])


class TestRateLimiter:
    @pytest.mark.gate  # each waits for longer than a timeout that no call reaches
    @pytest.mark.parametrize("max_retries", [0, 2])
    @pytest.mark.parametrize("door", ["evaluate", "aevaluate"])
    async def test_waiting_for_the_limiter_is_no_time_of_the_model(self, endpoint, door, max_retries):
        server, limiter = endpoint.server(offline), Leave()
        metric = asking(endpoint.model(server, rate_limiter=limiter, max_retries=max_retries))
        first, second = rag_samples(2)
        await scored(door, [first], metric)  # a client's first call takes longer
        limiter.seconds = 1.6
        (score,) = await scored(door, [second], metric, timeout=1.5, retry=RetryPolicy(attempts=1))
        assert says_the_same(score, second)
        assert score.usage.seconds < 1.6
        assert limiter.given == server.calls == 4

    @DOORS
    async def test_each_draw_of_a_verdict_and_each_try_asks_for_leave(self, openai_server, chat_openai, door):
        server, limiter = openai_server(offline, faults=Faults.script([None, "malformed"])), Leave()
        judge = Judge(chat_openai(server, rate_limiter=limiter), mode="json_schema", draws=3)
        await scored(door, rag_samples(1), faithfulness(judge))
        assert limiter.given == server.calls == 5

    @DOORS
    async def test_a_reply_from_the_models_cache_needs_no_leave(self, openai_server, chat_openai, door):
        server, limiter = openai_server(offline), Leave()
        metric = asking(chat_openai(server, rate_limiter=limiter, cache=InMemoryCache()))
        for _ in range(2):
            await scored(door, rag_samples(1), metric)
        assert limiter.given == server.calls == 2
