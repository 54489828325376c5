"""Ladder of structured output: the ways to request JSON from each family of clients, best way first.

A rung is one way to request structured output, such as JSON schema, function calling or a schema in the prompt. It
is a set of keyword arguments of the call, not a new Runnable, so that `bind`, `with_retry` and `with_fallbacks`
around the user's model are kept. OpenAI's formats are passed in `extra_body`: as `response_format` they would make the
SDK parse the reply, and its parser raises on a truncated reply and loses the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from langchain_rageval.errors import ConfigError, message_of
from langchain_rageval.judge.client_families import PLAIN, ClientFamily, Options, Schema, family_of, without_extra_body
from langchain_rageval.run.retry import status_of

Rung = Literal["json_schema", "function_calling", "json_mode", "prompt"]
Mode = Literal["auto", "json_schema", "function_calling", "json_mode", "prompt"]
OwnRung = Callable[[Schema], Options]
"""A user's way to request structured output: a function from the answer's schema to options of the call."""

RUNGS: tuple[Rung, ...] = get_args(Rung)

_REFUSALS = {400, 404, 405, 415, 422}
_CLIENT_REFUSALS = (TypeError, ValueError)  # raised by a client, or by an engine in this process
_OUTPUT_LIMITS = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample"),
    *("num_predict", "n_predict", "max_length"),
)
_SETTINGS = ("model_kwargs", "extra_body", "default_options")
_MENTIONS_ROLE = re.compile(r"\broles?\b|system (?:message|prompt|instruction)", re.IGNORECASE)
_MENTIONS_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)
_MENTIONS_LOG_PROBABILITIES = re.compile(r"log[ _-]?prob", re.IGNORECASE)
_MENTIONS_LENGTH = re.compile(
    r"context (?:length|window|size)|too long|too many tokens|maximum.{0,20}length", re.IGNORECASE
)


def client_family(model: Runnable[Any, Any]) -> ClientFamily:
    """Return the client family of a model, or the one common to all models behind a wrapper."""
    families = {client.name: client for client in map(family_of, inner_models(model))}
    if len(families) > 1:
        return PLAIN
    client = families.popitem()[1]
    bodies = [options.get("extra_body") for options in _all_bound_options(model)]
    return client if bodies.count(bodies[0]) == len(bodies) else without_extra_body(client)


def inner_models(model: Any) -> Iterator[Any]:
    """Yield the models behind bindings, retries, fallbacks and configurable models, the first choice first."""
    wrapped = _wrapped_runnables(model)
    if wrapped is None:
        yield model
    else:
        for runnable in wrapped:
            yield from inner_models(runnable)


def without_fallbacks(model: Any) -> Any:
    """Return a model without its fallbacks, which would hide that the first model refuses a format."""
    if isinstance(model, RunnableBindingBase):
        return model.model_copy(update={"bound": without_fallbacks(model.bound)})
    return without_fallbacks(model.runnable) if isinstance(model, RunnableWithFallbacks) else model


def has_fallbacks(model: Any) -> bool:
    """Return True if a model, or the model of a binding, has fallbacks."""
    if isinstance(model, RunnableBindingBase):
        return has_fallbacks(model.bound)
    return isinstance(model, RunnableWithFallbacks)


def bound_options(model: Any) -> Options:
    """Return the call options already bound to a model; options that request structured output are merged with them."""
    return next(_all_bound_options(model))


def output_limit(model: Any) -> tuple[str, int] | None:
    """Return name and value of the setting that limits the length of a model's replies; None if there is none."""
    inner = next(inner_models(model))
    for settings in (bound_options(model), *(getattr(inner, name, None) for name in _SETTINGS), inner):
        for name in _OUTPUT_LIMITS:
            value = settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return name, value
    return None


def is_sync_only(model: Any) -> bool:
    """Return True if a model's async methods only run its sync ones in an executor."""
    return all(
        (isinstance(inner, BaseChatModel) and type(inner)._agenerate is BaseChatModel._agenerate)
        or (isinstance(inner, RunnableLambda) and not hasattr(inner, "afunc"))
        for inner in inner_models(model)
    )


def may_retry(model: Any) -> bool:
    """Return True if a client or its wrapper may retry a call, so that its timeout does not bound the whole call."""
    return not isinstance(model, BaseChatModel) or getattr(model, "max_retries", None) != 0


