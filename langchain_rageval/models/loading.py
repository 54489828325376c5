"""load_judge and load_embeddings: build a judge or embeddings from a name, as the command line does."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge

_Options = dict[str, Any]

# Models that answer a request with a temperature by an error. `Endpoint` omits it for others that do.
_NO_TEMPERATURE = re.compile(
    r"(?:^|[/:.])(?:o[1-9](?:$|[-:])|gpt-5(?!.*chat)|codex-|claude-opus-(?:4[-.](?:[7-9]|[1-9]\d)(?!\d)|[5-9]))",
    re.IGNORECASE,
)
_SELF_HOSTED = ("vllm", "gigachat")
_GIGACHAT_KEYS = ("GIGACHAT_CREDENTIALS", "GIGACHAT_ACCESS_TOKEN", "GIGACHAT_USER", "GIGACHAT_KEY_FILE_PASSWORD")


def load_judge(name: str, *, base_url: str | None = None, temperature: float = 0.1, **options: Any) -> Judge:
    """Return a judge by the name of its model.

    The client of the model does not retry, because `evaluate` does.

    Args:
        name: "offline", "openai:MODEL", "vllm:MODEL" with `base_url`, "gigachat:MODEL", or any name that LangChain's
            `init_chat_model` accepts, such as "anthropic:MODEL" or "gpt-5". Keys are read from the provider's
            environment variables.
        base_url: address of the server, such as "http://localhost:8000/v1".
        temperature: sampling temperature of the model. It is not sent to reasoning models that accept none, such as
            "openai:o3".
        options: options of `Judge`, such as `language="ru"`.

    Raises:
        ConfigError: if the name is unknown, or a key, an address or a package is missing.
    """
    provider, model = _split_name(name)
    if name == "offline":
        return Judge(OfflineJudge(), **options)
    if not model and (provider in _CHAT_MODELS or not name):
        raise ConfigError(f"{name!r} names no judge; use offline, openai:MODEL, vllm:MODEL, gigachat:MODEL")
    make = _CHAT_MODELS.get(provider, _langchain_factory(name))
    accepts_temperature = provider in _SELF_HOSTED or not _NO_TEMPERATURE.search(name)
    return Judge(make(model, base_url, {"temperature": temperature} if accepts_temperature else {}), **options)


def load_embeddings(name: str, *, base_url: str | None = None) -> Embeddings:
    """Return embeddings by their name.

    Args:
        name: "offline", "openai:MODEL", "vllm:MODEL" with `base_url`, "gigachat" or "gigachat:MODEL".
        base_url: address of the server.

    Raises:
        ConfigError: if the name is unknown, or a key, an address or a package is missing.
    """
    provider, model = _split_name(name)
    if name == "offline":
        return HashingEmbeddings()
    if provider == "gigachat":
        return _gigachat_embeddings(model, base_url)
    if provider in ("openai", "vllm") and model:
        return _openai_embeddings(provider, model, base_url)
    raise ConfigError(f"{name!r} names no embeddings; use offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL]")


def _split_name(name: Any) -> tuple[str, str]:
    """Split a name into provider and model."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ConfigError(f"expected a name such as 'openai:MODEL', got {kind}; a model object is used as it is")
    provider, _, model = name.partition(":")
    return provider, model


def _openai(model: str, base_url: str | None, options: _Options) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    _require_key("openai", "OPENAI_API_KEY")
    return ChatOpenAI(model=model, base_url=base_url, max_retries=0, **options)


def _vllm(model: str, base_url: str | None, options: _Options) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=model, **_vllm_server(base_url), max_retries=0, **options)


def _gigachat(model: str, base_url: str | None, options: _Options) -> BaseChatModel:
    try:
        from langchain_gigachat import GigaChat
    except ImportError:
        raise _missing_package("gigachat") from None
    _require_key("gigachat", *_GIGACHAT_KEYS)
    address = {"base_url": base_url} if base_url else {}
    chat: BaseChatModel = GigaChat(model=model, max_retries=0, **address, **options)
    return chat


def _langchain_factory(name: str) -> Callable[[str, str | None, _Options], BaseChatModel]:
    def make(_model: str, base_url: str | None, options: _Options) -> BaseChatModel:
        try:
            from langchain.chat_models import init_chat_model
        except ImportError:
            known = ", ".join(["offline", *(f"{provider}:MODEL" for provider in _CHAT_MODELS)])
            raise ConfigError(f"{name!r} is not one of {known}; other names need `pip install langchain`") from None
        settings = {**options, "max_retries": 0, **({"base_url": base_url} if base_url else {})}
        try:
            model: BaseChatModel = init_chat_model(name, **settings)
        except Exception as error:  # clients raise different errors for a missing key or setting
            raise ConfigError(
                f"{name!r} names no judge that LangChain can build: {redact_message(error, settings)}"
            ) from None
        return model

    return make


def _openai_embeddings(provider: str, model: str, base_url: str | None) -> Embeddings:
    from langchain_openai import OpenAIEmbeddings

    # Send texts, not token ids: for ids the client would download a tokenizer.
    settings: _Options = {"model": model, "check_embedding_ctx_length": False, "max_retries": 0}
    if provider == "vllm":
        return OpenAIEmbeddings(**_vllm_server(base_url), **settings)
    _require_key("openai", "OPENAI_API_KEY")
    return OpenAIEmbeddings(openai_api_base=base_url, **settings)


def _gigachat_embeddings(model: str, base_url: str | None) -> Embeddings:
    try:
        from langchain_gigachat import GigaChatEmbeddings
    except ImportError:
        raise _missing_package("gigachat") from None
    _require_key("gigachat", *_GIGACHAT_KEYS)
    settings = {"model": model or None, "base_url": base_url}
    embeddings: Embeddings = GigaChatEmbeddings(**{name: value for name, value in settings.items() if value})
    return embeddings


def _vllm_server(base_url: str | None) -> _Options:
    if not base_url:
        raise ConfigError("vllm needs the address of its server: set base_url (--base-url http://HOST:8000/v1)")
    return {"base_url": base_url, "api_key": os.environ.get("VLLM_API_KEY", "EMPTY")}


def _require_key(provider: str, *names: str) -> None:
    if not any(os.environ.get(name) for name in names):
        raise ConfigError(f"{provider} needs a key in the environment: set {names[0]}")


def _missing_package(extra: str) -> ConfigError:
    return ConfigError(f'{extra} needs its package: pip install "langchain-rageval[{extra}]"')


_CHAT_MODELS: Mapping[str, Callable[[str, str | None, _Options], BaseChatModel]] = {
    "openai": _openai,
    "vllm": _vllm,
    "gigachat": _gigachat,
}
