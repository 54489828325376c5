"""Parser of replies: repairs JSON syntax, but never guesses content."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from pydantic import BaseModel, ConfigDict, RootModel, ValidationError
from pydantic_core import ErrorDetails

from langchain_rageval.judge.json_repairs import REPAIRS, VALUE_REPAIRS, json_spans
from langchain_rageval.prompts.control_tokens import restore_control_tokens

T = TypeVar("T", bound=BaseModel)

_MAX_SPANS: Final = 1000
_SHOWN_ERRORS: Final = 2
_SHOWN_CHARACTERS: Final = 60
_DROPPED_KEYS: Final = {"title", "default", "discriminator"}
_VERBATIM_KEYS: Final = {"const", "enum", "examples", "properties"}
_LOOKS_LIKE_JSON: Final = re.compile("[:\"'“„«‘]")
_LENGTH_STOPS: Final = {"length", "max_tokens"}
_REFUSALS: Final = {"content_filter", "blacklist", "refusal"}


class CutOffReply(OutputParserException):
    """The reply ended at a length limit, so that the list in it may lack items."""


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return a class's JSON schema in the form that endpoints with strict decoding require.

    Args:
        model: a pydantic class; it may contain other classes, but not itself.

    Returns:
        The schema with the class name as `title`, every `$ref` inlined, every field required and no others allowed,
        fields in order, descriptions kept, field titles and defaults removed.

    Raises:
        ValueError: if the class is recursive.
    """
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def inline(node: Any, within: frozenset[str]) -> Any:
        if isinstance(node, list):
            return [inline(item, within) for item in node]
        if not isinstance(node, dict):
            return node
        if reference := node.get("$ref"):
            name = reference.rpartition("/")[2]
            if name in within:
                raise ValueError(f"{model.__name__} cannot be written as a strict schema: {name} holds itself")
            rest = {key: value for key, value in node.items() if key != "$ref"}
            return inline(definitions[name] | rest, within | {name})
        written = {
            key: value if key in _VERBATIM_KEYS else inline(value, within)
            for key, value in node.items()
            if key not in _DROPPED_KEYS
        }
        if "properties" in node:
            written["properties"] = {name: inline(field, within) for name, field in node["properties"].items()}
            written |= {"required": list(node["properties"]), "additionalProperties": False}
        return written

    return {"title": model.__name__, **inline(schema, frozenset())}