def with_own_rung(client: ClientFamily, rung: OwnRung) -> ClientFamily:
    """Return a client family with a rung of the user added, under the name of its function."""

    def options(schema: Schema, bound: Options) -> Options:
        given = rung(schema)
        if not isinstance(given, Mapping):
            name, kind = rung_name(rung), type(given).__name__
            raise ConfigError(f"mode {name} must return a mapping of options of the call, got {kind}")
        chosen = dict(given)
        if "extra_body" in chosen:
            chosen["extra_body"] = {**(bound.get("extra_body") or {}), **chosen["extra_body"]}
        return chosen

    return replace(client, rungs={**client.rungs, rung_name(rung): options})


def rung_name(mode: Mode | OwnRung) -> str:
    """Return the name of a mode; of a function, its own."""
    return mode if isinstance(mode, str) else str(getattr(mode, "__name__", type(mode).__name__))


def ladder(client: ClientFamily, mode: Mode | OwnRung) -> list[str]:
    """Return the ways to request structured output (rungs) to try, best first; only one if the user chose a mode."""
    if not isinstance(mode, str):
        return [rung_name(mode)]
    supported: list[str] = [rung for rung in RUNGS if rung in client.rungs or rung == "prompt"]
    if mode != "auto":
        return [mode] if mode in supported else ["prompt"]
    return supported[supported.index(client.start) :]


def is_format_refused(error: Exception) -> bool:
    """Return True if an endpoint or its client refused the form of the request, so that the next rung may succeed."""
    if isinstance(error, ContextOverflowError) or _MENTIONS_LENGTH.search(message_of(error)):
        return False
    return status_of(error) in _REFUSALS or isinstance(error, NotImplementedError) or type(error) in _CLIENT_REFUSALS


def is_system_message_refused(error: Exception) -> bool:
    """Return True if the endpoint refused the system message."""
    return is_format_refused(error) and _MENTIONS_ROLE.search(message_of(error)) is not None


def is_temperature_refused(error: Exception) -> bool:
    """Return True if the endpoint refused the temperature, as reasoning models of several providers do."""
    return status_of(error) in _REFUSALS and _MENTIONS_TEMPERATURE.search(str(error)) is not None


def is_log_probability_refused(error: Exception) -> bool:
    """Return True if the endpoint or its client refused to return token log-probabilities."""
    refused = status_of(error) in {403, *_REFUSALS} or type(error) in _CLIENT_REFUSALS
    return refused and _MENTIONS_LOG_PROBABILITIES.search(message_of(error)) is not None


def sends_temperature(model: Any) -> bool:
    """Return True if a model, or a binding around it, sets a temperature that can be omitted."""
    if isinstance(model, RunnableBindingBase):
        return model.kwargs.get("temperature") is not None or sends_temperature(model.bound)
    return isinstance(model, BaseChatModel) and getattr(model, "temperature", None) is not None


def without_temperature(model: Any) -> Any:
    """Return a copy of a model, and of the bindings around it, without a temperature."""
    if isinstance(model, RunnableBindingBase):
        kwargs = {name: value for name, value in model.kwargs.items() if name != "temperature"}
        return model.model_copy(update={"bound": without_temperature(model.bound), "kwargs": kwargs})
    return model.model_copy(update={"temperature": None}) if sends_temperature(model) else model


def _all_bound_options(model: Any) -> Iterator[Options]:
    """Yield the call options of each of the inner models."""
    wrapped = _wrapped_runnables(model)
    if wrapped is None:
        yield {"extra_body": getattr(model, "extra_body", None)}
        return
    own = model.kwargs if isinstance(model, RunnableBindingBase) else {}
    for runnable in wrapped:
        yield from ({**options, **own} for options in _all_bound_options(runnable))


def _wrapped_runnables(model: Any) -> list[Any] | None:
    """Return the Runnables that a wrapper calls, or may call; None for a model that is not wrapped."""
    if isinstance(model, RunnableBindingBase):
        return [model.bound]
    if isinstance(model, RunnableWithFallbacks):
        return list(model.runnables)
    if isinstance(model, DynamicRunnable):
        alternatives = getattr(model, "alternatives", {}).values()
        return [model.default, *(runnable for runnable in alternatives if isinstance(runnable, Runnable))]
    if type(model).__name__ == "_ConfigurableModel":  # of `init_chat_model`
        try:
            return [model._model()]
        except Exception:  # nothing by default: the model is chosen with each call
            return None
    return None
