"""Ladder of structured output: the ways to request JSON from each family of clients, best way first.

A rung is one way to request structured output, such as JSON schema, function calling or a schema in the prompt. It
is a set of keyword arguments of the call, not a new Runnable, so that `bind`, `with_retry` and `with_fallbacks`
around the user's model are kept. OpenAI's formats are passed in `extra_body`: as `response_format` they would make the
SDK parse the reply, and its parser raises on a truncated reply and loses the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import Runnable, RunnableLambda, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval.errors import message_of
from langchain_rageval.run.retry import status_of

Rung = Literal["json_schema", "function_calling", "json_mode", "prompt"]
Mode = Literal["auto", "json_schema", "function_calling", "json_mode", "prompt"]
Options = dict[str, Any]
Schema = Mapping[str, Any]

RUNGS: tuple[Rung, ...] = get_args(Rung)

_REFUSALS = {400, 404, 422}
_OUTPUT_LIMITS = (
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_tokens_to_sample"),
    *("num_predict", "n_predict", "max_length"),
)
_SETTINGS = ("model_kwargs", "extra_body", "default_options")
_MENTIONS_ROLE = re.compile(r"\broles?\b|system (?:message|prompt|instruction)", re.IGNORECASE)
_MENTIONS_TEMPERATURE = re.compile(r"temperature", re.IGNORECASE)
_MENTIONS_LENGTH = re.compile(
    r"context (?:length|window|size)|too long|too many tokens|maximum.{0,20}length", re.IGNORECASE
)


@dataclass(frozen=True)
class ClientFamily:
    """Ways to request structured output (rungs) from the clients of one family, such as OpenAI-compatible clients.

    Attributes:
        rungs: maps each supported rung to a function that returns its call options, given the schema and the options
            already bound to the model. "prompt" needs no options and is always supported.
        start: the rung that "auto" tries first.
        always: options of every call. Streaming is disabled, since streamed replies may lack usage and finish reason.
        timeout: name of the call option for a timeout in seconds; None if there is none.
    """

    rungs: Mapping[Rung, Callable[[Schema, Options], Options]]
    start: Rung
    always: Mapping[str, Any] = field(default_factory=dict)
    timeout: str | None = None


def _extra_body(response_format: Mapping[str, Any], bound: Options) -> Options:
    return {"extra_body": {**(bound.get("extra_body") or {}), "response_format": response_format}}


def _openai_schema(schema: Schema, bound: Options) -> Options:
    named = {"name": schema["title"], "schema": schema, "strict": True}
    return _extra_body({"type": "json_schema", "json_schema": named}, bound)


def _openai_tool(schema: Schema, _bound: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    choice = {"type": "function", "function": {"name": schema["title"]}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


def _openai_json(_schema: Schema, bound: Options) -> Options:
    return _extra_body({"type": "json_object"}, bound)


def _gigachat_schema(schema: Schema, _bound: Options) -> Options:
    return {"response_format": {"type": "json_schema", "schema": schema, "strict": True}}


def _gigachat_function(schema: Schema, _bound: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    return {"functions": [function], "function_call": {"name": schema["title"]}}


def _ollama_schema(schema: Schema, _bound: Options) -> Options:
    return {"format": schema}


def _ollama_json(_schema: Schema, _bound: Options) -> Options:
    return {"format": "json"}


# By the name of one of the model's base classes, so that no client has to be imported. GigaChat starts with functions:
# a server that does not support `response_format` may ignore it without an error.
CLIENTS: Mapping[str, ClientFamily] = {
    "BaseChatOpenAI": ClientFamily(
        {"json_schema": _openai_schema, "function_calling": _openai_tool, "json_mode": _openai_json},
        start="json_schema",
        always={"stream": False},
        timeout="timeout",
    ),
    "GigaChat": ClientFamily(
        {"json_schema": _gigachat_schema, "function_calling": _gigachat_function},
        start="function_calling",
        always={"stream": False},
    ),
    "ChatOllama": ClientFamily({"json_schema": _ollama_schema, "json_mode": _ollama_json}, start="json_schema"),
}
PLAIN = ClientFamily({}, start="prompt")


def client_family(model: Runnable[Any, Any]) -> ClientFamily:
    """Return the client family of a model, or the one common to all models behind a wrapper."""
    families = {id(client): client for client in map(_family_of, inner_models(model))}
    if len(families) > 1:
        return PLAIN
    client = families.popitem()[1]
    bodies = [options.get("extra_body") for options in _all_bound_options(model)]
    return client if bodies.count(bodies[0]) == len(bodies) else _without_extra_body(client)


def inner_models(model: Any) -> Iterator[Any]:
    """Yield the models behind bindings, retries and fallbacks."""
    if isinstance(model, RunnableBindingBase):
        yield from inner_models(model.bound)
    elif isinstance(model, RunnableWithFallbacks):
        for runnable in model.runnables:
            yield from inner_models(runnable)
    else:
        yield model


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


def ladder(client: ClientFamily, mode: Mode) -> list[Rung]:
    """Return the ways to request structured output (rungs) to try, best first; only one if the user chose a mode."""
    supported = [rung for rung in RUNGS if rung in client.rungs or rung == "prompt"]
    if mode != "auto":
        return [mode] if mode in supported else ["prompt"]
    return supported[supported.index(client.start) :]


def is_format_refused(error: Exception) -> bool:
    """Return True if the endpoint refused the form of the request, so that the next rung may succeed."""
    if isinstance(error, NotImplementedError):
        return True
    too_long = isinstance(error, ContextOverflowError) or _MENTIONS_LENGTH.search(message_of(error))
    return status_of(error) in _REFUSALS and not too_long


def is_system_message_refused(error: Exception) -> bool:
    """Return True if the endpoint refused the system message."""
    return is_format_refused(error) and _MENTIONS_ROLE.search(message_of(error)) is not None


def is_temperature_refused(error: Exception) -> bool:
    """Return True if the endpoint refused the temperature, as reasoning models of several providers do."""
    return status_of(error) in _REFUSALS and _MENTIONS_TEMPERATURE.search(str(error)) is not None


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
    """Yield the call options of a model and of each of its fallbacks."""
    if isinstance(model, RunnableBindingBase):
        yield from ({**options, **model.kwargs} for options in _all_bound_options(model.bound))
    elif isinstance(model, RunnableWithFallbacks):
        for runnable in model.runnables:
            yield from _all_bound_options(runnable)
    else:
        yield {"extra_body": getattr(model, "extra_body", None)}


def _without_extra_body(client: ClientFamily) -> ClientFamily:
    """Return the family without the rungs that set `extra_body`: several models differ in that option."""
    rungs: dict[Rung, Callable[[Schema, Options], Options]] = {
        rung: options for rung, options in client.rungs.items() if options not in (_openai_schema, _openai_json)
    }
    return replace(client, rungs=rungs, start=next(iter(rungs), "prompt"))


def _family_of(model: Any) -> ClientFamily:
    names = {base.__name__ for base in type(model).__mro__}
    known = next((client for name, client in CLIENTS.items() if name in names), None)
    if known and not getattr(model, "use_responses_api", None):
        return known
    return _tool_family(model) or PLAIN


def _tool_family(model: Any) -> ClientFamily | None:
    """Return how to ask a model for a schema through `bind_tools`; None if the model does not support tools."""
    if not isinstance(model, BaseChatModel) or type(model).bind_tools is BaseChatModel.bind_tools:
        return None

    def tool(schema: Schema, _bound: Options) -> Options:
        described = {"title": schema["title"], "description": schema.get("description") or schema["title"], **schema}
        bound = model.bind_tools([described], tool_choice=schema["title"])
        return dict(getattr(bound, "kwargs", {}))

    return ClientFamily({"function_calling": tool}, start="function_calling")
