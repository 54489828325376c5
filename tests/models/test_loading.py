"""load_judge and load_embeddings with the real clients, against servers of our own."""

import math
import sys

import pytest
from helpers.servers.brain import RICH, offline, rag_samples, says_the_same
from helpers.servers.embedder import Embedder
from helpers.servers.faults import Faults

from langchain_rageval import (
    OfflineJudge,
    RetryPolicy,
    answer_similarity,
    evaluate,
    faithfulness,
    load_embeddings,
    load_judge,
)
from langchain_rageval.errors import ConfigError

TEXTS = ["Где живёт Анна?", "где живёт анна?", "nothing alike"]


@pytest.fixture(autouse=True)
def _gigachat_settings(monkeypatch):
    for name in ("GIGACHAT_CREDENTIALS", "GIGACHAT_AUTH_URL", "VLLM_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def openai_key(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")


@pytest.fixture
def gigachat_access(monkeypatch):
    """Set what GigaChat reads from the environment, for a server."""

    def given(server):
        monkeypatch.setenv("GIGACHAT_CREDENTIALS", "dmVyeS1zZWNyZXQ=")
        monkeypatch.setenv("GIGACHAT_AUTH_URL", server.url + "/oauth")

    return given


def check(judge):
    """The judge scores as the offline judge does, sync."""
    samples = rag_samples(3)
    report = evaluate(samples, faithfulness(judge), progress=False)
    assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)


def close(model):
    model.root_client.close()


class TestLoadJudge:
    def test_offline(self):
        judge = load_judge("offline", language="ru")
        check(judge)
        assert judge.language == "ru"

    def test_openai(self, openai_server, openai_key):
        server = openai_server(offline)
        judge = load_judge("openai:gpt-some", base_url=server.url + "/v1", temperature=0.4, attempts=2)
        check(judge)
        sent = server.requests[0]
        assert (sent.body["model"], sent.body["temperature"], judge.attempts) == ("gpt-some", 0.4, 2)
        assert sent.headers["authorization"] == "Bearer sk-very-secret"
        assert "sk-very-secret" not in repr(judge)
        close(judge.model)

    @pytest.mark.parametrize(
        "name", ["openai:o1", "openai:o3", "openai:o4-mini", "openai:o3-2025-04-16", "openai:gpt-5-mini", "o3-mini"]
    )
    def test_a_reasoning_model_gets_no_temperature_that_it_refuses(self, openai_server, openai_key, name):
        server = openai_server(offline)
        judge = load_judge(name, base_url=server.url + "/v1", temperature=0.1)
        check(judge)
        assert {request.body.get("temperature", 1) for request in server.requests} == {1}
        close(judge.model)

    @pytest.mark.parametrize("name", ["openai:gpt-4o3", "openai:gpt-5-chat-latest", "vllm:openai/o3", "openai:omni-1"])
    def test_other_models_get_the_temperature(self, openai_server, openai_key, name):
        server = openai_server(offline)
        judge = load_judge(name, base_url=server.url + "/v1")
        check(judge)
        assert server.requests[0].body["temperature"] == 0.1
        close(judge.model)

    @pytest.mark.parametrize("key", [None, "vllm-very-secret"])
    def test_vllm_needs_no_key(self, openai_server, monkeypatch, key):
        if key:
            monkeypatch.setenv("VLLM_API_KEY", key)
        server = openai_server(offline)
        judge = load_judge("vllm:Qwen/Qwen3-4B:free", base_url=server.url + "/v1")
        check(judge)
        sent = server.requests[0]
        assert (sent.body["model"], sent.body["temperature"]) == ("Qwen/Qwen3-4B:free", 0.1)
        assert sent.body["response_format"]["type"] == "json_schema"
        assert sent.headers["authorization"] == f"Bearer {key or 'EMPTY'}"
        close(judge.model)

    def test_gigachat(self, gigachat_server, gigachat_access):
        server = gigachat_server(offline)
        gigachat_access(server)
        judge = load_judge("gigachat:GigaChat-2-Max", base_url=server.url)
        check(judge)
        oauth, first, *_ = server.requests
        assert oauth.headers["authorization"] == "Basic dmVyeS1zZWNyZXQ="
        assert (first.body["model"], first.body["temperature"]) == ("GigaChat-2-Max", 0.1)
        assert "dmVyeS1zZWNyZXQ" not in repr(judge)
        judge.model._client.close()

    @pytest.mark.parametrize("name", ["openai:m", "vllm:m"])
    def test_the_client_does_not_retry_by_itself(self, openai_server, openai_key, name):
        server = openai_server(offline, faults=Faults.rates(seed=1, **{"500": 1.0}))
        judge = load_judge(name, base_url=server.url + "/v1")
        evaluate(rag_samples(1), faithfulness(judge), progress=False, retry=RetryPolicy(attempts=2, initial=0.01))
        assert server.calls == 2
        close(judge.model)

    def test_a_name_of_init_chat_model(self, openai_server, openai_key):
        """The provider that LangChain infers from the model's name."""
        server = openai_server(offline, faults=Faults.script(["500"]))
        judge = load_judge("gpt-some", base_url=server.url + "/v1", temperature=0.2)
        report = evaluate(rag_samples(1), faithfulness(judge), progress=False, retry=RetryPolicy(initial=0.01))
        assert report.failures() == []
        assert (server.calls, server.requests[0].body["temperature"]) == (3, 0.2)
        close(judge.model)

    @pytest.mark.parametrize(
        ("name", "mend"),
        [
            ("openai:m", "set OPENAI_API_KEY"),
            ("gigachat:m", "set GIGACHAT_CREDENTIALS"),
            ("vllm:m", "base_url"),
            ("gpt-some", "OPENAI_API_KEY"),
            ("azure_openai:m", "azure_openai:m"),
            ("anthropic:claude", "langchain-anthropic"),
            ("openai", "openai:MODEL"),
            ("vllm:", "vllm:MODEL"),
            ("gigachat", "gigachat:MODEL"),
            ("nonsense", "nonsense"),
            ("nonsense:m", "nonsense"),
            ("", "offline, openai:MODEL"),
        ],
    )
    def test_what_is_missing_is_named(self, name, mend):
        with pytest.raises(ConfigError) as caught:
            load_judge(name)
        assert mend in str(caught.value)

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "langchain_gigachat", None)
        with pytest.raises(ConfigError, match=r'pip install "langchain-rageval\[gigachat\]"'):
            load_judge("gigachat:m")
        monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
        with pytest.raises(ConfigError, match="pip install langchain"):
            load_judge("anthropic:claude")

    @pytest.mark.parametrize("load", [load_judge, load_embeddings])
    @pytest.mark.parametrize("given", [None, OfflineJudge()])
    def test_what_is_no_name_is_refused(self, load, given):
        with pytest.raises(
            ConfigError, match=f"'openai:MODEL', got {type(given).__name__}; a model object is used as it is"
        ):
            load(given)

    def test_an_option_out_of_range_is_named(self):
        with pytest.raises(ConfigError, match="attempts must be a whole number of at least 1, got 0"):
            load_judge("offline", attempts=0)

    def test_an_unknown_option_is_named(self):
        with pytest.raises(TypeError, match="langauge"):
            load_judge("offline", langauge="ru")


