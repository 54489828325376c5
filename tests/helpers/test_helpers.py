"""Tests of the helpers: rules over lists of cases, and the model servers."""

import asyncio
import inspect
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest
from helpers.each import each
from helpers.servers.chat import ChatRequest, Faults
from helpers.servers.endpoints import OpenAIServer
from helpers.servers.prefix_cache import PrefixCache
from helpers.waiting import PATIENCE, until
from langchain_openai import ChatOpenAI

# Rules over lists of cases


def test_every_case_that_fails_is_named():
    @each("number", [1, 2, 3, 4])
    def is_odd(number):
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"(?s)^2 of 4 cases failed\n2: AssertionError: even.*\n4: ") as failure:
        is_odd()
    assert isinstance(failure.value.__cause__, AssertionError)


def test_pairs_ids_fixtures_and_methods_work_in_an_async_test():
    seen = []

    class Cases:
        @each("letter, place", [("a", 0), ("b", 1)], ids=["first", "second"])
        @each("door", ["sync", "async"])
        async def run(self, fixture, letter, place, door):
            seen.append((fixture, letter, place, door))
            if (letter, door) == ("b", "async"):
                pytest.fail("closed")

    assert list(inspect.signature(Cases.run).parameters) == ["self", "fixture"]
    with pytest.raises(AssertionError, match=r"(?s)second: AssertionError: 1 of 2 cases failed\nasync: Failed: closed"):
        asyncio.run(Cases().run(fixture="f"))
    assert seen == [("f", *case) for case in (("a", 0, "sync"), ("a", 0, "async"), ("b", 1, "sync"), ("b", 1, "async"))]


def test_a_skip_ends_the_test_and_no_case_is_an_error():
    @each("case", ["absent", "never"])
    def skipped(case):
        pytest.skip(case)

    with pytest.raises(pytest.skip.Exception, match="absent"):
        skipped()
    with pytest.raises(AssertionError, match="no case for name"):
        each("name", [])


# Model servers


QUESTION = [("system", "be brief"), ("human", "who?")]


def reply(request: ChatRequest) -> dict[str, Any]:
    return {"names": ["Анна", "Bob"]}


def test_one_user_message_allows_a_dialogue_and_refuses_the_rest(openai_server, chat_openai):
    server = openai_server(reply, one_user_message=True)
    model = chat_openai(server)
    model.invoke(QUESTION)
    model.invoke([*QUESTION, ("ai", "{"), ("human", "again")])
    for refused in ([*QUESTION, ("human", "two")], [("human", "who?"), ("system", "late")]):
        with pytest.raises(openai.BadRequestError, match="must alternate"):
            model.invoke(refused)
    assert server.refused == {"one_user_message": 2}


class TestFaults:
    """Fault plans; what scores make of each fault is in tests/evaluation/test_endpoints.py."""

    def test_rates_depend_on_seed_and_body_and_repeat_only(self):
        bodies = [b"%d" % (number // 2) for number in range(2000)]
        one, other = (Faults.rates(seed=1, **{"429": 0.1, "reset": 0.05}) for _ in range(2))
        drawn = [one.draw(body) for body in bodies]
        backwards = [other.draw(body) for body in reversed(bodies)]
        assert sorted(map(str, drawn)) == sorted(map(str, backwards))
        assert drawn.count("429") == pytest.approx(200, abs=50)
        assert drawn[::2] != drawn[1::2]

    @pytest.mark.parametrize("build", [lambda: Faults.script(["42"]), lambda: Faults.rates(seed=1, malfromed=0.1)])
    def test_a_misspelled_fault_is_an_error(self, build):
        with pytest.raises(ValueError, match="unknown faults"):
            build()


class TestLoopback:
    def test_stops_at_once_while_a_request_hangs(self, chat_openai):
        with ThreadPoolExecutor(1) as pool:
            with OpenAIServer(reply, faults=Faults.script(["hang"], hang_seconds=10 * PATIENCE)) as server:
                hanging = pool.submit(chat_openai(server).invoke, QUESTION)
                until(lambda: server.faulted)
                before = time.monotonic()
            assert time.monotonic() - before < PATIENCE
            assert isinstance(hanging.exception(PATIENCE), openai.APIConnectionError)

    def test_an_assertion_inside_the_reply_function_reaches_the_test(self, chat_openai):
        def fails(request):
            raise AssertionError("not what was expected")

        server = OpenAIServer(fails).start()
        with pytest.raises(openai.BadRequestError):
            chat_openai(server).invoke(QUESTION)
        with pytest.raises(AssertionError, match="not what was expected"):
            server.stop()

    def test_users_settings_do_not_reach_the_tests(self, openai_server):
        with pytest.raises(openai.OpenAIError, match="OPENAI_API_KEY"):
            ChatOpenAI(base_url=openai_server(reply).url, model="m")


BLOCK = 64  # bytes
PAIRS = [digit * 2 * BLOCK for digit in "1234"]
LONG = "".join(f"{number:04}" for number in range(1, 101))  # 100 tokens: six full blocks, and four tokens


EVICTED = [*PAIRS[:3], PAIRS[0], PAIRS[3], PAIRS[0], PAIRS[2], PAIRS[1]]
CACHED = {  # number of blocks, prompts, and tokens of each that are served
    "a new prompt": (100, [LONG], [0]),
    "the same prompt: all full blocks": (100, [LONG, LONG], [0, 96]),
    "another first token": (100, [LONG, "xxxx" + LONG[4:]], [0, 0]),
    "a shared head: up to its last full block": (100, [LONG[: 2 * BLOCK + 20] + end * 200 for end in "ab"], [0, 32]),
    "equal blocks after different heads": (100, ["a" * BLOCK + LONG, "b" * BLOCK + LONG], [0, 0]),
    "shorter than a block": (100, ["a" * (BLOCK - 1)] * 2, [0, 0]),
    "the blocks longest unused are evicted first": (6, EVICTED, [0, 0, 0, 32, 0, 32, 32, 0]),
    "the end of a prompt is evicted before its head": (6, [LONG, "x" * 2 * BLOCK, LONG], [0, 0, 4 * 16]),
    "a prompt larger than the cache keeps its head": (2, [LONG, LONG], [0, 32]),
}


@each("blocks, prompts, served", CACHED.values(), ids=CACHED)
def test_shared_full_blocks_at_the_start_of_a_prompt_are_served(blocks, prompts, served):
    cache = PrefixCache(blocks)
    assert [cache.read(prompt).served for prompt in prompts] == served