class StrictJsonOutputParser(BaseOutputParser[T]):
    """Parse a reply as one value of a pydantic class, or raise an error that says what is wrong with it.

    Code fences, prose, `<think>` blocks, non-standard quotes, Python literals, trailing commas, raw line breaks, a list
    around the object and a wrapper key are repaired. Nothing is guessed: a reply that is truncated, refused or empty,
    or that contains NaN, a key with two values, or two different values of the class, is an error.

    Args:
        schema: the class to parse; `RootModel[list[str]]` and similar classes are supported.

    Example:
        ```python
        chain = prompt | model | StrictJsonOutputParser(Verdicts)
        ```
    """

    model_config = ConfigDict(extra="forbid")

    pydantic_object: type[T]

    def __init__(self, schema: type[T], **options: Any) -> None:
        super().__init__(pydantic_object=schema, **options)

    @property
    def OutputType(self) -> type[T]:
        """Pydantic class that the parser returns."""
        return self.pydantic_object

    @property
    def _type(self) -> str:
        return "strict_json"

    def get_format_instructions(self) -> str:
        """Return an English instruction for the model, with the schema on one line.

        Raises:
            ValueError: if the class is recursive.
        """
        schema = strict_schema(self.pydantic_object)
        kind = "list" if schema.get("type") == "array" else "object"
        return (
            f"Answer with one JSON {kind} that fits this JSON schema, and with nothing else:\n"
            f"```json\n{json.dumps(schema, ensure_ascii=False)}\n```"
        )

    def parse(self, text: str) -> T:
        """Parse the text of a reply.

        Raises:
            OutputParserException: if it is invalid; the message says what the model should fix.
        """
        return self._read([text])

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> T:
        """Parse the first of a model's generations, always as a complete reply.

        Raises:
            OutputParserException: if it is invalid, truncated or refused.
        """
        if not result:
            return self.read_message(None)
        first = result[0]
        message = first.message if isinstance(first, ChatGeneration) else AIMessage(first.text)
        _check_stop(message, first.generation_info or {})
        return self.read_message(message)

    def read_message(self, message: BaseMessage | None) -> T:
        """Parse a message: the tool call with the name of the class, otherwise all tool calls, otherwise the text.

        Raises:
            OutputParserException: if it is invalid, truncated or refused, or is None.
        """
        if message is None:
            raise _parse_error("the reply is empty", "")
        _check_stop(message, message.response_metadata)
        replies = _replies(message)
        named = [text for name, text in replies if name == self.pydantic_object.__name__]
        return self._read(named or [text for _, text in replies])

    def _read(self, texts: list[str]) -> T:
        """Parse the texts of one message, which must all contain the same value, and return that value."""
        raw = "\n".join(texts)
        try:
            restored = map(restore_control_tokens, texts)
            values = {as_json: value for text in restored for as_json, value in self._values(text).items()}
        except (ValueError, RecursionError) as error:
            raise _parse_error(_describe(error), raw) from error
        if len(values) > 1:
            raise _parse_error(f"the reply holds {len(values)} different answers: give one", raw)
        return next(iter(values.values()))

    def _values(self, text: str) -> dict[str, T]:
        """Return the distinct values in a text, keyed by their JSON; raise the most specific error if there is none."""
        try:
            whole = _DECODER.decode(text)
        except (ValueError, RecursionError):
            return self._values_within(text)
        return self._fit(whole)

    def _values_within(self, text: str) -> dict[str, T]:
        """Return the distinct values in the spans of a text that look like JSON.

        An invalid span that looks like JSON is an error even if another one is valid: it may be the answer, and the
        valid one an example.
        """
        values: dict[str, T] = {}
        errors: list[Exception] = []
        for span in _spans(text):
            try:
                loaded = _load(span)
            except (ValueError, RecursionError) as error:
                if _LOOKS_LIKE_JSON.search(span):
                    raise
                errors.append(error)
                continue
            try:
                values |= self._fit(loaded)
            except (ValueError, RecursionError) as error:
                errors.append(error)
        if not values:
            raise min(errors, key=_distance)
        return values

    def _fit(self, value: Any) -> dict[str, T]:
        """Validate a value, with repairs if necessary; return the instance keyed by its JSON."""
        errors: list[Exception] = []
        for repair in (None, *VALUE_REPAIRS):
            repaired = repair(value) if repair else value
            if repair and repaired is value:
                continue
            value = repaired
            try:
                instance = self._validate(value)
            except ValueError as error:
                errors.append(error)
            else:
                return {json.dumps(instance.model_dump(warnings=False), allow_nan=False, default=repr): instance}
        raise min(errors, key=_distance)

    def _validate(self, value: Any) -> T:
        keys = _keys(self.pydantic_object)
        if keys and isinstance(value, dict) and keys.isdisjoint(value):
            raise ValueError(f"the object has none of the keys {sorted(keys)}")
        try:
            return self.pydantic_object.model_validate(value)
        except ValidationError as error:
            raise _SchemaError(error) from error


@lru_cache(maxsize=256)
def _keys(kind: type[BaseModel]) -> frozenset[str]:
    """Return the field names and aliases of a class; nothing for a RootModel."""
    if issubclass(kind, RootModel):
        return frozenset()
    names = (name for field, info in kind.model_fields.items() for name in (field, info.validation_alias))
    return frozenset(name for name in names if isinstance(name, str))


def _replies(message: BaseMessage) -> list[tuple[str, str]]:
    """Return name and JSON text of each tool call of a message; without tool calls, its text with an empty name.

    For chunks the raw text is used: LangChain completes their `tool_calls` by guessing if they are truncated.
    """
    calls: list[Any] = []
    if isinstance(message, AIMessageChunk):
        calls = message.tool_call_chunks
    elif isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
    try:
        texts = [(call["name"] or "", _as_text(call["args"])) for call in calls]
    except RecursionError as error:
        raise _parse_error("the JSON is nested too deeply", "") from error
    return texts or [("", str(message.text))]


