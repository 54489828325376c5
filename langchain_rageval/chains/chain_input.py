"""Input of a user's RAG chain, built from a question as the chain's input schema requires."""

from __future__ import annotations

import dis
import inspect
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import wraps
from typing import Any, Literal, get_type_hints

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import (
    AddableDict,
    Runnable,
    RunnableAssign,
    RunnableLambda,
    RunnableParallel,
    RunnablePassthrough,
)
from langchain_core.tools import BaseTool
from pydantic import BaseModel, TypeAdapter
from typing_extensions import TypedDict

from langchain_rageval.data.schema import Turn
from langchain_rageval.errors import ConfigError

_QUESTION_NAMES = ("question", "input", "query", "user_input", "user_question", "user_query")
_TEXT_PARAMETERS = ("question", "query", "user_question", "user_query", "q", "text", "prompt", "message")
_HISTORY_NAMES = ("chat_history", "history", "message_history", "conversation_history")
_HOLDS_HISTORY = frozenset({"messages", "history", "history as text"})
_ALWAYS = ("question", "input")
_ANY = "root"  # name that LangChain gives to an input without a schema among those of a RunnableParallel

_INNER = ("steps", "steps__", "bound", "runnable", "default", "mapper", "nodes", "tools_by_name")
"""Attributes that hold the parts of Runnables of LangChain and LangGraph."""

Schema = Mapping[str, Any]
_Kind = Literal["text", "messages", "history", "history as text"]


def as_chain(chain: Any) -> Runnable[Any, Any]:
    """Return a Runnable unchanged; wrap a function into a RunnableLambda.

    Raises:
        ConfigError: if the argument is neither a Runnable nor a function of one argument.
    """
    if isinstance(chain, Runnable):
        return chain
    if not callable(chain):
        raise ConfigError(f"a chain must be a Runnable or a function of the question, got {type(chain).__name__}")
    if len(required := _required_parameters(chain)) > 1:
        name = getattr(chain, "__name__", type(chain).__name__)
        raise ConfigError(
            f"{name} takes {', '.join(required)}: pass a function of the question alone, such as lambda question: "
            f"{name}(question, ...)"
        )
    return RunnableLambda(_with_summed_mappings(chain))


