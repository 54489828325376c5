"""The ladder of structured output: how each family of clients is asked for JSON, the best way first.

Every rung is a set of keyword arguments of the call, not a new Runnable, so `bind`, `with_retry` and `with_fallbacks`
around the user's model stay as they are. OpenAI's formats go through `extra_body`: as `response_format` they would
switch the SDK to a parser of its own that raises on a cut-off reply and loses its text.
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

from langchain_rageval.run.retry import status_of

Rung = Literal["json_schema", "function_calling", "json_mode", "prompt"]
Mode = Literal["auto", "json_schema", "function_calling", "json_mode", "prompt"]
Options = dict[str, Any]
Schema = Mapping[str, Any]

RUNGS: tuple[Rung, ...] = get_args(Rung)

_REFUSALS = {400, 404, 422}
_ABOUT_ROLES = re.compile(r"\broles?\b|system (?:message|prompt|instruction)", re.IGNORECASE)
_ABOUT_LENGTH = re.compile(
    r"context (?:length|window|size)|too long|too many tokens|maximum.{0,20}length", re.IGNORECASE
)


@dataclass(frozen=True)
class ClientFamily:
    """How one family of clients takes an answer's schema.

    Attributes:
        rungs: rung to the options that ask for it, given the schema and the model's own options; the rungs a client
            lacks are absent. `prompt` needs no options and is always there.
        start: the rung that "auto" tries first.
        always: options of every call. Replies are wanted whole: a streamed one may lack usage and finish reason.
        timeout: name of the call option that takes seconds, if there is one.
    """

    rungs: Mapping[Rung, Callable[[Schema, Options], Options]]
    start: Rung
    always: Mapping[str, Any] = field(default_factory=dict)
    timeout: str | None = None


def _extra_body(response_format: Mapping[str, Any], own: Options) -> Options:
    return {"extra_body": {**(own.get("extra_body") or {}), "response_format": response_format}}


def _openai_schema(schema: Schema, own: Options) -> Options:
    named = {"name": schema["title"], "schema": schema, "strict": True}
    return _extra_body({"type": "json_schema", "json_schema": named}, own)


def _openai_tool(schema: Schema, _own: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    choice = {"type": "function", "function": {"name": schema["title"]}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


def _openai_json(_schema: Schema, own: Options) -> Options:
    return _extra_body({"type": "json_object"}, own)


def _gigachat_schema(schema: Schema, _own: Options) -> Options:
    return {"response_format": {"type": "json_schema", "schema": schema, "strict": True}}


def _gigachat_function(schema: Schema, _own: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    return {"functions": [function], "function_call": {"name": schema["title"]}}


def _ollama_schema(schema: Schema, _own: Options) -> Options:
    return {"format": schema}


def _ollama_json(_schema: Schema, _own: Options) -> Options:
    return {"format": "json"}


# By the name of a class among the model's bases, so that no client has to be imported. GigaChat starts with functions:
# a server that does not know `response_format` may ignore it in silence, and nobody would notice.
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
    """The family that a model, or every model behind a wrapper, belongs to."""
    families = {id(client): client for client in map(_family_of, inner_models(model))}
    if len(families) > 1:
        return PLAIN
    client = families.popitem()[1]
    bodies = [options.get("extra_body") for options in _all_bound_options(model)]
    return client if bodies.count(bodies[0]) == len(bodies) else _without_extra_body(client)


def inner_models(model: Any) -> Iterator[Any]:
    """The models behind bindings, retries and fallbacks."""
    if isinstance(model, RunnableBindingBase):
        yield from inner_models(model.bound)
    elif isinstance(model, RunnableWithFallbacks):
        for runnable in model.runnables:
            yield from inner_models(runnable)
    else:
        yield model


def has_prefix_cache(model: Any) -> bool:
    """Whether a model's server is taken to keep the heads of prompts: an OpenAI-compatible one that speaks plain http.

    Those are people's own, vLLM for the most part. What a service behind https does, and charges, differs.
    """
    addresses = [getattr(inner, "openai_api_base", None) for inner in inner_models(model)]
    return all(str(address or "").startswith("http://") for address in addresses)


def bound_options(model: Any) -> Options:
    """The call options that the model already has, which the ladder's must be merged with, not replace."""
    return next(_all_bound_options(model))


def is_sync_only(model: Any) -> bool:
    """Whether async calls of a model would only run its sync ones in an executor."""
    return all(
        (isinstance(inner, BaseChatModel) and type(inner)._agenerate is BaseChatModel._agenerate)
        or (isinstance(inner, RunnableLambda) and not hasattr(inner, "afunc"))
        for inner in inner_models(model)
    )


def may_retry(model: Any) -> bool:
    """Whether a client, or a wrapper around it, may send a call again, so that its timeout does not bound the whole."""
    return not isinstance(model, BaseChatModel) or getattr(model, "max_retries", None) != 0


def ladder(client: ClientFamily, mode: Mode) -> list[Rung]:
    """The rungs to try, in order; a single one when the user chose it and the client has it."""
    has = [rung for rung in RUNGS if rung in client.rungs or rung == "prompt"]
    if mode != "auto":
        return [mode] if mode in has else ["prompt"]
    return has[has.index(client.start) :]


def is_format_refused(error: Exception) -> bool:
    """Whether the endpoint refused the form of the request, so that a lower rung may be taken."""
    if isinstance(error, NotImplementedError):
        return True
    too_long = isinstance(error, ContextOverflowError) or _ABOUT_LENGTH.search(str(error))
    return status_of(error) in _REFUSALS and not too_long


def is_system_message_refused(error: Exception) -> bool:
    """Whether what the endpoint refused is the system message."""
    return is_format_refused(error) and _ABOUT_ROLES.search(str(error)) is not None


def _all_bound_options(model: Any) -> Iterator[Options]:
    """The call options of the model and of each of its fallbacks."""
    if isinstance(model, RunnableBindingBase):
        yield from ({**own, **model.kwargs} for own in _all_bound_options(model.bound))
    elif isinstance(model, RunnableWithFallbacks):
        for runnable in model.runnables:
            yield from _all_bound_options(runnable)
    else:
        yield {"extra_body": getattr(model, "extra_body", None)}


def _without_extra_body(client: ClientFamily) -> ClientFamily:
    """The rungs that leave alone what each of several models has there of its own; one call's options go to all."""
    rungs: dict[Rung, Callable[[Schema, Options], Options]] = {
        rung: ask for rung, ask in client.rungs.items() if ask not in (_openai_schema, _openai_json)
    }
    return replace(client, rungs=rungs, start=next(iter(rungs), "prompt"))


def _family_of(model: Any) -> ClientFamily:
    names = {base.__name__ for base in type(model).__mro__}
    known = next((client for name, client in CLIENTS.items() if name in names), None)
    if known and not getattr(model, "use_responses_api", None):
        return known
    return _tool_family(model) or PLAIN


def _tool_family(model: Any) -> ClientFamily | None:
    """Function calling as the client itself words it, for every other chat model that can bind tools."""
    if not isinstance(model, BaseChatModel) or type(model).bind_tools is BaseChatModel.bind_tools:
        return None

    def tool(schema: Schema, _own: Options) -> Options:
        described = {"title": schema["title"], "description": schema.get("description") or schema["title"], **schema}
        bound = model.bind_tools([described], tool_choice=schema["title"])
        return dict(getattr(bound, "kwargs", {}))

    return ClientFamily({"function_calling": tool}, start="function_calling")
