"""Families of clients: how each takes a request for structured output, as options of a call.

A family is found by the name of one of the model's base classes, so that no client has to be imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from langchain_core.language_models import BaseChatModel

Options = dict[str, Any]
Schema = Mapping[str, Any]
RungOptions = Callable[[Schema, Options], Options]


@dataclass(frozen=True)
class ClientFamily:
    """Ways to request structured output (rungs) from the clients of one family, such as OpenAI-compatible clients.

    Attributes:
        name: name of the family; equal for models whose clients take the same options.
        rungs: maps each supported rung to a function that returns its call options, given the schema and the options
            already bound to the model. "prompt" needs no options and is always supported.
        start: the rung that "auto" tries first.
        always: options of every call. Streaming is disabled, since streamed replies may lack usage and finish reason.
        timeout: name of the call option for a timeout in seconds; None if there is none.
        grammar: True if the engine behind the clients builds a grammar for each request, so that the schema of a
            request may differ from that of the last one at no cost.
        probabilities: options that request the log-probabilities of the tokens; none if the clients return none.
    """

    name: str
    rungs: Mapping[str, RungOptions]
    start: str
    always: Mapping[str, Any] = field(default_factory=dict)
    timeout: str | None = None
    grammar: bool = False
    probabilities: Mapping[str, Any] = field(default_factory=dict)


def _named(schema: Schema) -> Options:
    return {"name": schema["title"], "schema": schema, "strict": True}


def _extra_body(response_format: Mapping[str, Any], bound: Options) -> Options:
    return {"extra_body": {**(bound.get("extra_body") or {}), "response_format": response_format}}


def _openai_schema(schema: Schema, bound: Options) -> Options:
    return _extra_body({"type": "json_schema", "json_schema": _named(schema)}, bound)


def _openai_tool(schema: Schema, _bound: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    choice = {"type": "function", "function": {"name": schema["title"]}}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": choice}


def _openai_json(_schema: Schema, bound: Options) -> Options:
    return _extra_body({"type": "json_object"}, bound)


def _responses_schema(schema: Schema, bound: Options) -> Options:
    return {"text": {**(bound.get("text") or {}), "format": {"type": "json_schema", **_named(schema)}}}


def _responses_json(_schema: Schema, bound: Options) -> Options:
    return {"text": {**(bound.get("text") or {}), "format": {"type": "json_object"}}}


def _gigachat_schema(schema: Schema, _bound: Options) -> Options:
    return {"response_format": {"type": "json_schema", "schema": schema, "strict": True}}


def _gigachat_function(schema: Schema, _bound: Options) -> Options:
    function = {"name": schema["title"], "description": schema.get("description", ""), "parameters": schema}
    return {"functions": [function], "function_call": {"name": schema["title"]}}


def _ollama_schema(schema: Schema, _bound: Options) -> Options:
    return {"format": schema}


def _ollama_json(_schema: Schema, _bound: Options) -> Options:
    return {"format": "json"}


def _anthropic_schema(schema: Schema, bound: Options) -> Options:
    wanted = {"type": "json_schema", "schema": schema}
    return {"output_config": {**(bound.get("output_config") or {}), "format": wanted}}


def _gemini_schema(schema: Schema, _bound: Options) -> Options:
    return {"response_mime_type": "application/json", "response_json_schema": schema}


def _gemini_json(_schema: Schema, _bound: Options) -> Options:
    return {"response_mime_type": "application/json"}


def _format_schema(schema: Schema, _bound: Options) -> Options:
    return {"response_format": {"type": "json_schema", "json_schema": _named(schema)}}


def _format_json(_schema: Schema, _bound: Options) -> Options:
    return {"response_format": {"type": "json_object"}}


def _llama_cpp_schema(schema: Schema, _bound: Options) -> Options:
    return {"response_format": {"type": "json_object", "schema": schema}}


_LOG_PROBABILITIES = {"logprobs": True, "top_logprobs": 20}  # 20 is the most that OpenAI and vLLM return

_FORMATS: Mapping[str, RungOptions] = {"json_schema": _format_schema, "json_mode": _format_json}

_RESPONSES = ClientFamily(
    "Responses API", {"json_schema": _responses_schema, "json_mode": _responses_json}, start="json_schema"
)

# GigaChat starts with functions: a server that does not support `response_format` may ignore it without an error.
_FAMILIES = [
    ClientFamily(
        "BaseChatOpenAI",
        {"json_schema": _openai_schema, "function_calling": _openai_tool, "json_mode": _openai_json},
        start="json_schema",
        always={"stream": False},
        timeout="timeout",
        probabilities=_LOG_PROBABILITIES,
    ),
    ClientFamily(
        "GigaChat",
        {"json_schema": _gigachat_schema, "function_calling": _gigachat_function},
        start="function_calling",
        always={"stream": False},
    ),
    ClientFamily(
        "ChatOllama", {"json_schema": _ollama_schema, "json_mode": _ollama_json}, start="json_schema", grammar=True
    ),
    ClientFamily("ChatAnthropic", {"json_schema": _anthropic_schema}, start="json_schema"),
    ClientFamily(
        "ChatGoogleGenerativeAI", {"json_schema": _gemini_schema, "json_mode": _gemini_json}, start="json_schema"
    ),
    ClientFamily("ChatMistralAI", _FORMATS, start="json_schema"),
    ClientFamily("ChatGroq", _FORMATS, start="json_schema"),
    ClientFamily("ChatLiteLLM", _FORMATS, start="json_schema"),
    ClientFamily("ChatHuggingFace", _FORMATS, start="json_schema"),
    ClientFamily(
        "ChatLlamaCpp",
        {"json_schema": _llama_cpp_schema, "json_mode": _format_json},
        start="json_schema",
        grammar=True,
        probabilities=_LOG_PROBABILITIES,
    ),
]

CLIENTS: Mapping[str, ClientFamily] = {family.name: family for family in _FAMILIES}
"""Families by the name of a class. Those without their own "function_calling" use `bind_tools`, except Ollama's."""

