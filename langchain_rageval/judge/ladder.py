"""Output modes: the ways to request structured output (JSON) from each family of model clients, best first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, get_args

from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase
from langchain_core.runnables.configurable import DynamicRunnable

from langchain_rageval.errors import ConfigError, message_of
from langchain_rageval.run.retry import status_of

Options = dict[str, Any]
Schema = Mapping[str, Any]
Rungs = Mapping[str, Options | Callable[[Schema], Options]]


@dataclass(frozen=True)
class ClientFamily:
    """Output modes (rungs) of one family of model clients, such as OpenAI-compatible clients.

    Attributes:
        name: name of the family; equal for models whose clients accept the same options.
        rungs: mapping from each supported output mode to its call options: a template, or a function that returns the
            options for a schema. The mode "prompt" needs no options and is always supported.
        start: output mode that "auto" tries first.
        always: options of every call. Streaming is disabled, because streamed replies may lack usage and finish reason.
        timeout: name of the call option for a timeout in seconds; None if there is none.
        grammar: True if the engine behind the clients builds a grammar for each request. The schema may then change
            with each request at no cost.
        probabilities: options that request token log-probabilities; empty if the clients return none.
    """

    name: str
    rungs: Rungs
    start: str
    always: Mapping[str, Any] = field(default_factory=dict)
    timeout: str | None = None
    grammar: bool = False
    probabilities: Mapping[str, Any] = field(default_factory=dict)

    def options(self, rung: str, schema: Schema, bound: Options) -> Options:
        """Return the call options that request an answer in an output mode.

        The options `extra_body`, `text` and `output_config` are mappings. This method merges each with the mapping of
        the same name in `bound`; for equal keys, the output mode's value counts.

        Args:
            rung: the output mode, such as "json_schema". A mode that the family lacks gives no options.
            schema: JSON schema of the answer.
            bound: options already bound to the model, as `bound_options` returns them.
        """
        template = self.rungs.get(rung, {})
        texts = {_SCHEMA: schema, _TITLE: schema["title"], _DESCRIPTION: schema.get("description", "")}
        options: Options = template(schema) if callable(template) else _filled(template, texts)
        return {name: {**(bound.get(name) or {}), **own} if name in _MERGED else own for name, own in options.items()}


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, Mapping):
        return {name: _filled(part, values) for name, part in template.items()}
    if isinstance(template, list):
        return [_filled(part, values) for part in template]
    return values.get(template, template) if isinstance(template, str) else template


# Templates of call options; these three texts stand for the schema of the answer, its title and its description.
_SCHEMA, _TITLE, _DESCRIPTION = "{schema}", "{title}", "{description}"
_NAMED = {"name": _TITLE, "schema": _SCHEMA, "strict": True}
_FUNCTION = {"name": _TITLE, "description": _DESCRIPTION, "parameters": _SCHEMA}
_JSON = {"type": "json_object"}
_FORMATS: Rungs = {
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": _NAMED}},
    "json_mode": {"response_format": _JSON},
}
_MERGED = ("extra_body", "text", "output_config")  # options of the user with other settings, which are kept

_LOG_PROBABILITIES = {"logprobs": True, "top_logprobs": 20}  # 20 is the most that OpenAI and vLLM return

_RESPONSES = ClientFamily(
    "Responses API",
    {"json_schema": {"text": {"format": {"type": "json_schema", **_NAMED}}}, "json_mode": {"text": {"format": _JSON}}},
    start="json_schema",
)

# GigaChat starts with functions: a server that does not support `response_format` may ignore it without an error.
_FAMILIES = [
    ClientFamily(
        "BaseChatOpenAI",
        {
            **{rung: {"extra_body": options} for rung, options in _FORMATS.items()},
            "function_calling": {
                "tools": [{"type": "function", "function": _FUNCTION}],
                "tool_choice": {"type": "function", "function": {"name": _TITLE}},
            },
        },
        start="json_schema",
        always={"stream": False},
        timeout="timeout",
        probabilities=_LOG_PROBABILITIES,
    ),
    ClientFamily(
        "GigaChat",
        {
            "json_schema": {"response_format": {"type": "json_schema", "schema": _SCHEMA, "strict": True}},
            "function_calling": {"functions": [_FUNCTION], "function_call": {"name": _TITLE}},
        },
        start="function_calling",
        always={"stream": False},
    ),
    ClientFamily(
        "ChatOllama",
        {"json_schema": {"format": _SCHEMA}, "json_mode": {"format": "json"}},
        start="json_schema",
        grammar=True,
    ),
    ClientFamily(
        "ChatAnthropic",
        {"json_schema": {"output_config": {"format": {"type": "json_schema", "schema": _SCHEMA}}}},
        start="json_schema",
    ),
    ClientFamily(
        "ChatGoogleGenerativeAI",
        {
            "json_schema": {"response_mime_type": "application/json", "response_json_schema": _SCHEMA},
            "json_mode": {"response_mime_type": "application/json"},
        },
        start="json_schema",
    ),
    *(
        ClientFamily(name, _FORMATS, start="json_schema")
        for name in ("ChatMistralAI", "ChatGroq", "ChatLiteLLM", "ChatHuggingFace")
    ),
    ClientFamily(
        "ChatLlamaCpp",
        {"json_schema": {"response_format": {**_JSON, "schema": _SCHEMA}}, "json_mode": _FORMATS["json_mode"]},
        start="json_schema",
        grammar=True,
        probabilities=_LOG_PROBABILITIES,
    ),
]

CLIENTS: Mapping[str, ClientFamily] = {family.name: family for family in _FAMILIES}
"""Families by the name of a class. Those without their own "function_calling" use `bind_tools`, except Ollama's."""

