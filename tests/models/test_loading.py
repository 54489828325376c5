"""load_judge and load_embeddings with the real clients, against servers of our own."""

import math
import sys
from types import SimpleNamespace

import pytest
from helpers.each import each, error_of
from helpers.offline import RICH, offline, rag_samples, says_the_same
from helpers.servers.chat import Embedder, Faults

from langchain_rageval import Judge, OfflineJudge, RetryPolicy, answer_similarity, evaluate, faithfulness
from langchain_rageval.errors import ConfigError
from langchain_rageval.models.loading import load_embeddings, load_judge

TEXTS = ["Где живёт Анна?", "где живёт анна?", "nothing alike"]


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


MISSING = [
    (load_judge, "openai:m", "set OPENAI_API_KEY"),
    (load_judge, "gigachat:m", "set GIGACHAT_CREDENTIALS"),
    (load_judge, "vllm:m", "base_url"),
    (load_judge, "gpt-some", "OPENAI_API_KEY"),
    (load_judge, "azure_openai:m", "azure_openai:m"),
    (load_judge, "anthropic:claude", "langchain-anthropic"),
    (load_judge, "openai", "openai:MODEL"),
    (load_judge, "nonsense", "nonsense"),
    (load_judge, "opnai:m", "did you mean 'openai'?"),
    (load_judge, "", "offline, openai:MODEL"),
    (load_embeddings, "openai:e", "set OPENAI_API_KEY"),
    (load_embeddings, "openai", "openai:MODEL"),
    (load_embeddings, "opnai:e", "did you mean 'openai'?"),
    (load_embeddings, "", "offline, openai:MODEL"),
]
PROVIDERS = [
    ("ollama", "langchain_ollama", "ChatOllama", "base_url"),
    ("anthropic", "langchain_anthropic", "ChatAnthropic", "base_url"),
    ("litellm", "langchain_litellm", "ChatLiteLLM", "api_base"),
]


