"""`load_judge` and `load_embeddings`: build models by name, with keys from the environment."""

from __future__ import annotations

import importlib
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.language_models import BaseChatModel
from pydantic import SecretStr

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.errors import ConfigError, did_you_mean, message_of
from langchain_rageval.judge.judge import Judge
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge

ChatModelBuilder = Callable[[str, str | None, dict[str, Any]], BaseChatModel]
"""Function from the name of a model, the address of its server and further settings to the model."""

_GIGACHAT_KEYS = ("GIGACHAT_CREDENTIALS", "GIGACHAT_ACCESS_TOKEN", "GIGACHAT_USER", "GIGACHAT_CERT_FILE")
_GIGACHAT_FILES = ("GIGACHAT_CA_BUNDLE_FILE", "GIGACHAT_CERT_FILE", "GIGACHAT_KEY_FILE")
_OPTIONAL = ("max_retries", "temperature")
_UNKNOWN_OPTION = re.compile(
    r"unexpected keyword|extra inputs|extra fields|not permitted|unknown (?:option|parameter)", re.I
)
_CONTEXT_TOKENS, _REPLY_TOKENS, _BATCH_TOKENS = 8192, 2048, 512  # LangChain's 512, 256 and 8 are too few for a judge


def init_chat_model(name: str, base_url: str | None, settings: dict[str, Any]) -> BaseChatModel:
    """Return the chat model that LangChain builds for a name; omit settings that the model's class does not know.

    Raises:
        ConfigError: if LangChain cannot build the model, or a package or key is missing.
    """
    provider = name.partition(":")[0]
    build = _factory(name)
    settings = {**settings, "max_retries": 0, **({_ADDRESSES.get(provider, "base_url"): base_url} if base_url else {})}
    while True:
        try:
            model = build(**settings)
        except Exception as error:  # clients raise different errors for a missing key or setting
            message = message_of(error)
            unknown = [option for option in _OPTIONAL if option in settings and re.search(rf"\b{option}\b", message)]
            if not unknown or not _UNKNOWN_OPTION.search(message):
                problem = redact_message(error, settings) + did_you_mean(provider, CHAT_MODELS)
                raise ConfigError(f"{name!r} names no judge that LangChain can build: {problem}") from None
            del settings[unknown[0]]
        else:
            key = getattr(model, "anthropic_api_key", None) if provider == "anthropic" else None
            if isinstance(key, SecretStr) and not key.get_secret_value():  # found out in the first call otherwise
                raise ConfigError("anthropic needs a key in the environment: set ANTHROPIC_API_KEY")
            return model


def _factory(name: str) -> Callable[..., BaseChatModel]:
    """Return the class of a known provider, or LangChain's function for another name."""
    provider, _, model = name.partition(":")
    if provider in _CLASSES:
        return partial(_imported(provider, *_CLASSES[provider]), model=model)
    try:
        from langchain.chat_models import init_chat_model as build
    except ImportError:
        raise ConfigError(f"{name!r} is not one of {KNOWN_NAMES}; other names need `pip install langchain`") from None
    return partial(build, name)


def _server(provider: str, base_url: str | None) -> dict[str, Any]:
    """Return address and key of a server of OpenAI or vLLM as settings of a client.

    Raises:
        ConfigError: if there is no key, or no address of vLLM.
    """
    if provider == "openai":
        _require_key("openai", "OPENAI_API_KEY")
        return {"base_url": base_url}
    if not base_url:
        raise ConfigError("vllm needs the address of its server: set base_url (--base-url http://HOST:8000/v1)")
    return {"base_url": base_url, "api_key": os.environ.get("VLLM_API_KEY", "EMPTY")}


def _require_key(provider: str, *names: str) -> None:
    """Raise ConfigError if none of some environment variables is set."""
    if not any(os.environ.get(name) for name in names):
        raise ConfigError(f"{provider} needs a key in the environment: set {' or '.join(names)}")


def _served(provider: str, model: str, base_url: str | None, settings: dict[str, Any]) -> BaseChatModel:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(model=model, **_server(provider, base_url), max_retries=0, **settings)


def _gigachat(kind: str, **settings: Any) -> Any:
    """Return the chat model or the embeddings of GigaChat; settings that are None are left out."""
    build: Any = _imported("gigachat", "langchain_gigachat", kind)
    _require_key("gigachat", *_GIGACHAT_KEYS)
    for name in _GIGACHAT_FILES:
        if (path := os.environ.get(name)) and not Path(path).is_file():
            raise ConfigError(f"{name} names the file {path!r}, which does not exist: correct the path")
    return build(**{name: value for name, value in settings.items() if value is not None})


