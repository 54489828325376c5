"""Tests of the servers with real clients, and of what the clients observe for each fault."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from gigachat import exceptions as gigachat_errors
from helpers.each import each
from helpers.servers.chat import ChatRequest, Embedder, Faults
from helpers.servers.endpoints import TOKEN, OpenAIServer
from helpers.servers.prefix_cache import PrefixCache, chat_prompt
from helpers.waiting import PATIENCE, until
from langchain_gigachat import GigaChatEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel


class Names(BaseModel):
    """Names in a text."""

    names: list[str]


REPLY = {"names": ["Анна", "Bob"]}
NAMES = Names(**REPLY)
QUESTION = [("system", "be brief"), ("human", "who?")]


def reply(request: ChatRequest) -> dict[str, Any]:
    return REPLY


class TestOpenAIServer:
    async def test_answers_sync_and_async(self, openai_server, chat_openai):
        server = openai_server(reply)
        model = chat_openai(server)
        for message in (model.invoke(QUESTION), await model.ainvoke(QUESTION)):
            assert json.loads(message.content) == REPLY
            assert message.usage_metadata["input_tokens"] == len("be briefwho?") // 4
        assert server.calls == 2
        assert [received.path for received in server.requests] == ["/v1/chat/completions"] * 2
        assert server.requests[0].headers["authorization"] == "Bearer sk-test"

    @pytest.mark.parametrize(
        ("method", "schema"), [("json_schema", "Names"), ("function_calling", "Names"), ("json_mode", None)]
    )
    async def test_answers_in_the_shape_that_was_asked_for(self, openai_server, method, schema, chat_openai):
        seen = []
        server = openai_server(lambda request: seen.append(request) or REPLY)
        model = chat_openai(server).with_structured_output(Names, method=method)
        assert model.invoke(QUESTION) == await model.ainvoke(QUESTION) == NAMES
        assert {(request.rung, request.schema_title) for request in seen} == {(method, schema)}

    def test_finds_schema_and_inputs_in_the_first_user_message(self, openai_server, chat_openai):
        seen = []
        server = openai_server(lambda request: seen.append(request) or "fine")
        schema = json.dumps(Names.model_json_schema())
        text = f'[1]\n[1.1] a {{brace}}\n\nSchema: {schema}\n\n```json\n{{"answer": "a ``` {{}} b"}}\n```'
        assert chat_openai(server).invoke(text).content == "fine"
        assert seen[0].schema == Names.model_json_schema()
        assert (seen[0].rung, seen[0].schema_title, seen[0].inputs) == ("prompt", "Names", {"answer": "a ``` {} b"})

    @pytest.mark.parametrize("method", ["json_schema", "function_calling", "json_mode"])
    def test_refuses_a_rung_that_it_lacks(self, openai_server, method, chat_openai):
        server = openai_server(reply, rungs={"prompt"})
        with pytest.raises(openai.BadRequestError, match=f"{method} is not supported"):
            chat_openai(server).with_structured_output(Names, method=method).invoke(QUESTION)
        assert json.loads(chat_openai(server).invoke(QUESTION).content) == REPLY
        assert server.refused == {method: 1}

    def test_one_user_message_allows_a_dialogue_and_refuses_the_rest(self, openai_server, chat_openai):
        server = openai_server(reply, one_user_message=True)
        model = chat_openai(server)
        model.invoke(QUESTION)
        model.invoke([*QUESTION, ("ai", "{"), ("human", "again")])
        for refused in ([*QUESTION, ("human", "two")], [("human", "who?"), ("system", "late")]):
            with pytest.raises(openai.BadRequestError, match="must alternate"):
                model.invoke(refused)
        assert server.refused == {"one_user_message": 2}

    def test_refuse_system_answers_without_a_system_message(self, openai_server, chat_openai):
        model = chat_openai(openai_server(reply, refuse_system=True))
        with pytest.raises(openai.BadRequestError, match="System role not supported"):
            model.invoke(QUESTION)
        assert model.invoke("who?").content

    @pytest.mark.parametrize(("options", "encoding"), [({}, "base64"), ({"encoding_format": "float"}, "float")])
    def test_embeds_equal_texts_equally(self, openai_server, options, encoding):
        server = openai_server(reply)
        with openai.DefaultHttpxClient() as client:
            embeddings = OpenAIEmbeddings(
                base_url=server.url + "/v1",
                api_key="sk-test",
                model="e",
                check_embedding_ctx_length=False,
                model_kwargs=options,
                http_client=client,
            )
            first, second, other = embeddings.embed_documents(["Где Анна?", "где анна?", "nothing alike"])
        assert first == second != other
        assert sum(number * number for number in first) == pytest.approx(1, abs=1e-6)
        assert (server.calls, server.requests[0].body["encoding_format"]) == (0, encoding)

    def test_unknown_paths_are_not_found(self, openai_server):
        assert httpx.post(openai_server(reply).url + "/chat/completions", json={}).status_code == 404


class TestEmbeddingFaults:
    """Refusals of the embeddings endpoint; its faults are in tests/evaluation/test_faults.py."""

    def test_a_text_that_is_refused(self, openai_server, openai_embeddings):
        embedder = Embedder(refuse=lambda text: text == "bad")
        embeddings = openai_embeddings(openai_server(reply, embedder=embedder))
        with pytest.raises(openai.BadRequestError):
            embeddings.embed_documents(["good", "bad"])
        assert len(embeddings.embed_documents(["good"])) == 1
        assert embedder.refused == 1


class TestFaults:
    """Fault plans; what scores make of each fault is in tests/evaluation/test_faults.py."""

    def test_unauthorized_repeats_the_secret(self, openai_server, chat_openai):
        server = openai_server(reply, faults=Faults.script(["unauthorized"]))
        with pytest.raises(openai.AuthenticationError, match="Bearer sk-test"):
            chat_openai(server).invoke(QUESTION)

    def test_retry_after_is_sent(self, openai_server, chat_openai):
        server = openai_server(reply, faults=Faults.script(["429"], retry_after="7"))
        with pytest.raises(openai.RateLimitError) as caught:
            chat_openai(server).invoke(QUESTION)
        assert caught.value.response.headers["retry-after"] == "7"

    def test_wrong_type_without_a_list_of_strings_wraps_the_object(self, openai_server, chat_openai):
        server = openai_server(lambda request: {"n": 1}, faults=Faults.script(["wrong_type"]))
        assert json.loads(chat_openai(server).invoke(QUESTION).content) == [{"n": 1}]

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


class TestGigaChatServer:
    async def test_answers_sync_and_async(self, gigachat_server, gigachat):
        server = gigachat_server(reply)
        model = gigachat(server)
        for message in (model.invoke(QUESTION), await model.ainvoke(QUESTION)):
            assert json.loads(message.content) == REPLY
            assert message.usage_metadata["input_tokens"] == len("be briefwho?") // 4
        assert server.requests[0].body == {"scope": "GIGACHAT_API_PERS"}
        assert server.calls == 2

    @pytest.mark.parametrize("method", ["json_schema", "function_calling"])
    async def test_answers_in_the_shape_that_was_asked_for(self, gigachat_server, method, gigachat):
        seen = []
        server = gigachat_server(lambda request: seen.append(request) or REPLY)
        model = gigachat(server).with_structured_output(Names, method=method)
        assert model.invoke(QUESTION) == await model.ainvoke(QUESTION) == NAMES
        assert {(request.rung, request.schema_title) for request in seen} == {(method, "Names")}

    def test_refuses_a_rung_that_it_lacks(self, gigachat_server, gigachat):
        server = gigachat_server(reply, rungs={"prompt"})
        with pytest.raises(gigachat_errors.BadRequestError):
            gigachat(server).with_structured_output(Names, method="json_schema").invoke(QUESTION)
        assert server.refused == {"json_schema": 1}

    def test_refuses_a_token_that_it_did_not_give(self, gigachat_server, gigachat):
        server = gigachat_server(reply)
        with pytest.raises(gigachat_errors.AuthenticationError):
            gigachat(server, credentials=None, auth_url=None, access_token="stolen").invoke(QUESTION)
        assert (server.calls, server.refused) == (0, {"unauthorized": 1})

    def test_embeds_and_counts(self, gigachat_server, gigachat):
        server = gigachat_server(reply)
        model = gigachat(server)
        assert model.tokens_count(["abcdefgh"], "GigaChat-2")[0].tokens == 2
        embeddings = GigaChatEmbeddings(base_url=server.url, access_token=TOKEN)
        first, second = embeddings.embed_documents(["Где Анна?", "где анна?"])
        embeddings._client.close()
        assert first == second
        assert server.calls == 0


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

    def test_latency_may_depend_on_the_request(self, openai_server, chat_openai):
        server = openai_server(reply, latency=lambda request: 0.2 if len(request.messages) > 1 else 0.0)
        before = time.monotonic()
        chat_openai(server).invoke(QUESTION)
        assert time.monotonic() - before >= 0.2

    def test_many_clients_are_served_at_once(self, openai_server, chat_openai):
        together = threading.Barrier(16)

        def meet(request):
            together.wait(PATIENCE)
            return reply(request)

        server = openai_server(meet)
        model = chat_openai(server)
        with ThreadPoolExecutor(16) as pool:
            assert len(list(pool.map(model.invoke, [QUESTION] * 16))) == 16
        assert server.calls == len(server.requests) == 16

    def test_users_settings_do_not_reach_the_tests(self, openai_server):
        with pytest.raises(openai.OpenAIError, match="OPENAI_API_KEY"):
            ChatOpenAI(base_url=openai_server(reply).url, model="m")


BLOCK = 64  # bytes
PAIRS = [digit * 2 * BLOCK for digit in "1234"]
LONG = "".join(f"{number:04}" for number in range(1, 101))  # 100 tokens: six full blocks, and four tokens


@each(
    "blocks, prompts, served",
    [
        (100, [LONG], [0]),
        (100, [LONG, LONG], [0, 96]),
        (100, [LONG, "xxxx" + LONG[4:]], [0, 0]),
        (100, [LONG[: 2 * BLOCK + 20] + "a" * 200, LONG[: 2 * BLOCK + 20] + "b" * 200], [0, 32]),
        (100, ["a" * BLOCK + LONG, "b" * BLOCK + LONG], [0, 0]),
        (100, ["a" * (BLOCK - 1)] * 2, [0, 0]),
        (6, [*PAIRS[:3], PAIRS[0], PAIRS[3], PAIRS[0], PAIRS[2], PAIRS[1]], [0, 0, 0, 32, 0, 32, 32, 0]),
        (6, [LONG, "x" * 2 * BLOCK, LONG], [0, 0, 4 * 16]),
        (2, [LONG, LONG], [0, 32]),
    ],
    ids=[
        "a new prompt",
        "the same prompt: all full blocks",
        "another first token",
        "a shared head: up to its last full block",
        "equal blocks after different heads",
        "shorter than a block",
        "the blocks longest unused are evicted first",
        "the end of a prompt is evicted before its head",
        "a prompt larger than the cache keeps its head",
    ],
)
def test_shared_full_blocks_at_the_start_of_a_prompt_are_served(blocks, prompts, served):
    cache = PrefixCache(blocks)
    assert [cache.read(prompt).served for prompt in prompts] == served


@each(("text", "tokens"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("баня", 2)])
def test_a_token_is_four_bytes(text, tokens):
    reading = PrefixCache(1).read(text)
    assert (reading.prompt, reading.unserved) == (tokens, tokens)


def test_messages_are_rendered_with_their_roles():
    messages = [{"role": "system", "content": "Judge."}, {"role": "user", "content": "This."}]
    assert chat_prompt(messages) == (
        "<|im_start|>system\nJudge.<|im_end|>\n<|im_start|>user\nThis.<|im_end|>\n<|im_start|>assistant\n"
    )
