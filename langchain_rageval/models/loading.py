"""load_judge and load_embeddings: build a judge or embeddings from a name, as the command line does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from typing import Any

from langchain_core.embeddings import Embeddings

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge
from langchain_rageval.models.providers import (
    CHAT_MODELS,
    GIGACHAT_KEYS,
    KNOWN_NAMES,
    init_chat_model,
    missing_package,
    require_key,
    vllm_server,
)

# Models that answer a request with a temperature by an error. `Endpoint` omits it for others that do.
_NO_TEMPERATURE = re.compile(
    r"(?:^|[/:.])(?:o[1-9](?:$|[-:])|gpt-5(?!.*chat)|codex-|claude-opus-(?:4[-.](?:[7-9]|[1-9]\d)(?!\d)|[5-9]))",
    re.IGNORECASE,
)
_SELF_HOSTED = ("vllm", "gigachat", "ollama", "llamacpp", "yandexgpt")


def load_judge(name: str, *, base_url: str | None = None, temperature: float = 0.1, **options: Any) -> Judge:
    """Return a judge by the name of its model.

    The client of the model does not retry, because `evaluate` does.

    Args:
        name: "offline", "openai:MODEL", "vllm:MODEL" with `base_url`, "gigachat:MODEL", "anthropic:MODEL",
            "ollama:MODEL", "litellm:PROVIDER/MODEL", "yandexgpt:MODEL", "llamacpp:PATH" of a GGUF file, which runs in
            this process, or any name that LangChain's `init_chat_model` accepts, such as "mistralai:MODEL" or "gpt-5".
            Keys are read from the provider's environment variables.
        base_url: address of the server, such as "http://localhost:8000/v1".
        temperature: sampling temperature of the model. It is not sent to reasoning models that accept none, such as
            "openai:o3".
        options: options of `Judge`, such as `language="ru"`.

    Raises:
        ConfigError: if the name or an option is unknown, or a key, an address, a file or a package is missing.
    """
    provider, model = _split_name(name)
    _check_options(options)
    if name == "offline":
        return Judge(OfflineJudge(), **options)
    if not model and (provider in CHAT_MODELS or not name):
        raise ConfigError(f"{name!r} names no judge; use {KNOWN_NAMES}")
    accepts_temperature = provider in _SELF_HOSTED or not _NO_TEMPERATURE.search(name)
    settings = {"temperature": temperature} if accepts_temperature else {}
    if provider in CHAT_MODELS:
        return Judge(CHAT_MODELS[provider](model, base_url, settings), **options)
    return Judge(init_chat_model(name, base_url, settings), **options)


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


def _check_options(options: Mapping[str, Any]) -> None:
    known = [option.name for option in fields(Judge) if option.init and option.name != "model"]
    unknown = [option for option in options if option not in known]
    if unknown:
        similar = get_close_matches(unknown[0], [*known, "temperature", "base_url"], n=1)
        hint = f"did you mean {similar[0]!r}? " if similar else ""
        raise ConfigError(
            f"load_judge got unknown options {', '.join(map(repr, unknown))}: {hint}It takes base_url, temperature, "
            f"{', '.join(known)}. For an option of the model, build the model and pass Judge(model)"
        )


def _split_name(name: Any) -> tuple[str, str]:
    """Split a name into provider and model."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ConfigError(f"expected a name such as 'openai:MODEL', got {kind}; a model object is used as it is")
    provider, _, model = name.partition(":")
    return provider, model


def _openai_embeddings(provider: str, model: str, base_url: str | None) -> Embeddings:
    from langchain_openai import OpenAIEmbeddings

    # Send texts, not token ids: for ids the client would download a tokenizer.
    settings: dict[str, Any] = {"model": model, "check_embedding_ctx_length": False, "max_retries": 0}
    if provider == "vllm":
        return OpenAIEmbeddings(**vllm_server(base_url), **settings)
    require_key("openai", "OPENAI_API_KEY")
    return OpenAIEmbeddings(openai_api_base=base_url, **settings)


def _gigachat_embeddings(model: str, base_url: str | None) -> Embeddings:
    try:
        from langchain_gigachat import GigaChatEmbeddings
    except ImportError:
        raise missing_package("gigachat") from None
    require_key("gigachat", *GIGACHAT_KEYS)
    settings = {"model": model or None, "base_url": base_url}
    embeddings: Embeddings = GigaChatEmbeddings(**{name: value for name, value in settings.items() if value})
    return embeddings