def _of_langchain(provider: str) -> ChatModelBuilder:
    return lambda model, base_url, settings: init_chat_model(f"{provider}:{model}", base_url, settings)


def _yandexgpt(model: str, base_url: str | None, settings: dict[str, Any]) -> BaseChatModel:
    _require_module("yandexgpt", "yandexcloud", "yandexcloud")
    _require_key("yandexgpt", "YC_API_KEY", "YC_IAM_TOKEN")
    if "://" in model:
        named = {"model_uri": model}
    else:
        if not os.environ.get("YC_FOLDER_ID"):
            raise ConfigError("yandexgpt needs the folder of the cloud in the environment: set YC_FOLDER_ID")
        name, _, version = model.partition("/")
        named = {"model_name": name, **({"model_version": version} if version else {})}
    chat = _imported("yandexgpt", "langchain_community.chat_models", "ChatYandexGPT")
    address = {"url": base_url} if base_url else {}
    return _built("yandexgpt", chat, max_retries=1, **address, **named, **settings)  # 1 is one attempt


def _llamacpp(path: str, base_url: str | None, settings: dict[str, Any]) -> BaseChatModel:
    _require_module("llamacpp", "llama_cpp", "llama-cpp-python")
    file = Path(path).expanduser()
    if not file.is_file():
        raise ConfigError(
            f"llamacpp needs the path of a GGUF file, as in llamacpp:model.gguf; there is no file {path!r}"
        )
    if base_url:
        raise ConfigError("llamacpp runs the model in this process; for a server use vllm:MODEL with base_url")
    chat = _imported("llamacpp", "langchain_community.chat_models", "ChatLlamaCpp")
    sizes = {"n_ctx": _CONTEXT_TOKENS, "n_batch": _BATCH_TOKENS, "max_tokens": _REPLY_TOKENS}
    return _built("llamacpp", chat, model_path=str(file), streaming=False, verbose=False, **sizes, **settings)


def _require_module(provider: str, module: str, package: str) -> None:
    """Raise ConfigError if a module is not installed that a client imports only in its first call."""
    if find_spec(module) is None:
        raise ConfigError(f"{provider} needs its package: pip install {package}")


def _imported(provider: str, module: str, name: str) -> type[BaseChatModel]:
    """Return a class of an optional package; raise ConfigError if the package is missing."""
    try:
        with warnings.catch_warnings():  # langchain-community warns that it is no longer maintained
            warnings.simplefilter("ignore", DeprecationWarning)
            kind: type[BaseChatModel] = getattr(importlib.import_module(module), name)
    except ImportError:
        package = module.partition(".")[0].replace("_", "-")
        raise ConfigError(f"{provider} needs its package: pip install {package}") from None
    return kind


def _built(provider: str, chat: type[BaseChatModel], **settings: Any) -> BaseChatModel:
    """Return a chat model; an error of its constructor becomes a ConfigError without secrets."""
    try:
        return chat(**settings)
    except Exception as error:
        problem = redact_message(error, settings, dict(os.environ))
        raise ConfigError(f"{provider}: {chat.__name__} cannot be built: {problem}") from None


_CLASSES = {
    "anthropic": ("langchain_anthropic", "ChatAnthropic"),
    "ollama": ("langchain_ollama", "ChatOllama"),
    "litellm": ("langchain_litellm", "ChatLiteLLM"),
}
_ADDRESSES = {"litellm": "api_base"}

CHAT_MODELS: Mapping[str, ChatModelBuilder] = {
    **{provider: partial(_served, provider) for provider in ("openai", "vllm")},
    "gigachat": lambda model, base_url, settings: _gigachat(
        "GigaChat", model=model, base_url=base_url or None, max_retries=0, **settings
    ),
    **{provider: _of_langchain(provider) for provider in _CLASSES},
    "yandexgpt": _yandexgpt,
    "llamacpp": _llamacpp,
}
"""Builders of chat models by the name of the provider."""

KNOWN_NAMES = ", ".join(["offline", *(f"{name}:{'PATH' if name == 'llamacpp' else 'MODEL'}" for name in CHAT_MODELS)])
"""Names of judges, for error messages."""