def _required_parameters(function: Any) -> list[str]:
    """Return the names of the parameters without a default, except those that LangChain passes; [] if unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin
        return []
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [one.name for one in parameters if one.default is one.empty and one.kind not in variadic]
    return [name for name in required if name not in ("config", "run_manager")]


def _with_summed_mappings(function: Any) -> Any:
    """Return a function whose yielded mappings can be added, as the parts of a stream; any other unchanged.

    RunnableLambda adds what a function yields; of values that cannot be added it returns only the last.
    """
    if inspect.isasyncgenfunction(function):

        @wraps(function)
        async def astream(*args: Any, **options: Any) -> AsyncIterator[Any]:
            async for part in function(*args, **options):
                yield AddableDict(part) if isinstance(part, dict) else part

        return astream
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def stream(*args: Any, **options: Any) -> Iterator[Any]:
            for part in function(*args, **options):
                yield AddableDict(part) if isinstance(part, dict) else part

        return stream
    return function


def input_builder(chain: Runnable[Any, Any], added: Collection[str] = ()) -> Callable[..., Any]:
    """Return a function that builds the input of a chain from a question and the history of its conversation.

    If the chain takes a text, the input is a text. Otherwise it is a mapping. The question is stored under each name in
    the input schema that stands for a question, such as `query`. If there is no such name, the question is stored under
    the only name of the schema. A list of messages in the schema gets the history and the question as messages. A chat
    history in the schema gets the history. Unless the schema forbids names that it does not list, the question is also
    stored under `question` and `input`, and a history for which the schema has no name under `chat_history`.

    Args:
        chain: the user's chain.
        added: names that the caller itself adds to a mapping, such as "contexts".

    Raises:
        ConfigError: if no name in the input schema stands for a question, or the chain requires a name whose value is
            unknown.
    """
    if _takes_text(chain):
        return lambda question, history=(): question
    schema = _input_schema(chain)
    if _is_messages(schema):
        return lambda question, history=(): [*turn_messages(history), HumanMessage(question)]
    kinds, constructor = _kinds(schema), _constructor(chain)
    is_closed = schema.get("additionalProperties") is False or _part_of_class(chain, "Pregel", "Chain") is not None
    extra = () if is_closed and kinds else _ALWAYS
    _check_names(chain, schema, kinds, added, is_closed=is_closed)

    def build(question: str, history: Sequence[Turn] = ()) -> Any:
        turns = turn_messages(history)
        values = {
            "text": question,
            "messages": [*turns, HumanMessage(question)],
            "history": turns,
            "history as text": "\n".join(f"{turn.role.capitalize()}: {turn.text}" for turn in history),
        }
        fields = {name: values[kind] for name, kind in kinds.items()}
        if constructor is not None:
            return constructor(**fields)
        open_history = {"chat_history": turns} if extra and turns and _HOLDS_HISTORY.isdisjoint(kinds.values()) else {}
        return dict.fromkeys(extra, question) | open_history | fields

    return build


def _check_names(
    chain: Runnable[Any, Any], schema: Schema, kinds: Mapping[str, _Kind], added: Collection[str], *, is_closed: bool
) -> None:
    """Raise ConfigError if a chain takes names of which none stands for a question, or requires one without a value."""
    names, innermost, constructor = [*schema.get("properties", {})], _innermost(chain), _constructor(chain)
    required: list[str] = []
    if constructor is not None:
        parameters = inspect.signature(constructor).parameters.values()
        names = [parameter.name for parameter in parameters]
        required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    elif isinstance(innermost, BasePromptTemplate | RunnableParallel | RunnableAssign):
        required = [name for name in schema.get("required", ()) if name in names]
    unknown = [name for name in required if name not in (*kinds, *_ALWAYS, *added)]
    has_question = bool({"text", "messages"} & {*kinds.values()})
    if unknown or (is_closed and names and not has_question):
        problem = f"and no value is known for {{{', '.join(unknown)}}}"
        fields = {name: "question" if kinds.get(name) == "text" else "..." for name in required or names[:1]}
        if not has_question:
            problem, fields = "none of which is known as the question", {**fields, next(iter(fields)): "question"}
        if constructor is None:
            call = f"{{{', '.join(f'{name!r}: {value}' for name, value in fields.items())}}}"
        else:
            call = f"{constructor.__name__}({', '.join(f'{name}={value}' for name, value in fields.items())})"
        raise ConfigError(
            f"the chain takes {{{', '.join(names)}}}, {problem}: pass a function that builds its input, such as lambda "
            f"question: chain.invoke({call})"
        )


def takes_history(chain: Runnable[Any, Any]) -> bool:
    """Return True if the input that `input_builder` builds for a chain contains the history of a conversation."""
    build = input_builder(chain)
    return repr(build("?", [Turn(role="user", text="!")])) != repr(build("?"))


def turn_messages(history: Sequence[Turn]) -> list[BaseMessage]:
    """Return the turns of a conversation as LangChain messages."""
    return [HumanMessage(turn.text) if turn.role == "user" else AIMessage(turn.text) for turn in history]


def conversation_keys(chain: Runnable[Any, Any]) -> set[str]:
    """Return the names of the configurable values that identify a conversation.

    These are `thread_id`, as in LangGraph, and names that the chain itself declares, such as `session_id`.
    """
    try:
        shared = {spec.id for spec in chain.config_specs if spec.is_shared and spec.annotation is str}
    except Exception:  # of a foreign class
        shared = set()
    return {"thread_id"} | shared


def is_async_only(chain: Any) -> bool:
    """Return True if a step of the chain is an async function without a sync one."""
    parts, seen = [chain], set[int]()
    while parts:
        part = parts.pop()
        if isinstance(part, list | tuple | Mapping):
            parts += part.values() if isinstance(part, Mapping) else part
        elif part is not None and id(part) not in seen:
            seen.add(id(part))
            function = getattr(part, "afunc", None) or (isinstance(part, BaseTool) and getattr(part, "coroutine", None))
            if function and getattr(part, "func", None) is None:
                return True
            parts += [getattr(part, name, None) for name in _INNER]
    return False


def receivers_of_input(chain: Runnable[Any, Any]) -> Iterator[Any]:
    """Yield a chain, then the part of the chain that receives the same input, then the part of that part, and so on."""
    while True:
        yield chain
        inner = [getattr(chain, name, None) for name in ("first", "bound", "runnable", "default")]
        following = next((part for part in inner if isinstance(part, Runnable)), None)
        if following is None:
            return
        chain = following


def _takes_text(chain: Runnable[Any, Any]) -> bool:
    schema = _input_schema(chain)
    if "string" in _types(schema):
        return True
    if schema.get("properties"):
        return False
    *_, innermost = receivers_of_input(chain)
    if isinstance(innermost, RunnableParallel):  # {"context": search, "question": RunnablePassthrough()}
        return any(
            isinstance(receiver := _innermost(step), BaseRetriever)
            or (name in _QUESTION_NAMES and isinstance(receiver, RunnablePassthrough))
            for name, step in innermost.steps__.items()
        )
    function = _function_of(innermost)
    name, is_typed = _first_parameter(function)
    return name in _TEXT_PARAMETERS and not is_typed and not _has_keys(function, name)


def _innermost(chain: Runnable[Any, Any]) -> Any:
    return list(receivers_of_input(chain))[-1]


def _function_of(chain: Any) -> Any:
    """Return the function of a RunnableLambda; None for other Runnables."""
    is_function = isinstance(chain, RunnableLambda)
    function = (getattr(chain, "func", None) or getattr(chain, "afunc", None)) if is_function else None
    return inspect.unwrap(function) if callable(function) else None


def _first_parameter(function: Any) -> tuple[str | None, bool]:
    """Return the name of the first parameter of a function, or None, and whether it has a type."""
    try:
        parameter = next(iter(inspect.signature(function).parameters.values()), None)
    except (TypeError, ValueError):  # a builtin, or None
        return None, False
    return (None, False) if parameter is None else (parameter.name, parameter.annotation is not parameter.empty)


def _has_keys(function: Any, parameter: str) -> bool:
    """Return True if the code of a function reads a key of a parameter: `parameter["key"]` or `parameter.get`."""
    code = getattr(function, "__code__", None)
    steps = list(dis.get_instructions(code)) if code else []
    for first, second, third in zip(steps, steps[1:], [*steps[2:], None], strict=False):
        if first.argval == parameter and first.opname.startswith(("LOAD_FAST", "LOAD_DEREF")):
            is_key = second.opname.startswith("LOAD_CONST") and isinstance(second.argval, str)
            is_subscript = third and (third.opname == "BINARY_SUBSCR" or third.argrepr == "[]")  # from Python 3.14 on
            if second.argval == "get" or (is_key and is_subscript):
                return True
    return False


def _input_schema(chain: Runnable[Any, Any]) -> Schema:
    """Return the JSON schema of the input, with a reference at its top resolved; empty if it is unknown."""
    try:
        schema: Any = chain.get_input_jsonschema()
    except Exception:  # pydantic cannot describe it, such as a TypedDict of `typing` in Python 3.11
        try:  # of the state of a graph or of an annotated parameter
            hints = get_type_hints(_annotated_type(chain))
            shown = {name: hint for name, hint in hints.items() if not name.startswith("_")}
            schema = TypeAdapter(TypedDict("State", shown, total=False)).json_schema()  # type: ignore[operator]
        except Exception:  # a type without hints or without a JSON schema; the question is then passed as it is
            schema = {}
    if "$ref" in schema:
        schema = schema.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
    return {**schema, "properties": {name: part for name, part in schema.get("properties", {}).items() if name != _ANY}}


def _annotated_type(chain: Runnable[Any, Any]) -> Any:
    """Return the type of the state of a graph, or of the first parameter of a function; None if it has none."""
    if (graph := _part_of_class(chain, "Pregel")) is not None:
        builder = getattr(graph, "builder", None)
        return getattr(builder, "input_schema", None) or getattr(builder, "state_schema", None)
    function = _function_of(_innermost(chain))
    name = _first_parameter(function)[0]
    try:
        return get_type_hints(function).get(name or "")
    except Exception:  # the name of a type that is not imported, or a function without hints
        return None


def _constructor(chain: Runnable[Any, Any]) -> Any:
    """Return the pydantic model or dataclass that a function takes; None if it takes another type."""
    kind = None if _part_of_class(chain, "Pregel") is not None else _annotated_type(chain)
    is_record = isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(kind))
    return kind if is_record else None


def _part_of_class(chain: Runnable[Any, Any], *names: str) -> Any:
    """Return the part of a chain that gets its input and is of one of some classes, by name; None if none is."""
    parts = receivers_of_input(chain)
    return next((part for part in parts if any(kind.__name__ in names for kind in type(part).__mro__)), None)


def _types(schema: Any) -> set[str]:
    """Return the JSON types that a value may have; an empty set if it may have any."""
    if not isinstance(schema, Mapping):
        return set()
    own = schema.get("type", [])
    types = {own} if isinstance(own, str) else set(own)
    return types.union(*(_types(option) for option in schema.get("anyOf", [])))


def _is_messages(schema: Any) -> bool:
    """Return True for a list of messages."""
    if not isinstance(schema, Mapping):
        return False
    is_list = schema.get("type") == "array" and "Message" in str(schema.get("items", {}))
    return is_list or any(map(_is_messages, schema.get("anyOf", [])))


def _kinds(schema: Schema) -> dict[str, _Kind]:
    """Return how to fill the properties of a schema, by name."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    kinds: dict[str, _Kind] = {}
    for name, part in properties.items():
        types = _types(part)
        if name in _HISTORY_NAMES:
            kinds[name] = "history as text" if types == {"string"} else "history"
        elif name in _QUESTION_NAMES and (not types or "string" in types):
            kinds[name] = "text"
        elif (name == "messages" and types != {"string"}) or _is_messages(part):
            kinds[name] = "messages"
    others = [name for name in schema.get("required", properties) if name not in kinds]
    if not {"text", "messages"} & {*kinds.values()} and len(others) == 1:
        kinds[others[0]] = "text"
    return kinds