class TestLoadJudge:
    def test_offline(self):
        judge = load_judge("offline", language="ru")
        check(judge)
        assert judge.language == "ru"

    @pytest.mark.parametrize(
        ("name", "key"),
        [("openai:gpt-some", "sk-very-secret"), ("vllm:Qwen/Qwen3-4B:free", "vllm-secret"), ("vllm:some", "EMPTY")],
    )
    def test_openai_and_vllm(self, openai_server, monkeypatch, name, key):
        if key != "EMPTY":  # vLLM needs no key
            monkeypatch.setenv(f"{name.partition(':')[0].upper()}_API_KEY", key)
        server = openai_server(offline)
        judge = load_judge(name, base_url=server.url + "/v1", temperature=0.4, attempts=2)
        check(judge)
        sent = server.requests[0]
        assert (sent.body["model"], sent.body["temperature"], judge.attempts) == (name.partition(":")[2], 0.4, 2)
        assert sent.headers["authorization"] == f"Bearer {key}"
        assert key not in repr(judge)

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
        judge = Judge(judge.model, mode="prompt")  # in "auto", the lower rungs would be tried, too
        evaluate(rag_samples(1), faithfulness(judge), progress=False, retry=RetryPolicy(attempts=2, initial=0.01))
        assert server.calls == 2

    def test_a_name_of_init_chat_model(self, openai_server, openai_key):
        """The provider that LangChain infers from the model's name."""
        server = openai_server(offline, faults=Faults.script(["500"]))
        judge = load_judge("gpt-some", base_url=server.url + "/v1", temperature=0.2)
        report = evaluate(rag_samples(1), faithfulness(judge), progress=False, retry=RetryPolicy(initial=0.01))
        assert report.failures() == []
        assert (server.calls, server.requests[0].body["temperature"]) == (3, 0.2)

    def test_a_missing_certificate_of_gigachat_is_named_before_a_call(self, monkeypatch, tmp_path):
        monkeypatch.setenv("GIGACHAT_CREDENTIALS", "key")
        monkeypatch.setenv("GIGACHAT_CA_BUNDLE_FILE", str(tmp_path / "root.crt"))
        expected = f"GIGACHAT_CA_BUNDLE_FILE names the file {str(tmp_path / 'root.crt')!r}, which does not exist"
        assert str(error_of(ConfigError, load_judge, "gigachat:m")).startswith(expected)

    @each(("load", "name", "mend"), MISSING)
    def test_what_is_missing_is_named(self, load, name, mend, monkeypatch):
        monkeypatch.setitem(sys.modules, "langchain_anthropic", None)
        assert mend in str(error_of(ConfigError, load, name))

    def test_a_missing_package_is_named(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "langchain_gigachat", None)
        for load, name in ((load_judge, "gigachat:m"), (load_embeddings, "gigachat")):
            assert "pip install langchain-gigachat" in str(error_of(ConfigError, load, name))
        monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
        assert "other names need `pip install langchain`" in str(error_of(ConfigError, load_judge, "mistralai:small"))

    @each("load", [load_judge, load_embeddings])
    @each("given", [None, OfflineJudge()])
    def test_what_is_no_name_is_refused(self, load, given):
        expected = f"'openai:MODEL', got {type(given).__name__}; a model object is used as it is"
        assert str(error_of(ConfigError, load, given)).endswith(expected)

    @each("name", ["offline", "openai:m", "llamacpp:m.gguf", "mistralai:m"])
    def test_unknown_options_are_named(self, name):
        assert str(error_of(ConfigError, load_judge, name, langauge="ru", num_ctx=4096)) == (
            "load_judge got unknown options 'langauge', 'num_ctx': it takes base_url, "
            "temperature, language, prompts, mode, attempts, draws, layout, max_statements, max_context_tokens, "
            "max_concurrency, probabilities, grammar, probe, version; for an option of the model, build the model and "
            "pass Judge(model); did you mean 'language'?"
        )

    def test_an_option_that_the_models_class_does_not_know_is_not_sent(self, monkeypatch):
        tries = []

        def init_chat_model(_name, **given):
            tries.append(sorted(given))
            if "max_retries" in given:
                raise TypeError("Chat.__init__() got an unexpected keyword argument 'max_retries'")
            return OfflineJudge()

        monkeypatch.setattr("langchain.chat_models.init_chat_model", init_chat_model)
        load_judge("bedrock:m", base_url="http://127.0.0.1:1")
        assert tries == [["base_url", "max_retries", "temperature"], ["base_url", "temperature"]]

    def test_a_value_that_the_model_refuses_is_an_error(self, monkeypatch):
        def init_chat_model(_name, **_given):
            raise ValueError("temperature must be between 0 and 1")

        monkeypatch.setattr("langchain.chat_models.init_chat_model", init_chat_model)
        assert str(error_of(ConfigError, load_judge, "mistralai:m", temperature=7)) == (
            "'mistralai:m' names no judge that LangChain can build: temperature must be between 0 and 1"
        )

    def test_yandexgpt(self, monkeypatch):
        monkeypatch.setattr("langchain_rageval.models.loading.find_spec", lambda name: name)
        missing = [str(error_of(ConfigError, load_judge, "yandexgpt:yandexgpt"))]
        monkeypatch.setenv("YC_API_KEY", "yc-very-secret")
        assert [*missing, str(error_of(ConfigError, load_judge, "yandexgpt:yandexgpt"))] == [
            "yandexgpt needs a key in the environment: set YC_API_KEY or YC_IAM_TOKEN",
            "yandexgpt needs the folder of the cloud in the environment: set YC_FOLDER_ID",
        ]
        own = load_judge("yandexgpt:gpt://b1g/yandexgpt/rc", temperature=0.3).model
        assert (type(own).__name__, own.model_uri, own.temperature) == ("ChatYandexGPT", "gpt://b1g/yandexgpt/rc", 0.3)
        monkeypatch.setenv("YC_FOLDER_ID", "b1g")
        judges = {name: load_judge(name, base_url="127.0.0.1:1") for name in ("yandexgpt:pro", "yandexgpt:pro/rc")}
        uris = [judge.model.model_uri for judge in judges.values()]
        assert uris == ["gpt://b1g/pro/latest", "gpt://b1g/pro/rc"]
        assert {(judge.model.url, judge.model.max_retries) for judge in judges.values()} == {("127.0.0.1:1", 1)}
        assert "yc-very-secret" not in repr(list(judges.values()))

    def test_llamacpp_names_what_is_missing(self, monkeypatch, tmp_path):
        monkeypatch.setattr("langchain_rageval.models.loading.find_spec", lambda _name: None)
        error = error_of(ConfigError, load_judge, "llamacpp:model.gguf")
        assert str(error) == "llamacpp needs its package: pip install llama-cpp-python"
        monkeypatch.setattr("langchain_rageval.models.loading.find_spec", lambda name: name)
        assert str(error_of(ConfigError, load_judge, f"llamacpp:{tmp_path / 'none.gguf'}")) == (
            "llamacpp needs the path of a GGUF file, as in llamacpp:model.gguf; there is no file "
            f"{str(tmp_path / 'none.gguf')!r}"
        )
        (tmp_path / "a.gguf").write_bytes(b"")
        caught = error_of(ConfigError, load_judge, f"llamacpp:{tmp_path / 'a.gguf'}", base_url="http://127.0.0.1:1")
        assert str(caught) == ("llamacpp runs the model in this process; for a server use vllm:MODEL with base_url")

    @pytest.mark.parametrize(("provider", "module", "kind", "address"), PROVIDERS)
    def test_common_providers_need_their_own_package_only(self, monkeypatch, provider, module, kind, address):
        built = []

        def chat(**settings):
            built.append(settings)
            return OfflineJudge()

        monkeypatch.setitem(sys.modules, "langchain.chat_models", None)
        monkeypatch.setitem(sys.modules, module, SimpleNamespace(**{kind: chat}))
        load_judge(f"{provider}:some/m:1", base_url="http://127.0.0.1:1")
        assert built == [{"model": "some/m:1", "temperature": 0.1, "max_retries": 0, address: "http://127.0.0.1:1"}]
        monkeypatch.setitem(sys.modules, module, None)
        needed = f"{provider} needs its package: pip install {module.replace('_', '-')}"
        assert str(error_of(ConfigError, load_judge, f"{provider}:m")) == needed


