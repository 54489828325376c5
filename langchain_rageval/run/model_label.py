"""Short names of models for error messages."""

from __future__ import annotations

from typing import Any

from langchain_core.runnables import RunnableLambda, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval._internal.secret_names import without_keys

_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id")


def model_label(model: Any) -> str:
    """Return class and name of a model, embeddings or cross-encoder, such as "ChatOpenAI gpt-5-mini".

    Of a binding it is that of the bound model, of fallbacks those of all, and of a sequence those of its parts.
    Without a model it is "the model".
    """
    if isinstance(model, RunnableBindingBase):
        return model_label(model.bound)
    if isinstance(model, RunnableWithFallbacks):
        return " or ".join(dict.fromkeys(map(model_label, model.runnables)))
    if isinstance(model, RunnableSequence):
        return " | ".join(map(model_label, model.steps))
    if isinstance(model, RunnableLambda):
        return model.get_name()
    if model is None:
        return "the model"
    names = (getattr(model, field, None) for field in _NAMES)
    name = next((name for name in names if isinstance(name, str) and name), "")
    return f"{type(model).__name__} {without_keys(name)}".strip()
