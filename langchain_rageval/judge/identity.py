"""Which model a judge is, told without its secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import SecretStr

from langchain_rageval.judge.ladder import bound_options, inner_models

_TELLING = (
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
_AUTHORIZATION = re.compile(r"\b(Bearer|Basic) [\w.~+/=-]{6,}", re.IGNORECASE)  # also a token that the client fetched
_SHORTEST_SECRET = 6


def identity(model: Any) -> str:
    """Class, name and settings of a model, of each one behind a wrapper."""
    bound = {name: value for name, value in _public(bound_options(model)).items() if value is not None}
    told = "+".join(_told(inner) for inner in inner_models(model))
    return without_keys(f"{told} {bound}" if bound else told)


def without_keys(text: str) -> str:
    """The text without names, passwords and keys in addresses."""
    return _QUERY_KEY.sub(r"\1***", _USERINFO.sub("//", text))


def redact(text: str, model: Any) -> str:
    """The text with the model's keys and passwords, should it quote them, blotted out; also those in addresses."""
    for inner in inner_models(model):
        for secret in _secrets(inner):
            text = text.replace(secret, "***")
    return _AUTHORIZATION.sub(r"\1 ***", without_keys(text))


def _told(model: Any) -> str:
    kind = type(model)
    settings = {name: value for name in _TELLING if isinstance(value := getattr(model, name, None), str | int | float)}
    function = getattr(model, "func", None) or getattr(model, "afunc", None)
    if function is not None:
        settings["function"] = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    if settings.get("model") == settings.get("model_name"):
        settings.pop("model_name", None)
    return f"{kind.__qualname__}({', '.join(f'{name}={value!r}' for name, value in settings.items())})"


def _secret(name: str) -> bool:
    return _SECRET_NAMES.search(name) is not None


def _public(value: Any) -> Any:
    """Options without those that hold secrets, at any depth."""
    if not isinstance(value, Mapping):
        return value
    return {name: _public(inner) for name, inner in value.items() if not _secret(str(name))}


def _secrets(model: Any) -> Iterator[str]:
    for name, value in getattr(model, "__dict__", {}).items():
        if isinstance(value, SecretStr):
            value = value.get_secret_value()
        elif not _secret(name):
            continue
        if isinstance(value, str) and len(value) >= _SHORTEST_SECRET:
            yield value
