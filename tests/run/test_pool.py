"""The pool of model calls on an endpoint that has room for fewer, and on a model with a rate limiter of LangChain's."""

import asyncio
import re
import time

import pytest
from helpers.doors import report_by, scores_by
from helpers.offline import offline, rag_samples, says_the_same
from helpers.servers.chat import Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.loopback import Refused
from helpers.waiting import until
from langchain_core.caches import InMemoryCache
from langchain_core.rate_limiters import BaseRateLimiter

from langchain_rageval import Judge, RetryPolicy, faithfulness


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