class TestLoadEmbeddings:
    def check(self, embeddings):
        first, second, other = embeddings.embed_documents(TEXTS)
        assert first == pytest.approx(second, abs=1e-6)
        assert first != pytest.approx(other, abs=1e-3)
        assert math.hypot(*first) == pytest.approx(1, abs=1e-6)
        assert embeddings.embed_query(TEXTS[0]) == pytest.approx(first, abs=1e-6)

    def test_offline(self):
        self.check(load_embeddings("offline"))

    @pytest.mark.parametrize("name", ["vllm:e", "openai:text-embedding-3-small"])
    def test_openai_and_vllm_send_texts_and_fetch_no_tokenizer_file(self, openai_server, openai_key, name):
        server = openai_server(offline)
        embeddings = load_embeddings(name, base_url=server.url + "/v1")
        self.check(embeddings)
        body = server.requests[0].body
        assert (body["input"], body["model"]) == (TEXTS, name.partition(":")[2])
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


ACCEPT_NO_TEMPERATURE = (
    *("openai:o1", "openai:o3", "openai:o4-mini", "openai:o3-2025-04-16", "openai:gpt-5-mini", "o3-mini"),
    *("azure_openai:o4-mini", "openrouter:openai/o3", "anthropic:claude-opus-4-7"),
    "bedrock_converse:us.anthropic.claude-opus-4-8-v1:0",
)
ACCEPT_A_TEMPERATURE = (
    *("openai:gpt-4o3", "openai:gpt-5-chat-latest", "vllm:openai/o3", "openai:omni-1", "mistralai:magistral-small"),
    *("anthropic:claude-opus-4-20250514", "anthropic:claude-opus-4-1"),
)


def test_reasoning_models_are_known_by_name(monkeypatch, openai_key):
    settings = {}

    def build(*_name, **given):
        settings.update(given)
        return OfflineJudge()

    monkeypatch.setattr("langchain.chat_models.init_chat_model", build)
    monkeypatch.setattr("langchain_rageval.models.loading._imported", lambda *_: build)  # clients need not be installed
    sent = {}
    for name in (*ACCEPT_NO_TEMPERATURE, *ACCEPT_A_TEMPERATURE):
        settings.clear()
        model = load_judge(name, base_url="http://127.0.0.1:1/v1").model
        sent[name] = settings.get("temperature", getattr(model, "temperature", None))
    assert {name for name in ACCEPT_NO_TEMPERATURE if sent[name] not in (None, 1)} == set()
    assert {name for name in ACCEPT_A_TEMPERATURE if sent[name] != 0.1} == set()