def _as_text(arguments: dict[str, Any] | str | None) -> str:
    return arguments or "" if isinstance(arguments, str | None) else json.dumps(arguments, ensure_ascii=False)


def _check_stop(message: BaseMessage, metadata: Mapping[str, Any]) -> None:
    """Raise an error if the reply was truncated by the endpoint or refused by the model."""
    stops = {str(metadata.get(key)).lower() for key in ("finish_reason", "stop_reason", "done_reason")}
    if stops & _LENGTH_STOPS or metadata.get("incomplete_details"):
        problem = "the reply was cut off at its length limit: write every item, and each reason in few words"
        raise CutOffReply(ValueError(problem), llm_output=_raw(message))
    blocks = message.content if isinstance(message.content, list) else []
    refused = any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)
    if refused or stops & _REFUSALS or message.additional_kwargs.get("refusal"):
        raise _parse_error("the model refused to answer", _raw(message))


def _raw(message: BaseMessage) -> str:
    return "\n".join(text for _, text in _replies(message))


def _spans(text: str) -> list[str]:
    """Return the distinct parts of a text that look like JSON objects or lists."""
    spans = list(dict.fromkeys(json_spans(text)))
    if len(spans) > _MAX_SPANS:
        raise ValueError(f"the reply holds more than {_MAX_SPANS} pieces of JSON: give one")
    return spans


def _load(text: str) -> Any:
    """Decode JSON with as few repairs as necessary."""
    if not text:
        raise ValueError("the reply is empty")
    for repair in (None, *REPAIRS):
        text = repair(text) if repair else text
        try:
            return _DECODER.decode(text)
        except json.JSONDecodeError as error:
            failure = error
    raise failure


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    if len(unique) < len(pairs) and (duplicates := [key for key, value in pairs if repr(value) != repr(unique[key])]):
        raise ValueError(f"the key {_preview(duplicates[0])} has two values")
    return unique


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"{number} is not a number that JSON can hold")
    return value


# strict=False lets a string hold raw line breaks and tabs.
_DECODER: Final = json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_float=_finite, parse_constant=_finite)


class _SchemaError(ValueError):
    """Valid JSON that does not fit the class; `distance` is smaller the deeper in the value the errors are."""

    def __init__(self, error: ValidationError) -> None:
        details = error.errors(include_url=False, include_context=False)
        self.distance = -max(len(detail["loc"]) for detail in details), len(details)
        shown = [_describe_detail(detail) for detail in details[:_SHOWN_ERRORS]]
        more = [f"and {len(details) - len(shown)} more"] if len(details) > len(shown) else []
        super().__init__("the JSON does not fit the schema: " + "; ".join(shown + more))


def _distance(error: Exception) -> tuple[int, int]:
    return error.distance if isinstance(error, _SchemaError) else (1, 0)


def _describe(error: Exception) -> str:
    """Return the description of an error as one line that says what the model should fix."""
    match error:
        case json.JSONDecodeError(msg=msg, doc=doc, pos=pos):
            return f"this is not JSON: {msg} at {_preview(doc[pos:])}, after {_preview(doc[max(pos - 30, 0) : pos])}"
        case RecursionError():
            return "the JSON is nested too deeply"
    return str(error)


def _describe_detail(detail: ErrorDetails) -> str:
    path = ".".join(map(str, detail["loc"])) or "the whole"
    actual = "" if detail["type"] == "missing" else f", not {_preview(detail['input'])}"
    return f"{path}: {detail['msg']}{actual}"


def _preview(value: Any) -> str:
    match value:
        case dict():
            return "an object"
        case list():
            return "a list"
        case str() if len(value) > _SHOWN_CHARACTERS:
            value = value[:_SHOWN_CHARACTERS] + "…"
    return json.dumps(value, ensure_ascii=False)


def _parse_error(message: str, raw: str) -> OutputParserException:
    # Passed as an exception: to a plain string, langchain-core appends the address of a help page.
    return OutputParserException(ValueError(message), llm_output=raw)
