"""LangChain's clients against a server that speaks their dialects: which rung works, and with what result.

Install them with `pip install -e ".[clients]"`; tests of absent ones are skipped. A row of `CLIENTS` holds the rungs
that "auto" may choose, best first; a better one is entered at its beginning.
"""

import asyncio
import os
import subprocess
import sys

import pytest
from helpers.engines import need
from helpers.offline import rag_samples, says_the_same
from helpers.servers.vendors import VendorServer
from helpers.waiting import PATIENCE

from langchain_rageval import Judge, RetryPolicy, aevaluate, evaluate, faithfulness

STRICT, TOOLS, PROMPT = "json_schema", "function_calling", "prompt"
ONCE = {"progress": False, "retry": RetryPolicy(attempts=1)}


def chat_openai(url):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="m", base_url=f"{url}/v1", api_key="none", max_retries=0)


def responses_api(url):
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model="m", base_url=f"{url}/v1", api_key="none", max_retries=0, use_responses_api=True)


def anthropic(url):
    from langchain_anthropic import ChatAnthropic

    return ChatAnthropic(model="claude-sonnet-4-5", base_url=url, api_key="none", max_retries=0)


def gemini(url):
    from langchain_google_genai import ChatGoogleGenerativeAI

    return ChatGoogleGenerativeAI(model="gemini-2.5-flash", base_url=url, google_api_key="none", max_retries=1)


def mistral(url):
    from langchain_mistralai import ChatMistralAI

    return ChatMistralAI(model="m", endpoint=f"{url}/v1", api_key="none", max_retries=1)


def groq(url):
    from langchain_groq import ChatGroq

    return ChatGroq(model="m", base_url=url, api_key="none", max_retries=0)


def ollama(url):
    from langchain_ollama import ChatOllama

    return ChatOllama(model="m", base_url=url)


def litellm(url):
    from langchain_litellm import ChatLiteLLM

    return ChatLiteLLM(model="openai/m", api_base=f"{url}/v1", api_key="none", max_retries=0)


def hugging_face(url):
    from langchain_huggingface import ChatHuggingFace, HuggingFaceEndpoint

    endpoint = HuggingFaceEndpoint(endpoint_url=f"{url}/v1", huggingfacehub_api_token="none")
    return ChatHuggingFace(llm=endpoint, model_id="m")


def configurable(url):
    from langchain.chat_models import init_chat_model

    model = init_chat_model(configurable_fields="any", model_provider="openai")
    settings = {"model": "m", "base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    return model.with_config(configurable=settings)


def configured(url):
    from langchain.chat_models import init_chat_model

    settings = {"base_url": f"{url}/v1", "api_key": "none", "max_retries": 0}
    return init_chat_model("openai:m", configurable_fields=("model",), **settings)


CLIENTS = [
    pytest.param(chat_openai, (STRICT,), id="ChatOpenAI"),
    pytest.param(responses_api, (STRICT,), id="ChatOpenAI, Responses API"),
    pytest.param(anthropic, (STRICT,), id="ChatAnthropic", marks=need("langchain_anthropic")),
    pytest.param(gemini, (STRICT,), id="ChatGoogleGenerativeAI", marks=need("langchain_google_genai")),
    pytest.param(mistral, (STRICT,), id="ChatMistralAI", marks=need("langchain_mistralai")),
    pytest.param(groq, (STRICT,), id="ChatGroq", marks=need("langchain_groq")),
    pytest.param(ollama, (STRICT,), id="ChatOllama", marks=need("langchain_ollama")),
    pytest.param(litellm, (STRICT,), id="ChatLiteLLM", marks=need("langchain_litellm")),
    pytest.param(hugging_face, (STRICT,), id="ChatHuggingFace", marks=need("langchain_huggingface")),
    pytest.param(configurable, (STRICT, TOOLS), id="any field configurable", marks=need("langchain")),
    pytest.param(configured, (STRICT, TOOLS), id="one field configurable", marks=need("langchain")),
]

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # clients leave sockets open
]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")


def check(report, server):
    samples = len(report.rows)
    assert report.failures() == []
    assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)
    assert sum(row.scores["faithfulness"].usage.calls for row in report.rows) == len(server.requests)
    assert server.calls == 2 * samples


@pytest.mark.parametrize(("build", "rungs"), CLIENTS)
def test_auto_chooses_a_good_rung_and_scores_are_right(build, rungs):
    with VendorServer() as server:
        judge = Judge(build(server.url))
        check(evaluate(rag_samples(3), faithfulness(judge), **ONCE), server)
        assert judge._endpoint.capabilities.mode.rung in rungs
        assert set(server.rungs) <= set(rungs)


@pytest.mark.gate
@pytest.mark.parametrize(("build", "rungs"), CLIENTS)
def test_scores_are_right_on_three_event_loops(build, rungs):
    """In a process of its own: connections of closed loops would be left to the garbage collector of other tests."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, build.__name__],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (run.returncode, run.stdout) == (0, "no failure\n"), run.stderr[-2000:]


def score_on_three_loops(build):
    with VendorServer() as server:
        for _ in range(3):
            report = asyncio.run(aevaluate(rag_samples(3), faithfulness(build(server.url)), **ONCE))
            assert report.failures() == []
            assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)
    sys.stdout.write("no failure\n")


@pytest.mark.gate
@pytest.mark.parametrize(("build", "rungs"), CLIENTS)
def test_the_mode_prompt_works_with_every_client(build, rungs):
    with VendorServer(refused=(STRICT, TOOLS, "json_mode")) as server:
        check(evaluate(rag_samples(2), faithfulness(Judge(build(server.url), mode=PROMPT)), **ONCE), server)
        assert set(server.rungs) == {PROMPT}


@pytest.mark.parametrize(("build", "rungs"), CLIENTS)
def test_a_client_whose_formats_are_refused_is_asked_in_the_prompt(build, rungs):
    with VendorServer(refused=(STRICT, TOOLS, "json_mode")) as server:
        report = evaluate(rag_samples(2), faithfulness(build(server.url)), **ONCE)
        assert report.failures() == []
        assert all(says_the_same(row.scores["faithfulness"], row.sample) for row in report.rows)
        assert set(server.rungs) == {PROMPT}


if __name__ == "__main__":
    score_on_three_loops(globals()[sys.argv[1]])