class TestLoadEmbeddings:
    def check(self, embeddings):
        first, second, other = embeddings.embed_documents(TEXTS)
        assert first == pytest.approx(second, abs=1e-6)
        assert first != pytest.approx(other, abs=1e-3)
        assert math.hypot(*first) == pytest.approx(1, abs=1e-6)
        assert embeddings.embed_query(TEXTS[0]) == pytest.approx(first, abs=1e-6)

    def test_offline(self):
        self.check(load_embeddings("offline"))

    def test_vllm(self, openai_server):
        server = openai_server(offline)
        embeddings = load_embeddings("vllm:e", base_url=server.url + "/v1")
        self.check(embeddings)
        assert server.requests[0].body["input"] == TEXTS  # texts, where OpenAI's own takes token ids
        assert server.requests[0].body["model"] == "e"
        assert server.calls == 0
        embeddings.client._client.close()

    def test_gigachat(self, gigachat_server, gigachat_access):
        server = gigachat_server(offline)
        gigachat_access(server)
        for name, model in (("gigachat", "Embeddings"), ("gigachat:EmbeddingsGigaR", "EmbeddingsGigaR")):
            embeddings = load_embeddings(name, base_url=server.url)
            self.check(embeddings)
            assert server.requests[-1].body["model"] == model
            embeddings._client.close()

    @pytest.mark.parametrize("name", ["openai:e", "vllm:e", "gigachat"])
    def test_the_client_does_not_retry_by_itself(
        self, openai_server, gigachat_server, openai_key, gigachat_access, name
    ):
        start, path = (gigachat_server, "") if name == "gigachat" else (openai_server, "/v1")
        server = start(offline, embedder=Embedder(faults=Faults.rates(seed=1, **{"500": 1.0})))
        gigachat_access(server)
        embeddings = load_embeddings(name, base_url=server.url + path)
        metric = answer_similarity(embeddings)
        report = evaluate(RICH[:1], metric, progress=False, retry=RetryPolicy(attempts=2, initial=0.01))
        assert len(server.embedder.batches) == 2
        assert "very-secret" not in repr(metric) + str(report.rows)
        (embeddings._client if name == "gigachat" else embeddings.client._client).close()

    def test_openai_fetches_no_tokenizer_file(self, openai_server, openai_key):
        """The only network is the user's models."""
        server = openai_server(offline)
        embeddings = load_embeddings("openai:text-embedding-3-small", base_url=server.url + "/v1")
        self.check(embeddings)
        embeddings.client._client.close()

    @pytest.mark.parametrize(
        ("name", "mend"),
        [
            ("openai:e", "set OPENAI_API_KEY"),
            ("gigachat", "set GIGACHAT_CREDENTIALS"),
            ("vllm:e", "base_url"),
            ("openai", "openai:MODEL"),
            ("nonsense:e", "nonsense:e"),
            ("", "offline, openai:MODEL"),
        ],
    )
    def test_what_is_missing_is_named(self, name, mend):
        with pytest.raises(ConfigError) as caught:
            load_embeddings(name)
        assert mend in str(caught.value)

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "langchain_gigachat", None)
        with pytest.raises(ConfigError, match=r'pip install "langchain-rageval\[gigachat\]"'):
            load_embeddings("gigachat")


@pytest.mark.parametrize(
    ("name", "accepts"),
    [
        ("azure_openai:o4-mini", False),
        ("openrouter:openai/o3", False),
        ("anthropic:claude-opus-4-7", False),
        ("bedrock_converse:us.anthropic.claude-opus-4-8-v1:0", False),
        ("anthropic:claude-opus-4-20250514", True),
        ("anthropic:claude-opus-4-1", True),
        ("mistralai:magistral-small", True),
    ],
)
def test_reasoning_models_of_other_providers_are_known_by_name(monkeypatch, name, accepts):
    settings = {}

    def init_chat_model(_name, **given):
        settings.update(given)
        return OfflineJudge()

    monkeypatch.setattr("langchain.chat_models.init_chat_model", init_chat_model)
    load_judge(name)
    assert ("temperature" in settings) == accepts
