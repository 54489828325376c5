"""Tests of the servers with real clients, and of what the clients observe for each fault."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from typing import Any

import httpx
import openai
import pytest
from gigachat import exceptions as gigachat_errors
from helpers.servers.chat import EMBEDDING_FAULTS, FAULTS, ChatRequest, Embedder, Faults
from helpers.servers.endpoints import TOKEN, OpenAIServer
from helpers.waiting import PATIENCE, until
from langchain_core.exceptions import ModelConnectionError, ModelRateLimitError, OutputParserException
from langchain_gigachat import GigaChatEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, ValidationError

from langchain_rageval import HashingEmbeddings


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


OPENAI_FAULTS = {
    "429": ("json_schema", ModelRateLimitError),
    "500": ("json_schema", openai.InternalServerError),
    "unauthorized": ("json_schema", openai.AuthenticationError),
    "reset": ("json_schema", ModelConnectionError),
    "hang": ("json_schema", openai.APITimeoutError),
    "html": ("json_schema", AttributeError),
    "refused_format": ("json_schema", openai.BadRequestError),
    "truncated": ("json_schema", openai.LengthFinishReasonError),
    "truncated_silent": ("json_schema", ValidationError),
    "prose": ("json_schema", ValidationError),
    "malformed": ("json_mode", OutputParserException),
    "wrong_type": ("function_calling", ValidationError),
    "text_instead_of_tool": ("function_calling", None),
}

# The parser behind langchain-gigachat closes what was cut off and takes it for the whole answer.
CUT = Names(names=["А"])

GIGACHAT_FAULTS = {
    "429": ("json_schema", gigachat_errors.RateLimitError),
    "500": ("json_schema", gigachat_errors.ServerError),
    "unauthorized": ("json_schema", gigachat_errors.AuthenticationError),
    "reset": ("json_schema", httpx.ReadError),
    "hang": ("json_schema", httpx.ReadTimeout),
    "html": ("json_schema", json.JSONDecodeError),
    "refused_format": ("function_calling", gigachat_errors.BadRequestError),
    "truncated": ("json_schema", CUT),
    "truncated_silent": ("json_schema", CUT),
    "prose": ("function_calling", None),
    "malformed": ("json_schema", OutputParserException),
    "wrong_type": ("function_calling", ValidationError),
    "text_instead_of_tool": ("function_calling", None),
}


# What the clients for embeddings make of a fault: an error, or what they return for two texts.
OPENAI_EMBEDDING_FAULTS = {
    "429": openai.RateLimitError,
    "500": openai.InternalServerError,
    "unauthorized": openai.AuthenticationError,
    "reset": openai.APIConnectionError,
    "hang": openai.APITimeoutError,
    "html": AttributeError,
    "misshapen": ValueError,
    "fewer": 1,
    "zero": 2,
    "nan": 2,
}
GIGACHAT_EMBEDDING_FAULTS = {
    "429": gigachat_errors.RateLimitError,
    "500": gigachat_errors.ServerError,
    "unauthorized": gigachat_errors.AuthenticationError,
    "reset": httpx.ReadError,
    "hang": httpx.ReadTimeout,
    "html": json.JSONDecodeError,
    "misshapen": ValidationError,
    "fewer": 1,
    "zero": 2,
    "nan": 2,
}


class TestEmbeddingFaults:
    """One fault, then good vectors."""

    def test_every_fault_is_tried(self):
        assert OPENAI_EMBEDDING_FAULTS.keys() == GIGACHAT_EMBEDDING_FAULTS.keys() == EMBEDDING_FAULTS

    @pytest.mark.gate
    @pytest.mark.parametrize("fault", OPENAI_EMBEDDING_FAULTS)
    def test_what_openai_embeddings_make_of_it(self, openai_server, openai_embeddings, fault):
        embedder = Embedder(faults=Faults.script([fault], hang_seconds=30))
        embeddings = openai_embeddings(openai_server(reply, embedder=embedder), timeout=2 if fault == "hang" else 10)
        self.check(embedder, embeddings, fault, OPENAI_EMBEDDING_FAULTS[fault])

    @pytest.mark.gate
    @pytest.mark.parametrize("fault", GIGACHAT_EMBEDDING_FAULTS)
    def test_what_gigachat_embeddings_make_of_it(self, gigachat_server, gigachat_embeddings, fault):
        again = [fault] if fault == "unauthorized" else []  # the client fetches another token and asks again by itself
        embedder = Embedder(faults=Faults.script([fault, *again], hang_seconds=30))
        server = gigachat_server(reply, embedder=embedder)
        embeddings = gigachat_embeddings(server, timeout=2 if fault == "hang" else 10)
        self.check(embedder, embeddings, fault, GIGACHAT_EMBEDDING_FAULTS[fault])

    def check(self, embedder, embeddings, fault, outcome):
        if isinstance(outcome, int):
            vectors = embeddings.embed_documents(["one", "two"])
            assert len(vectors) == outcome
            if outcome == 2:
                assert not any(vectors[0]) if fault == "zero" else isnan(vectors[0][0])
        else:
            with pytest.raises(outcome):
                embeddings.embed_documents(["one", "two"])
        vectors = embeddings.embed_documents(["one", "two"])
        assert vectors == [
            pytest.approx(vector, abs=1e-6) for vector in HashingEmbeddings().embed_documents(["one", "two"])
        ]
        assert embedder.faulted.keys() == {fault}
        assert set(embedder.texts) == {"one", "two"}

    def test_a_text_that_is_refused(self, openai_server, openai_embeddings):
        embedder = Embedder(refuse=lambda text: text == "bad")
        embeddings = openai_embeddings(openai_server(reply, embedder=embedder))
        with pytest.raises(openai.BadRequestError):
            embeddings.embed_documents(["good", "bad"])
        assert len(embeddings.embed_documents(["good"])) == 1
        assert embedder.refused == 1


class TestFaults:
    """One fault, then a good answer; where no error comes, the client returns what is named here."""

    def test_every_fault_is_tried(self):
        assert OPENAI_FAULTS.keys() == GIGACHAT_FAULTS.keys() == FAULTS

    @pytest.mark.parametrize(
        "fault", [pytest.param(name, marks=pytest.mark.gate if name == "hang" else ()) for name in OPENAI_FAULTS]
    )
    def test_what_chat_openai_makes_of_it(self, openai_server, fault, chat_openai):
        method, outcome = OPENAI_FAULTS[fault]
        server = openai_server(reply, faults=Faults.script([fault], hang_seconds=30))
        model = chat_openai(server, timeout=2 if fault == "hang" else 10).with_structured_output(Names, method=method)
        self.check(server, model, fault, outcome)

    @pytest.mark.gate
    @pytest.mark.parametrize("fault", GIGACHAT_FAULTS)
    def test_what_gigachat_makes_of_it(self, gigachat_server, fault, gigachat):
        method, outcome = GIGACHAT_FAULTS[fault]
        server = gigachat_server(reply, faults=Faults.script([fault], hang_seconds=30))
        model = gigachat(server, timeout=2 if fault == "hang" else 10).with_structured_output(Names, method=method)
        self.check(server, model, fault, outcome)

    def check(self, server, model, fault, outcome):
        if isinstance(outcome, type):
            with pytest.raises(outcome):
                model.invoke(QUESTION)
        else:
            assert model.invoke(QUESTION) == outcome
        assert model.invoke(QUESTION) == NAMES
        assert server.faulted == {fault: 1}

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

    def test_an_assertion_inside_the_brain_reaches_the_test(self, chat_openai):
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
