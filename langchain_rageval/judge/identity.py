"""Identity of a model as text, without its secrets, and removal of secrets from other texts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from langchain_rageval.judge.ladder import bound_options, inner_models

_SETTINGS = (
    "model",
    "model_name",
    "deployment_name",
    "base_url",
    "openai_api_base",
    "azure_endpoint",
    "temperature",
    "top_p",
    "top_k",
    "seed",
    "max_tokens",
    "num_predict",
    "repetition_penalty",
    "frequency_penalty",
    "presence_penalty",
    "reasoning_effort",
    "profanity_check",
    "dimensions",
    "size",
)
_SECRET_NAMES = re.compile(r"key|secret|password|credential|token$|header|authorization", re.IGNORECASE)
_USERINFO = re.compile(r"//[^/@\s]*@")
_QUERY_KEY = re.compile(r"""([?&][\w.-]*(?:key|secret|password|credentials?|token)=)[^&\s'"]+""", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"\b(Bearer|Basic) [\w.~+/=-]{6,}", re.IGNORECASE
)  # also covers a token that the client has fetched
_MIN_SECRET_LENGTH = 6


def model_identity(model: Any) -> str:
    """Return class, name and settings of a model, or of each model behind a wrapper, without secrets."""
    options = {name: value for name, value in _public(bound_options(model)).items() if value is not None}
    models = "+".join(_describe(inner) for inner in inner_models(model))
    return redact_urls(f"{models} {options}" if options else models)


def redact_urls(text: str) -> str:
    """Return a text without the user names, passwords and keys in its URLs."""
    return _QUERY_KEY.sub(r"\1***", _USERINFO.sub("//", text))


def redact_secrets(text: str, model: Any) -> str:
    """Return a text in which a model's keys and passwords, and those in URLs, are replaced by `***`.

    Args:
        text: for example an error message that quotes them.
        model: the model, or a wrapper of several models.
    """
    for inner in inner_models(model):
        for secret in _secrets(inner):
            text = text.replace(secret, "***")
    return _AUTHORIZATION.sub(r"\1 ***", redact_urls(text))


def _describe(model: Any) -> str:
    kind = type(model)
    settings = {name: value for name in _SETTINGS if isinstance(value := getattr(model, name, None), str | int | float)}
    function = getattr(model, "func", None) or getattr(model, "afunc", None)
    if function is not None:
        settings["function"] = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    if settings.get("model") == settings.get("model_name"):
        settings.pop("model_name", None)
    return f"{kind.__qualname__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _is_secret(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


def _public(value: Any) -> Any:
    """Return a mapping of options without the options that contain secrets, at any depth."""
    if not isinstance(value, Mapping):
        return value
    return {name: _public(inner) for name, inner in value.items() if not _is_secret(str(name))}


def _secrets(model: Any) -> Iterator[str]:
    for name, value in getattr(model, "__dict__", {}).items():
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif not _is_secret(name):
            continue
        if isinstance(value, str) and len(value) >= _MIN_SECRET_LENGTH:
            yield value
