"""What all tests share: model servers on 127.0.0.1 and an environment without a user's settings."""

import gc
import os
import signal
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import openai
import pytest
from helpers.servers.endpoints import GigaChatServer, OpenAIServer
from hypothesis import settings
from langchain_core.embeddings import Embeddings
from langchain_gigachat import GigaChat, GigaChatEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

# The same examples each time, however fast the machine is; --hypothesis-profile=explore tries others.
settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("gate", deadline=None, derandomize=True, max_examples=100)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("quick")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; some tests press Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

SETTINGS = ("LANGSMITH_", "LANGCHAIN_", "OPENAI_", "GIGACHAT_", "VLLM_", "ANTHROPIC_", "YC_")


def pytest_collection_finish() -> None:
    """Spare the garbage collector the modules and tests: the quick tests take a tenth less time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _certificates() -> Iterator[None]:
    """Load certificates once per set of arguments: an HTTP client without https takes 20 ms for them otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "create_default_context", cache(ssl.create_default_context))
        yield


@pytest.fixture(autouse=True)
def _clear_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(SETTINGS):
            monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium for the tests of a file."""
    from helpers.screens import running_chromium

    with running_chromium() as chromium:
        yield chromium


@pytest.fixture
def open_file(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open files in Chromium, `open_file(path, fragment, **options)`; the test fails if a page uses the network."""
    from helpers.screens import opened_pages

    with opened_pages(browser) as open_page:
        yield open_page


def _servers(kind: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    with ExitStack() as servers:
        yield lambda reply, **options: servers.enter_context(kind(reply, **options))


@pytest.fixture
def openai_server() -> Iterator[Callable[..., OpenAIServer]]:
    """Start OpenAI-compatible servers, `openai_server(reply, **options)`; they stop when the test ends."""
    yield from _servers(OpenAIServer)


@pytest.fixture
def gigachat_server() -> Iterator[Callable[..., GigaChatServer]]:
    """Start GigaChat servers, `gigachat_server(reply, **options)`; they stop when the test ends."""
    yield from _servers(GigaChatServer)


async def _openai_clients(kind: Callable[..., Any], **defaults: Any) -> AsyncIterator[Callable[..., Any]]:
    """Build clients of a server whose HTTP clients are closed when the test ends.

    The default ones live in a cache keyed by URL: they would outlive the event loop, leave their sockets to the garbage
    collector, and come back when a port is used again.
    """
    async with AsyncExitStack() as clients:

        def build(server: OpenAIServer, **options: Any) -> Any:
            # Plain http needs no certificates; to load them takes 20 ms a client.
            sync, asynchronous = openai.DefaultHttpxClient(verify=False), openai.DefaultAsyncHttpxClient(verify=False)
            clients.enter_context(sync)
            clients.push_async_callback(asynchronous.aclose)
            settings = {"api_key": "sk-test", "max_retries": 0, **defaults, **options}
            return kind(base_url=server.url + "/v1", http_client=sync, http_async_client=asynchronous, **settings)

        yield build


@pytest.fixture
async def chat_openai() -> AsyncIterator[Callable[..., ChatOpenAI]]:
    """Build models for a server, `chat_openai(server, **options)`, without retries of their own."""
    async for build in _openai_clients(ChatOpenAI, model="m"):
        yield build


@pytest.fixture
async def openai_embeddings() -> AsyncIterator[Callable[..., OpenAIEmbeddings]]:
    """Build embeddings for a server, `openai_embeddings(server, **options)`, as `chat_openai` builds models."""
    async for build in _openai_clients(OpenAIEmbeddings, model="e", check_embedding_ctx_length=False):
        yield build


async def _gigachat_clients(kind: Callable[..., Any], **defaults: Any) -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as clients:

        def build(server: GigaChatServer, **options: Any) -> Any:
            access = {"base_url": server.url, "auth_url": server.url + "/oauth", "credentials": "dGVzdDp0ZXN0"}
            client = kind(**{"verify_ssl_certs": False, **access, **defaults, **options})
            clients.push_async_callback(client._client.aclose)  # the client itself has no way to close them
            return client

        yield build


@pytest.fixture
async def gigachat() -> AsyncIterator[Callable[..., GigaChat]]:
    """Build models for a server, `gigachat(server, **options)`; their HTTP clients are closed when the test ends."""
    async for build in _gigachat_clients(GigaChat, model="GigaChat-2"):
        yield build


@pytest.fixture
async def gigachat_embeddings() -> AsyncIterator[Callable[..., GigaChatEmbeddings]]:
    """Build embeddings for a server, `gigachat_embeddings(server, **options)`, as `gigachat` builds models."""
    async for build in _gigachat_clients(GigaChatEmbeddings):
        yield build


@dataclass(frozen=True)
class Endpoint:
    """A kind of endpoint with its clients.

    `server(reply, **options)` starts one; `model(server, **options)` and `embeddings(server, **options)` build clients.
    """

    name: str
    server: Callable[..., Any]
    model: Callable[..., Any]
    embeddings: Callable[..., Embeddings]


@pytest.fixture(params=["openai", "gigachat"])
def endpoint(request: pytest.FixtureRequest) -> Endpoint:
    """Each kind of endpoint in turn."""
    names = {
        "openai": ("openai_server", "chat_openai", "openai_embeddings"),
        "gigachat": ("gigachat_server", "gigachat", "gigachat_embeddings"),
    }[request.param]
    return Endpoint(request.param, *map(request.getfixturevalue, names))
