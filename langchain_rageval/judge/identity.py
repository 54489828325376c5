"""Identity of a model as text, without its secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_rageval._internal.redaction import is_private_name, redact_secrets
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
_NAMES = ("model", "model_name", "deployment_name")


def model_identity(model: Any) -> str:
    """Return class, name and settings of a model, or of each model behind a wrapper, without secrets."""
    options = {name: value for name, value in _public(bound_options(model)).items() if value is not None}
    models = "+".join(_describe(inner) for inner in inner_models(model))
    return f"{models} {redact_secrets(str(options), model)}" if options else models


def _describe(model: Any) -> str:
    kind = type(model)
    settings = {name: value for name in _SETTINGS if isinstance(value := getattr(model, name, None), str | int | float)}
    function = getattr(model, "func", None) or getattr(model, "afunc", None)
    if function is not None:
        settings["function"] = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    if settings.get("model") == settings.get("model_name"):
        settings.pop("model_name", None)
    texts = {name: repr(value) for name, value in settings.items()}
    texts |= {name: redact_secrets(text, model) for name, text in texts.items() if name not in _NAMES}
    return f"{kind.__qualname__}({', '.join(f'{name}={text}' for name, text in texts.items())})"


def _public(value: Any) -> Any:
    """Return options without secrets, headers, URL queries and names of users, at any depth."""
    if not isinstance(value, Mapping):
        return value
    return {name: _public(inner) for name, inner in value.items() if not is_private_name(str(name))}
