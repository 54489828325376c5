"""Parser of replies: repairs JSON syntax and spelling, but never invents content."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.output_parsers import BaseOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from pydantic import BaseModel, ConfigDict, PydanticUserError, RootModel, ValidationError
from pydantic_core import ErrorDetails

from langchain_rageval._internal.redaction import redact_secrets
from langchain_rageval.judge.repairs import (
    BOOLEAN_WORDS,
    REPAIRS,
    comments_in,
    final_channel,
    json_spans,
    readings,
    respell,
)
from langchain_rageval.judge.reply import CutOffReply, ReplyText, check_stop, reply_texts, without_fence
from langchain_rageval.prompts.answer_schemas import JsonNumber
from langchain_rageval.prompts.layout import restore_control_tokens

T = TypeVar("T", bound=BaseModel)

_MAX_SPANS: Final = 1000
_SHOWN_ERRORS: Final = 2
_MOST_ERRORS = 10_000  # beyond them, another reading of the reply is not tried
_SHOWN_CHARACTERS: Final = 60
_SHOWN_BEFORE: Final = 30
_WORD_AT_START: Final = re.compile(r"\A[\w.~+/=-]+", re.ASCII)  # a message quotes whole words: half of a key that the
_WORD_AT_END: Final = re.compile(r"[\w.~+/=-]+\Z", re.ASCII)  # reply repeats would not be recognised as a secret
_DROPPED_KEYS: Final = {"title", "default", "discriminator"}
_VERBATIM_KEYS: Final = {"const", "enum", "examples", "properties"}
_ESCAPED_JSON: Final = re.compile(r'[\[{]\s*\\"')
_LOOKS_LIKE_JSON: Final = re.compile("[:\"'“„«‘]")


def strict_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a class in the form that endpoints with strict decoding require.

    Args:
        model: a pydantic class; it may contain other classes, but not itself.

    Returns:
        The schema with the class name as `title`. Every `$ref` is inlined. Every field is required, and no other fields
        are allowed. The order of fields and the descriptions are kept. Field titles and defaults are removed.

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


class UnfitReply(OutputParserException):
    """Error about a complete reply that is not a valid value of the answer class."""


class StrictJsonOutputParser(BaseOutputParser[T]):
    """Parse a reply as one value of a pydantic class, or raise an error that says what is wrong with the reply.

    These are repaired: code fences, prose, `<think>` blocks, tool calls written as text, non-standard quotes, keys and
    spaces, comments, Python literals, trailing commas, raw line breaks, JSON in a string, a list around the object, a
    wrapper key, and spellings of labels, truth values and numbers such as "Supported.", "да" and "#1". Nothing is
    guessed. A reply is an error if it is truncated, refused or empty, or if it contains NaN, a key with two values, or
    two different values of the class.

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
        """Pydantic class of the values that the parser returns."""
        return self.pydantic_object

    @property
    def _type(self) -> str:
        return "strict_json"

    def get_format_instructions(self) -> str:
        """Return an English instruction for the model that contains the schema on one line.

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
        """Parse the text of a reply and return a value of the class.

        Raises:
            OutputParserException: if the text is invalid; the message says what the model should fix.
        """
        return self._read([ReplyText(text)])

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> T:
        """Parse the first of a model's generations. `partial` is ignored: the reply is always parsed as complete.

        Raises:
            OutputParserException: if the reply is invalid, truncated or refused.
        """
        if not result:
            return self.read_message(None)
        first = result[0]
        message = first.message if isinstance(first, ChatGeneration) else AIMessage(first.text)
        self._check_stop(message, first.generation_info or {})
        return self.read_message(message)

    def read_message(self, message: BaseMessage | None) -> T:
        """Parse a message and return a value of the class.

        The parser reads the tool calls with the name of the class; if there are none, all tool calls; without tool
        calls, the text. All that is read must hold one and the same answer.

        Raises:
            OutputParserException: if the message is None, invalid, truncated or refused.
        """
        if message is None:
            raise _parse_error("the reply is empty", "")
        self._check_stop(message, message.response_metadata)
        try:
            replies = reply_texts(message)
        except RecursionError as error:
            raise _parse_error(_describe(error), "") from error
        return self._read([reply for reply in replies if reply.tool == self.pydantic_object.__name__] or replies)

    def _check_stop(self, message: BaseMessage, metadata: Mapping[str, Any]) -> None:
        try:
            check_stop(message, metadata, has_lists=_has_lists(self.pydantic_object))
        except CutOffReply:
            raise
        except ValueError as error:
            raise _parse_error(str(error), "\n".join(reply.text for reply in reply_texts(message))) from error

    def _read(self, replies: Sequence[ReplyText]) -> T:
        """Parse the texts of one message, which must all contain the same value, and return that value."""
        raw = "\n".join(reply.text for reply in replies)
        try:
            values = {as_json: value for reply in replies for as_json, value in self._values(reply).items()}
        except (ValueError, RecursionError) as error:
            raise _parse_error(_describe(error), raw, UnfitReply) from error
        if len(values) > 1:
            raise _parse_error(f"the reply holds {len(values)} different answers: give one", raw)
        return next(iter(values.values()))

    def _values(self, reply: ReplyText) -> dict[str, T]:
        """Return the distinct values in a text, keyed by their JSON; raise the most specific error if there is none."""
        text = restore_control_tokens(reply.text)
        try:
            whole = (_PLAIN_DECODER if reply.is_decoded else _DECODER).decode(text)
        except (ValueError, RecursionError):
            return self._values_within(_unescaped(final_channel(text)))
        return self._fit(whole)

    def _values_within(self, text: str) -> dict[str, T]:
        """Return the distinct values in the spans of a text that look like JSON.

        An invalid span that looks like JSON is an error even if another one is valid: it may be the answer, and the
        valid one an example.
        """
        values: dict[str, T] = {}
        errors: list[Exception] = []
        spans = dict.fromkeys(json_spans(text))
        if len(spans) > _MAX_SPANS:
            raise ValueError(f"the reply holds more than {_MAX_SPANS} pieces of JSON: give one")
        for span in spans:
            try:
                loaded = _load(span)
            except (ValueError, RecursionError) as error:
                if _LOOKS_LIKE_JSON.search(span):
                    raise
                errors.append(error)
                continue
            try:
                fitting = self._fit(loaded)
            except (ValueError, RecursionError) as error:
                errors.append(error)
            else:
                self._check_comments(span)
                values |= fitting
        if not values:
            raise min(errors, key=_distance)
        return values

    def _check_comments(self, span: str) -> None:
        """Raise ValueError if a comment names a verdict, which may be another one than that of the reply."""
        nodes = list(_nodes(_schema_of(self.pydantic_object)))
        labels = {label.casefold() for node in nodes for label in node.get("enum", ()) if isinstance(label, str)}
        labels |= BOOLEAN_WORDS.keys() if any(node.get("type") == "boolean" for node in nodes) else set()
        for comment in comments_in(span):
            if labels & set(re.findall(r"\w+", comment.casefold())):
                raise ValueError(f"the comment {_preview(comment)} names a verdict: give the answer without comments")

    def _fit(self, value: Any) -> dict[str, T]:
        """Validate a value, with repairs if necessary; return the instance keyed by its JSON."""
        errors: list[Exception] = []
        schema = _schema_of(self.pydantic_object)
        for reading in readings(value, schema, _load):
            try:
                instance = self._validate(respell(reading, schema, _load) if schema else reading)
            except ValueError as error:
                errors.append(error)
                if _distance(error)[1] > _MOST_ERRORS:
                    break
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


@lru_cache(maxsize=256)
def _schema_of(kind: type[BaseModel]) -> dict[str, Any] | None:
    """Return the strict schema of a class; None if the class has none."""
    try:
        return strict_schema(kind)
    except (ValueError, TypeError, PydanticUserError):
        return None


@lru_cache(maxsize=256)
def _has_lists(kind: type[BaseModel]) -> bool:
    """Return True if a class contains lists."""
    return any(node.get("type") == "array" for node in _nodes(_schema_of(kind)))


def _nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object in a schema, the outer ones first."""
    if isinstance(schema, dict):
        yield schema
        schema = list(schema.values())
    for part in schema if isinstance(schema, list) else ():
        yield from _nodes(part)