PLAIN = ClientFamily("unknown", {}, start="prompt")


def family_of(model: Any) -> ClientFamily:
    """Return the client family (name and output modes) of a model that is not wrapped.

    An output mode is a way to request JSON, such as "json_schema". A model of an unknown class gets the output mode
    "function_calling" if it supports tool calls (`bind_tools`). Otherwise its only output mode is "prompt": the schema
    is put into the prompt.
    """
    names = {base.__name__ for base in type(model).__mro__}
    known = next((client for name, client in CLIENTS.items() if name in names), None)
    if known is None:
        return _with_tools(PLAIN, model)
    if "BaseChatOpenAI" in names:
        # OpenAI's Responses API, because of the client's settings or of the name of its model
        decide = getattr(model, "_use_responses_api", None)
        if decide({}) if decide else getattr(model, "use_responses_api", None):
            return _with_tools(_RESPONSES, model)
    if "ChatHuggingFace" in names and "Pipeline" in type(getattr(model, "llm", None)).__name__:
        return PLAIN  # transformers refuses or ignores any format
    return known if {"GigaChat", "ChatOllama"} & names else _with_tools(known, model)


def _with_tools(client: ClientFamily, model: Any) -> ClientFamily:
    """Return a family with the output mode "function_calling" through `bind_tools`, if the model supports tools."""
    if "function_calling" in client.rungs:
        return client
    if not isinstance(model, BaseChatModel) or type(model).bind_tools is BaseChatModel.bind_tools:
        return client

    def tool(schema: Schema) -> Options:
        bound = model.bind_tools([{"description": schema["title"], **schema}], tool_choice=schema["title"])
        return dict(getattr(bound, "kwargs", {}))

    start = "function_calling" if client.start == "prompt" else client.start
    name = f"{client.name} {type(model).__qualname__}"
    return replace(client, name=name, rungs={**client.rungs, "function_calling": tool}, start=start)


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
    """Return the client family (name and output modes) of a model, or the one that all models in a wrapper have.

    An output mode is a way to request JSON, such as "json_schema". If the families of the models differ, `PLAIN` is
    returned, whose only output mode is "prompt" (the schema is put into the prompt). If their options `extra_body`
    differ, the output modes that set `extra_body` are left out.
    """
    models = list(_models_with_options(model, {}))
    families = {client.name: client for client in (family_of(inner) for inner, _ in models)}
    if len(families) > 1:
        return PLAIN
    client = families.popitem()[1]
    bodies = [options.get("extra_body", getattr(inner, "extra_body", None)) for inner, options in models]
    if bodies.count(bodies[0]) == len(bodies):
        return client
    rungs = {name: form for name, form in client.rungs.items() if callable(form) or "extra_body" not in form}
    return replace(client, rungs=rungs, start=next(iter(rungs), "prompt"))