PLAIN = ClientFamily("unknown", {}, start="prompt")


def family_of(model: Any) -> ClientFamily:
    """Return the client family of a model that is not wrapped; one without rungs for unknown clients without tools."""
    names = {base.__name__ for base in type(model).__mro__}
    known = next((client for name, client in CLIENTS.items() if name in names), None)
    if known is None:
        return _with_tools(PLAIN, model)
    if "BaseChatOpenAI" in names and _uses_responses(model):
        return _with_tools(_RESPONSES, model)
    if "ChatHuggingFace" in names and "Pipeline" in type(getattr(model, "llm", None)).__name__:
        return PLAIN  # transformers refuses or ignores any format
    return known if {"GigaChat", "ChatOllama"} & names else _with_tools(known, model)


def without_extra_body(client: ClientFamily) -> ClientFamily:
    """Return the family without the rungs that set `extra_body`."""
    rungs = {rung: options for rung, options in client.rungs.items() if options not in (_openai_schema, _openai_json)}
    return replace(client, rungs=rungs, start=next(iter(rungs), "prompt"))


def _uses_responses(model: Any) -> bool:
    """Return True if a client calls OpenAI's Responses API, because of its settings or of the name of its model."""
    decide = getattr(model, "_use_responses_api", None)
    return bool(decide({}) if decide else getattr(model, "use_responses_api", None))


def _with_tools(client: ClientFamily, model: Any) -> ClientFamily:
    """Return a family with the rung "function_calling" through `bind_tools`, if the model supports tools."""
    if "function_calling" in client.rungs:
        return client
    if not isinstance(model, BaseChatModel) or type(model).bind_tools is BaseChatModel.bind_tools:
        return client

    def tool(schema: Schema, _bound: Options) -> Options:
        described = {"title": schema["title"], "description": schema.get("description") or schema["title"], **schema}
        bound = model.bind_tools([described], tool_choice=schema["title"])
        return dict(getattr(bound, "kwargs", {}))

    start = "function_calling" if client.start == "prompt" else client.start
    name = f"{client.name} {type(model).__qualname__}"
    return replace(client, name=name, rungs={**client.rungs, "function_calling": tool}, start=start)
