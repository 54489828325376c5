"""Repairs of decoded JSON whose form or spelling differs from the schema; none adds or drops an item.

`readings` unpacks a value that is wrapped, listed or encoded twice. `respell` replaces values that differ from what the
schema asks for in spelling only, such as "Supported." for "supported", "да" for true and "#1" for 1. What could be
read in two ways is unchanged, so that the validation refuses it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

Schema = Mapping[str, Any]

_MAX_DEPTH: Final = 4
_NAMES: Final = ("name", "function", "tool", "tool_name", "action")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
_NO_ANSWERS: Final = ("draft", "example", "черновик", "пример")
_TRUE_WORDS: Final = "yes true да истина 是 真 예 네 참 sì si vero"
_FALSE_WORDS: Final = "no false нет ложь 否 假 아니오 아니요 거짓 falso"
BOOLEAN_WORDS: Final = {
    word: value for words, value in ((_TRUE_WORDS, True), (_FALSE_WORDS, False)) for word in words.split()
}
_OPENING: Final = " \t\r\n\u00a0\"'`*_«“„‘([<"
_CLOSING: Final = " \t\r\n\u00a0\"'`*_»”“’)]>"
_END: Final = (".", ",", ";", "!", "。", "！")
_NUMBER: Final = re.compile(r"(?:#|№|n°)?\s*(\d{1,18})(?:[.):]|\.\))?", re.ASCII)
_BRACKETED: Final = re.compile(r"\[\s*#?(\d{1,18})\s*\]|\(\s*#?(\d{1,18})\s*\)", re.ASCII)


def readings(value: Any, schema: Schema | None, decode: Callable[[str], Any]) -> Iterator[Any]:
    """Yield a value, then what it contains if it is a wrapper, a list of one, a tool call or JSON in a string.

    Args:
        value: the decoded value.
        schema: JSON schema of the answer; None if it has none.
        decode: decodes JSON in a string; raises ValueError or RecursionError.
    """
    pending = [value]
    for _ in range(_MAX_DEPTH + 1):
        yield from pending
        pending = [inner for outer in pending for inner in _unwrapped(outer, schema or {}, decode)]


def _unwrapped(value: Any, schema: Schema, decode: Callable[[str], Any]) -> Iterator[Any]:
    """Yield what is directly inside a value that may be a wrapper."""
    match value:
        case str() if (inner := _decoded(value, decode)) is not value:
            yield inner
        case [dict() as only]:
            yield only
        case dict():
            yield from _inside_object(value, schema, decode)
    if wrapped := as_object(value, schema):
        yield wrapped


def _inside_object(value: Mapping[str, Any], schema: Schema, decode: Callable[[str], Any]) -> Iterator[Any]:
    """Yield the arguments of a tool call, the value under an only key, or the value under the title of the schema."""
    if (arguments := arguments_of(value, schema)) is not None:
        yield arguments
    elif len(value) == 1:
        key, inner = next(iter(value.items()))
        inner = _decoded(inner, decode) if isinstance(inner, str) else inner
        if isinstance(inner, dict | list) and key.casefold() not in _NO_ANSWERS:
            yield inner
    elif value.keys().isdisjoint(schema.get("properties") or {}):
        named = [key for key in value if _same_name(key, schema.get("title"))]
        if len(named) == 1 and _is_plain(value, named[0]):
            yield value[named[0]]


def as_object(value: Any, schema: Schema) -> dict[str, Any] | None:
    """Return a list of objects as the only field of an object, if the schema has just one field, a list of objects."""
    properties = schema.get("properties") or {}
    if len(properties) != 1 or not isinstance(value, list) or not value:
        return None
    name, field = next(iter(properties.items()))
    is_list_of_objects = field.get("type") == "array" and (field.get("items") or {}).get("type") == "object"
    keys = ((field.get("items") or {}).get("properties") or {}).keys()
    are_items = all(isinstance(item, dict) and not keys.isdisjoint(item) for item in value)
    return {name: value} if is_list_of_objects and are_items else None


def arguments_of(value: Mapping[str, Any], schema: Schema) -> Any:
    """Return the arguments of a tool call, `{"name": "Verdicts", "arguments": {…}}`; None for other objects.

    The name must be the title of the schema: the arguments of another tool are no answer.
    """
    if isinstance(function := value.get("function"), dict):
        value = function
    name = next((value[key] for key in _NAMES if key in value), None)
    keys = [key for key in _ARGUMENTS if key in value]
    if len(keys) != 1 or not isinstance(name, str) or not _is_plain(value, keys[0]):
        return None
    return value[keys[0]] if _same_name(name.removeprefix("functions."), schema.get("title")) else None


def respell(value: Any, schema: Schema, decode: Callable[[str], Any], key: str = "") -> Any:
    """Return a value with the spelling that a schema asks for; what differs in more than spelling is unchanged.

    Args:
        value: the decoded value.
        schema: JSON schema of the value.
        decode: decodes JSON in a string; raises ValueError or RecursionError.
        key: name of the field that the value is for.

    Raises:
        ValueError: if a key occurs in two spellings with different values, or a boolean stands for an integer.
    """
    if branches := [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]:
        return respell(value, branches[0], decode, key) if len(branches) == 1 and value is not None else value
    kind = schema.get("type")
    if kind in ("array", "object") and isinstance(value, str):
        value = _decoded(value, decode)
    match value:
        case dict() if kind == "object":
            named = _with_keys_of(value, properties := schema.get("properties") or {})
            return {
                name: respell(inner, properties[name], decode, name) if name in properties else inner
                for name, inner in named.items()
            }
        case list() if kind == "array":
            items = schema.get("items") or {}
            return [respell(item, items, decode) for item in value]
        case str() if kind == "boolean":
            return boolean_of(value)
        case str() if kind == "integer":
            return integer_of(value, key)
        case str() if labels := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
            return label_of(value, labels)
        case bool() if kind == "integer":
            raise ValueError(f"{key or 'an item'}: a number is expected, not {json.dumps(value)}")
    return value


def label_of(text: str, labels: list[Any]) -> str:
    """Return the label that a text is, but for case, quotes and a full stop; the text unchanged if there is none."""
    if text in labels:
        return text
    word = _words(bare_word(text))
    matches = [label for label in labels if isinstance(label, str) and _words(label) == word]
    return matches[0] if len(matches) == 1 else text


def boolean_of(text: str) -> bool | str:
    """Return the truth value of "да", "Нет.", "是", "예", "sì" or "YES"; other texts unchanged."""
    return BOOLEAN_WORDS.get(bare_word(text).casefold(), text)


def integer_of(text: str, key: str = "") -> int | str:
    """Return the number of "#1", "1.", "[1]" or, for the field `statement`, "Statement 1"; other texts unchanged."""
    stripped = text.strip(" \t\r\n\u00a0\"'`*_")
    if key and stripped.casefold().startswith(key.casefold()):
        stripped = stripped[len(key) :].lstrip(" \u00a0_:")
    if match := _NUMBER.fullmatch(stripped) or _BRACKETED.fullmatch(stripped):
        return int(next(filter(None, match.groups())))
    return text


def bare_word(text: str) -> str:
    """Return a text without quotes, brackets and emphasis around it, and without one full stop or comma at its end."""
    text = text.lstrip(_OPENING).rstrip(_CLOSING)
    if text.endswith(_END) and not text[:-1].endswith(_END):
        text = text[:-1].rstrip(_CLOSING)
    return text


def _is_plain(value: Mapping[str, Any], key: str) -> bool:
    """Return True if the other values of an object are plain: an object or list beside an answer may be another one."""
    others = (inner for name, inner in value.items() if name != key)
    return not any(isinstance(inner, dict | list) or str(inner).strip()[:1] in ("{", "[") for inner in others)


def _same_name(name: object, other: object) -> bool:
    return isinstance(name, str) and isinstance(other, str) and _simplified(name) == _simplified(other) != ""


def _words(label: str) -> str:
    return re.sub(r"[\s_-]+", "_", label).casefold()


def _simplified(name: str) -> str:
    return re.sub(r"[\s_-]+", "", name).casefold()


def _with_keys_of(value: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object whose keys are spelled as those of the schema; unknown keys are kept."""
    if value.keys() <= properties.keys():
        return dict(value)
    spelled: dict[str, Any] = {}
    names = {_simplified(name): name for name in properties}
    is_ambiguous = len(names) < len(properties)
    for key, inner in value.items():
        name = key if key in properties or is_ambiguous else names.get(_simplified(key), key)
        if name in spelled and repr(spelled[name]) != repr(inner):
            raise ValueError(f"the key {json.dumps(name, ensure_ascii=False)} has two values")
        spelled[name] = inner
    return spelled


def _decoded(text: str, decode: Callable[[str], Any]) -> Any:
    """Return the object or list that a string contains as JSON; the string itself if it contains neither."""
    stripped = text.strip()
    if not stripped.startswith(("{", "[")) or not stripped.endswith(("}", "]")):
        return text
    try:
        decoded = decode(stripped)
    except (ValueError, RecursionError):
        return text
    return decoded if isinstance(decoded, dict | list) else text