def inner_models(model: Any) -> Iterator[Any]:
    """Yield the models inside bindings, retries, fallbacks and configurable models; the first choice comes first."""
    yield from (inner for inner, _ in _models_with_options(model, {}))


def without_fallbacks(model: Any) -> Any:
    """Return a model without its fallbacks, which would hide that the first model rejects an output format.

    A model without fallbacks is returned itself.
    """
    if isinstance(model, RunnableBindingBase):
        bound = without_fallbacks(model.bound)
        return model if bound is model.bound else model.model_copy(update={"bound": bound})
    return without_fallbacks(model.runnable) if isinstance(model, RunnableWithFallbacks) else model


def bound_options(model: Any) -> Options:
    """Return the call options bound to a model, and `extra_body` of its client; for a wrapper, of its first model.

    This function merges nothing. `ClientFamily.options` later merges options for structured output with the result.
    """
    inner, options = next(_models_with_options(model, {}))
    return {"extra_body": getattr(inner, "extra_body", None), **options}


def output_limit(model: Any) -> tuple[str, int] | None:
    """Return the name and value of the setting that limits the length of a model's replies; None if unlimited."""
    inner = next(inner_models(model))
    for settings in (bound_options(model), *(getattr(inner, name, None) for name in _SETTINGS), inner):
        for name in _OUTPUT_LIMITS:
            value = settings.get(name) if isinstance(settings, Mapping) else getattr(settings, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return name, value
    return None


def is_sync_only(model: Any) -> bool:
    """Return True if a model has no native async methods: they only run the sync methods in an executor."""
    return all(
        (isinstance(inner, BaseChatModel) and type(inner)._agenerate is BaseChatModel._agenerate)
        or (isinstance(inner, RunnableLambda) and not hasattr(inner, "afunc"))
        for inner in inner_models(model)
    )


_RETRIES_OF_OPENAI = 2  # unless it is told another number


def may_retry(model: Any) -> bool:
    """Return True if a client or its wrapper may retry a call; its timeout then does not limit the whole call."""
    return not isinstance(model, BaseChatModel) or getattr(model, "max_retries", None) != 0


def own_tries(model: Any) -> int:
    """Return the maximum number of requests that a model's client sends for one call, including its own retries."""
    most = 0
    for inner in inner_models(model):
        retries = getattr(inner, "max_retries", 0)
        if retries is None and any(base.__name__ == "BaseChatOpenAI" for base in type(inner).__mro__):
            retries = _RETRIES_OF_OPENAI
        most = max(most, retries if isinstance(retries, int) else 0)
    return 1 + most


def with_own_rung(client: ClientFamily, rung: OwnRung) -> ClientFamily:
    """Return a client family (name and output modes of a kind of clients) with an output mode of the user added.

    An output mode is a way to request JSON. `rung` is the user's function from the JSON schema of the answer to options
    of the call; its name becomes the name of the output mode. If it returns no mapping, the new family raises
    ConfigError when a request is built.
    """

    def options(schema: Schema) -> Options:
        given = rung(schema)
        if not isinstance(given, Mapping):
            name, kind = rung_name(rung), type(given).__name__
            raise ConfigError(f"the function {name} of mode= must return a mapping of call options, got {kind}")
        return given

    return replace(client, rungs={**client.rungs, rung_name(rung): options})


def rung_name(mode: Mode | OwnRung) -> str:
    """Return the name of an output mode; for the user's function, its name."""
    return mode if isinstance(mode, str) else str(getattr(mode, "__name__", type(mode).__name__))


def ladder(client: ClientFamily, mode: Mode | OwnRung) -> list[str]:
    """Return the output modes (rungs) to try, in order of preference; only one mode if the user chose a mode."""
    if not isinstance(mode, str):
        return [rung_name(mode)]
    supported: list[str] = [rung for rung in RUNGS if rung in client.rungs or rung == "prompt"]
    if mode != "auto":
        return [mode] if mode in supported else ["prompt"]
    return supported[supported.index(client.start) :]


def is_format_refused(error: Exception) -> bool:
    """Return True if an endpoint or its client rejected the form of a request; another output mode may succeed."""
    if isinstance(error, ContextOverflowError) or _MENTIONS_LENGTH.search(message_of(error)):
        return False
    return status_of(error) in _REFUSALS or isinstance(error, NotImplementedError) or type(error) in _CLIENT_REFUSALS


def is_system_message_refused(error: Exception) -> bool:
    """Return True if an error shows that the endpoint rejected the system message."""
    return is_format_refused(error) and _MENTIONS_ROLE.search(message_of(error)) is not None


def is_temperature_refused(error: Exception) -> bool:
    """Return True if the endpoint rejected the temperature, as reasoning models of several providers do."""
    return status_of(error) in _REFUSALS and _MENTIONS_TEMPERATURE.search(str(error)) is not None


def is_log_probability_refused(error: Exception) -> bool:
    """Return True if the endpoint or its client rejected the request for token log-probabilities."""
    refused = status_of(error) in {403, *_REFUSALS} or type(error) in _CLIENT_REFUSALS
    return refused and _MENTIONS_LOG_PROBABILITIES.search(message_of(error)) is not None


def without_temperature(model: Any) -> Any:
    """Return a copy of a model, and of the bindings around it, without a temperature.

    The model itself is returned if neither it nor a binding sets a temperature.
    """
    if isinstance(model, RunnableBindingBase):
        bound, kwargs = without_temperature(model.bound), {**model.kwargs}
        is_same = kwargs.pop("temperature", None) is None and bound is model.bound
        return model if is_same else model.model_copy(update={"bound": bound, "kwargs": kwargs})
    is_sent = isinstance(model, BaseChatModel) and getattr(model, "temperature", None) is not None
    return model.model_copy(update={"temperature": None}) if is_sent else model


def _models_with_options(model: Any, options: Options) -> Iterator[tuple[Any, Options]]:
    """Yield the models that a wrapper calls, or may call, each with the call options that the bindings around it set.

    `options` are the call options of the bindings around `model`; they take precedence over those within it.
    """
    wrapped: list[Any] = []
    if isinstance(model, RunnableBindingBase):
        wrapped, options = [model.bound], {**model.kwargs, **options}
    elif isinstance(model, RunnableWithFallbacks):
        wrapped = list(model.runnables)
    elif isinstance(model, DynamicRunnable):
        alternatives = getattr(model, "alternatives", {}).values()
        wrapped = [model.default, *(runnable for runnable in alternatives if isinstance(runnable, Runnable))]
    elif type(model).__name__ == "_ConfigurableModel":  # of `init_chat_model`
        with suppress(Exception):  # nothing by default: the model is chosen with each call
            wrapped = [model._model()]
    if not wrapped:
        yield model, options
    for runnable in wrapped:
        yield from _models_with_options(runnable, options)


_LLAMA_CPP: Final = re.compile(r"b\d+-(?:[0-9a-f]{6,}|unknown)")  # its build, as the fingerprint of the system
_VLLM: Final = re.compile(r"chatcmpl-(?:[0-9a-f]{16}|[0-9a-f]{32})")  # a random number in hexadecimal


def is_from_grammar_server(message: BaseMessage) -> bool:
    """Return True if a reply comes from llama.cpp's server or from vLLM.

    Both servers build a grammar from the schema of each request in milliseconds. OpenAI takes seconds for a new schema.
    """
    metadata = message.response_metadata
    fingerprint, number = metadata.get("system_fingerprint"), metadata.get("id")
    return bool(_LLAMA_CPP.fullmatch(str(fingerprint)) or _VLLM.fullmatch(str(number)))