def _unescaped(text: str) -> str:
    r"""Return the JSON in a fenced JSON string, or in its content such as `{\"a\": 1}`; other texts unchanged."""
    bare = without_fence(text)
    if _ESCAPED_JSON.match(bare):
        bare = f'"{bare}"'
    elif not bare.startswith('"') or not bare.endswith('"'):
        return text
    try:
        return str(_DECODER.decode(bare))
    except ValueError:
        return text


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


def _finite(number: str) -> JsonNumber:
    if not math.isfinite(value := JsonNumber(number)):
        raise ValueError(f"{number} is not a number that JSON can hold")
    return value


# strict=False lets a string hold raw line breaks and tabs. The plain decoder reads what a client decoded and the
# package encoded again: the spelling of its numbers is not the judge's.
_DECODER, _PLAIN_DECODER = (
    json.JSONDecoder(strict=False, object_pairs_hook=_unique, parse_float=parse, parse_constant=parse)
    for parse in (_finite, lambda number: float(_finite(number)))
)


class _SchemaError(ValueError):
    """Valid JSON that does not fit the class; `distance` is smaller the deeper in the value the errors are."""

    def __init__(self, error: ValidationError) -> None:
        details = error.errors()
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
            before = doc[:pos] if pos <= _SHOWN_BEFORE else _WORD_AT_START.sub("", doc[pos - _SHOWN_BEFORE : pos])
            return f"this is not JSON: {msg} at {_preview(doc[pos:])}, after {_preview(before)}"
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
            value = _WORD_AT_END.sub("", value[:_SHOWN_CHARACTERS]) + "…"
    return json.dumps(value, ensure_ascii=False)


def _parse_error(
    message: str, raw: str, kind: type[OutputParserException] = OutputParserException
) -> OutputParserException:
    # Passed as an exception: to a plain string, langchain-core appends the address of a help page.
    return kind(ValueError(redact_secrets(message)), llm_output=raw)