# Models that answer a request with a temperature by an error. `Endpoint` omits it for others that do.
_NO_TEMPERATURE = re.compile(
    r"(?:^|[/:.])(?:o[1-9](?:$|[-:])|gpt-5(?!.*chat)|codex-|claude-opus-(?:4[-.](?:[7-9]|[1-9]\d)(?!\d)|[5-9]))",
    re.IGNORECASE,
)
_SELF_HOSTED = ("vllm", "gigachat", "ollama", "llamacpp", "yandexgpt")


def load_judge(name: str, *, base_url: str | None = None, temperature: float = 0.1, **options: Any) -> Judge:
    """Return a judge, given the name of its model.

    The client of the model does not retry, because `evaluate` does.

    Args:
        name: "offline", "openai:MODEL", "vllm:MODEL" with `base_url`, "gigachat:MODEL", "anthropic:MODEL",
            "ollama:MODEL", "litellm:PROVIDER/MODEL", "yandexgpt:MODEL" or "llamacpp:PATH", the path of a GGUF file that
            runs in this process. Any name that LangChain's `init_chat_model` accepts is also valid, such as
            "mistralai:MODEL" or "gpt-5". Keys are read from the provider's environment variables.
        base_url: address of the server, such as "http://localhost:8000/v1".
        temperature: sampling temperature of the model. It is not sent to reasoning models that accept none, such as
            "openai:o3".
        options: options of `Judge`, such as `language="ru"`.

    Raises:
        ConfigError: if the name or an option is unknown, or a key, an address, a file or a package is missing.
    """
    provider, model = _split_name(name)
    known = [option.name for option in fields(Judge) if option.init and option.name != "model"]
    if unknown := [option for option in options if option not in known]:
        raise ConfigError(
            f"load_judge got unknown options {', '.join(map(repr, unknown))}: it takes base_url, temperature, "
            f"{', '.join(known)}; for an option of the model, build the model and pass Judge(model)"
            f"{did_you_mean(unknown[0], [*known, 'temperature', 'base_url'])}"
        )
    if name == "offline":
        return Judge(OfflineJudge(), **options)
    if not model and (provider in CHAT_MODELS or not name):
        raise ConfigError(f"{name!r} names no judge; use {KNOWN_NAMES}")
    if not model and (hint := did_you_mean(name, ["offline", *CHAT_MODELS])):
        raise ConfigError(f"{name!r} names no judge; use {KNOWN_NAMES}{hint}")
    accepts_temperature = provider in _SELF_HOSTED or not _NO_TEMPERATURE.search(name)
    settings = {"temperature": temperature} if accepts_temperature else {}
    if provider in CHAT_MODELS:
        return Judge(CHAT_MODELS[provider](model, base_url, settings), **options)
    return Judge(init_chat_model(name, base_url, settings), **options)


def load_embeddings(name: str, *, base_url: str | None = None) -> Embeddings:
    """Return an embeddings object, given its name.

    Args:
        name: "offline", "openai:MODEL", "vllm:MODEL" with `base_url`, "gigachat" or "gigachat:MODEL".
        base_url: address of the server, such as "http://localhost:8000/v1".

    Raises:
        ConfigError: if the name is unknown, or a key, an address or a package is missing.
    """
    provider, model = _split_name(name)
    if name == "offline":
        return HashingEmbeddings()
    if provider == "gigachat":
        embeddings: Embeddings = _gigachat("GigaChatEmbeddings", model=model or None, base_url=base_url or None)
        return embeddings
    if provider in ("openai", "vllm") and model:
        from langchain_openai import OpenAIEmbeddings

        # Send texts, not token ids: for ids the client would download a tokenizer.
        server = _server(provider, base_url)
        return OpenAIEmbeddings(model=model, check_embedding_ctx_length=False, max_retries=0, **server)
    hint = did_you_mean(provider, ("offline", "openai", "vllm", "gigachat"))
    known = f"offline, openai:MODEL, vllm:MODEL, gigachat[:MODEL]{hint}"
    raise ConfigError(f"{name!r} names no embeddings; use {known}")


def _split_name(name: Any) -> tuple[str, str]:
    """Split a name into provider and model."""
    if not isinstance(name, str):
        kind = type(name).__name__
        raise ConfigError(f"expected a name such as 'openai:MODEL', got {kind}; a model object is used as it is")
    provider, _, model = name.partition(":")
    return provider, model
