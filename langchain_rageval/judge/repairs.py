"""Repairs of replies: invalid JSON, and values whose form or spelling differs from the schema.

No repair adds or drops an item, or changes the content of a string.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any, Final

_QUOTES: Final = {"'": "'", "“": "”", "„": "“”", "«": "»", "‘": "’"}

_THINKING_TAGS: Final = "think(?:ing)?|thoughts?|reasoning|reflection|scratchpad"
_THOUGHT_START: Final = rf"<(?:{_THINKING_TAGS})>|\[THINK\]|◁think▷|<\|START_THINKING\|>"
_THOUGHT_END: Final = rf"</(?:{_THINKING_TAGS})>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>"
_CLOSING: Final = {"[think]": "[/THINK]", "◁think▷": "◁/think▷", "<|start_thinking|>": "<|END_THINKING|>"}
_OTHER_SPACES: Final = (
    "\u00a0\u1680\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff"  # JSON knows only space, tab, line ends
)

# Ended at the latest by the end of the text, so that a string is matched without backtracking. A possessive group
# must hold no lookahead: Python 3.11.2, that of Debian 12, matches it wrongly.
_STRING: Final = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_QUOTED: Final = "|".join(
    rf"{opening}(?:[^\\{closing}]++|\\.?|[{closing}](?!\s*+(?:[,:\]}}]|\Z)))*(?:[{closing}]|\Z)"
    for opening, closing in _QUOTES.items()
)
_OTHER_STRING: Final = rf"(?P<before>[\[{{,:]\s*+)(?P<quoted>{_QUOTED})"
_COMMENT: Final = r"(?<!:)//[^\n]*+|/\*(?:[^*]++|\*(?!/))*(?:\*/|\Z)"
_TOKEN: Final = re.compile(rf"{_STRING}|{_COMMENT}|{_OTHER_STRING}|(?P<end>(?i:{_THOUGHT_END}))|[\[\]{{}}]", re.DOTALL)
_MARK: Final = re.compile(rf"(?P<start>(?i:{_THOUGHT_START}))|(?P<end>(?i:{_THOUGHT_END}))|[\[\]{{}}]")
_JSON_START: Final = re.compile(
    rf"[\[{{][\s{_OTHER_SPACES}]*+(?:[\"{''.join(_QUOTES)}\[\]{{}}\d-]|(?:true|false|null|True|False|None|NaN)\b|//|/\*|\Z)"
    rf"|\{{[\s{_OTHER_SPACES}]*+\w++\s*+:"
)
_INDEX: Final = re.compile(r"(?<=[A-Za-z0-9_])\[")
_SURPLUS_BRACE: Final = re.compile(r"\}[\s`]*+\Z")
_STRAIGHTENED: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}", re.DOTALL)
_ESCAPE: Final = re.compile(r'"|\\(?:x([0-9a-fA-F]{2})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|.)', re.DOTALL)
_JSON_LITERALS: Final = {"True": "true", "False": "false", "None": "null"}
_LITERAL: Final = re.compile(rf"{_STRING}|\b(?:True|False|None)\b", re.DOTALL)
_COMMA: Final = re.compile(rf"{_STRING}|[\[{{,:]\s*+,|,(?=\s*+[\]}}])", re.DOTALL)
_STRING_OR_COMMENT: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_SAYS_MORE: Final = re.compile(r'["{}]')
_STRING_OR_SPACE: Final = re.compile(rf"{_STRING}|(?P<space>[{_OTHER_SPACES}])", re.DOTALL)
_BARE_KEY: Final = re.compile(rf"{_STRING}|(?P<before>[{{,]\s*+)(?P<key>[^\W\d]\w*+)(?=\s*+:)", re.DOTALL)
_ESCAPED_STRING: Final = re.compile(_STRING, re.DOTALL)
_ESCAPED_MARK: Final = re.compile(r"\\['_*`$#%&~|<>()+.!=-]")
_ESCAPE_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_HARMONY: Final = re.compile(
    r"(?:<\|start\|>assistant(?P<header>[^<]*))?<\|channel\|>\s*(?P<channel>\w+)(?P<recipient>[^<]*)(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<content>.*?)(?=<\|(?:end|call|return|start|channel)\|>|\Z)",
    re.DOTALL,
)
_HARMONY_START: Final = re.compile(
    r"\s*(?:(?:<\|start\|>\s*assistant[^<]*)?<\|channel\|>|(?:analysis|commentary)\b[^<]{0,80}<\|message\|>)"
)
_HARMONY_WITHOUT_TOKENS: Final = re.compile(
    r"\s*analysis.*assistant(?:final|commentary to=functions\.\w+(?: *json\b)?)(?P<content>.*)", re.DOTALL
)
_ANALYSIS_ALONE: Final = re.compile(r"\s*analysis[\w{\[]")
_HINT: Final = 'close every bracket and quote once, and write each " inside a string as \\"'


class CutOff(ValueError):
    """Error about text in which a thought, list, object or string has no end."""


def json_spans(text: str) -> list[str]:
    """Return the outermost JSON objects and lists in a reply, without thoughts, marks of code fences and prose.

    `Вот ответ: {"verdict": 1}. Надеюсь, помог!` contains one object; a fenced block is read, too. Thoughts in
    `<think>…</think>` and other tags are skipped. Everything before a `</think>` without a start is skipped, too. A
    bracket that does not start like JSON, such as `{a, b}` or `[draft: …`, is prose and skipped. The index in
    `names[0]` is skipped, too.

    Returns:
        The spans in order; if there are none, the stripped text after the last thought.

    Raises:
        CutOff: if a thought or a span has no end, or if a closing bracket after a span has no opening bracket. One
            surplus `}` at the end of the text is allowed.
    """
    spans: list[str] = []
    position = text_start = prose_brackets = 0
    while mark := _MARK.search(text, position):
        position = mark.end()
        if mark["start"]:
            closing = _CLOSING.get(mark[0].lower()) or f"</{mark[0][1:]}"
            if (end := re.compile(re.escape(closing), re.IGNORECASE).search(text, position)) is None:
                raise CutOff(f"the thought is cut off: think less, and answer with the JSON after {closing}")
            position = text_start = end.end()
        elif mark["end"]:
            spans.clear()
            prose_brackets, text_start = 0, position
        elif _JSON_START.match(text, mark.start()):
            position = _end_of_span(text, mark.start())
            if not _INDEX.match(text, mark.start()):
                spans.append(text[mark.start() : position])
        elif mark[0] in "[{":
            prose_brackets += 1
        elif prose_brackets:
            prose_brackets -= 1
        elif spans and not _SURPLUS_BRACE.match(text, mark.start()):
            raise CutOff(f"more brackets close than open: {_HINT}")
    return spans or [text[text_start:].strip()]


def _end_of_span(text: str, start: int) -> int:
    """Return the end of the object or list whose bracket is at `start`, or the start of the tag that ends a thought."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0][0] in "[{") - (token[0][0] in "]}")
        if token["end"]:
            return token.start()
        if depth == 0:
            return token.end()
    raise CutOff(f"the JSON is cut off: {_HINT}")


def final_channel(text: str) -> str:
    """Return the final messages and tool calls of a reply in OpenAI's harmony format, without the thoughts.

    `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>{…}` is such a reply. The server
    may have removed the tokens and left `analysis…assistantfinal{…}`. Other texts are returned unchanged.
    """
    if _HARMONY_START.match(text):
        return "\n".join(
            message["content"]
            for message in _HARMONY.finditer(text)
            if message["channel"] == "final" or "to=functions." in f"{message['header']} {message['recipient']}"
        )
    if bare := _HARMONY_WITHOUT_TOKENS.fullmatch(text):
        return bare["content"]
    return "" if _ANALYSIS_ALONE.match(text) else text


def comments_in(text: str) -> list[str]:
    """Return the `//` and `/* */` comments in JSON text."""
    return [match["comment"] for match in _STRING_OR_COMMENT.finditer(text) if match["comment"]]


def _without_comment(match: re.Match[str]) -> str:
    """Remove a `//` or `/* */` comment, except one with a quote or a brace, which may hold data."""
    comment = match["comment"]
    is_plain = comment and not _SAYS_MORE.search(comment) and (comment[1] == "/" or comment.endswith("*/"))
    return " " if is_plain else match[0]


def _in_double_quotes(match: re.Match[str]) -> str:
    """Replace quotes by double ones: `{'вывод': 'да'}`, `{“вывод”: “да”}`, `{„вывод“: „да“}`, `{«вывод»: «да»}`.

    Such a string ends at the closing quote before a comma, a colon, a closing bracket or the end of the text, so
    `['don't']` is one string.
    """
    if not match["quoted"]:
        return match[0]
    return f'{match["before"]}"{_ESCAPE.sub(_json_escape, match["quoted"][1:-1])}"'


def _json_escape(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return json.dumps(chr(int(code, 16)))[1:-1]
    return {'"': '\\"', "\\'": "'"}.get(match[0], match[0])


def _without_escaped_marks(text: str) -> str:
    r"""Remove the backslash from escapes that JSON does not allow in a string, such as `\'`, `\_` and `\$`."""

    def unescape(match: re.Match[str]) -> str:
        return _ESCAPE_PAIR.sub(lambda pair: pair[1] if _ESCAPED_MARK.fullmatch(pair[0]) else pair[0], match[0])

    return _ESCAPED_STRING.sub(unescape, text) if _ESCAPED_MARK.search(text) else text


REPAIRS: Final[tuple[Callable[[str], str], ...]] = (
    partial(_STRING_OR_COMMENT.sub, _without_comment),
    partial(_STRAIGHTENED.sub, _in_double_quotes),
    # no-break and zero-width spaces between JSON tokens; such characters are kept in strings
    partial(_STRING_OR_SPACE.sub, lambda match: " " if match["space"] else match[0]),
    # bare keys, as in `{verdict: 1, reason: "да"}`
    partial(_BARE_KEY.sub, lambda match: f'{match["before"]}"{match["key"]}"' if match["key"] else match[0]),
    _without_escaped_marks,
    # Python literals, as in `{"abstains": True, "answer": None}`
    partial(_LITERAL.sub, lambda match: _JSON_LITERALS.get(match[0], match[0])),
    # the last comma of `["a", "b",]` and `{"a": 1,}`; `[,]` and `["a",,]`, in which an item is missing, are kept
    partial(_COMMA.sub, lambda match: "" if match[0] == "," else match[0]),
)


Schema = Mapping[str, Any]

_MAX_DEPTH: Final = 4
_NAMES: Final = ("name", "function", "tool", "tool_name", "action")
_ARGUMENTS: Final = ("arguments", "parameters", "args", "input", "tool_input", "action_input")
_NO_ANSWERS: Final = ("draft", "example", "черновик", "пример")
_TRUE_WORDS: Final = "yes true да истина 是 真 예 네 참 sì si vero"
_FALSE_WORDS: Final = "no false нет ложь 否 假 아니오 아니요 거짓 falso"
BOOLEAN_WORDS: Final = dict.fromkeys(_TRUE_WORDS.split(), True) | dict.fromkeys(_FALSE_WORDS.split(), False)
_OPENING_QUOTES: Final = " \t\r\n\u00a0\"'`*_«“„‘([<"
_CLOSING_QUOTES: Final = " \t\r\n\u00a0\"'`*_»”“’)]>"
_END: Final = (".", ",", ";", "!", "。", "！")
_NUMBER: Final = re.compile(r"(?:#|№|n°)?\s*(\d{1,18})(?:[.):]|\.\))?", re.ASCII)
_BRACKETED: Final = re.compile(r"\[\s*#?(\d{1,18})\s*\]|\(\s*#?(\d{1,18})\s*\)", re.ASCII)


def readings(value: Any, schema: Schema | None, decode: Callable[[str], Any]) -> Iterator[Any]:
    """Yield a decoded value, then the values inside it that may be the answer.

    A value inside is looked for in a wrapper such as `{"result": {...}}`, a list of one item, a tool call and JSON in a
    string. A bare list of texts is read as the only field of the answer. This does not apply to a list in a wrapper,
    such as `{"keywords": ["a"]}`, because the key says that the texts are something else.

    Args:
        value: the decoded value.
        schema: JSON schema of the answer; None if the answer has no schema.
        decode: function that decodes JSON in a string; raises ValueError or RecursionError.
    """
    pending = [value, *filter(None, [as_field(value, schema or {}, "string")])]
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
    if wrapped := as_field(value, schema, "object"):
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


def as_field(value: Any, schema: Schema, kind: str) -> dict[str, Any] | None:
    """Return an object with a bare list as its only field; None if value or schema do not allow this.

    The schema must have exactly one field, a list of items of the given kind. The value must be a list of such items
    that is not empty.

    Args:
        value: decoded JSON value that a reply contains.
        schema: JSON schema of the answer.
        kind: type of the items: "object" for objects with at least one of the keys that the schema lists for an item,
            "string" for texts and for objects such as `{"text": "a"}`.
    """
    properties = schema.get("properties") or {}
    if len(properties) != 1 or not isinstance(value, list) or not value:
        return None
    name, field = next(iter(properties.items()))
    items = (field.get("items") or {}) if field.get("type") == "array" else {}
    keys = (items.get("properties") or {}).keys()
    if kind == "string":
        fits = all(isinstance(text_of(item, name), str) for item in value)
    else:
        fits = all(isinstance(item, dict) and not keys.isdisjoint(item) for item in value)
    return {name: value} if fits and items.get("type") == kind else None


def text_of(item: Any, key: str) -> Any:
    """Return the text of an item of a list: "a" for `{"text": "a"}`, or for `{"statement": "a"}` in `statements`.

    `key` is the name of the list, such as "statements". Any other item is returned unchanged.
    """
    if isinstance(item, dict) and len(item) == 1 and next(iter(item)) in ("text", key.removesuffix("s")):
        return next(iter(item.values()))
    return item


def arguments_of(value: Mapping[str, Any], schema: Schema) -> Any:
    """Return the arguments of a tool call such as `{"name": "Verdicts", "arguments": {…}}`; None for other objects.

    The name must be the title of the schema, because the arguments of another tool are no answer.
    """
    if isinstance(function := value.get("function"), dict):
        value = function
    name = next((value[key] for key in _NAMES if key in value), None)
    keys = [key for key in _ARGUMENTS if key in value]
    if len(keys) != 1 or not isinstance(name, str) or not _is_plain(value, keys[0]):
        return None
    return value[keys[0]] if _same_name(name.removeprefix("functions."), schema.get("title")) else None


def respell(value: Any, schema: Schema, decode: Callable[[str], Any], key: str = "") -> Any:
    """Return a value with its keys, labels, truth values and numbers spelled as a schema requires.

    Examples: "Supported." becomes "supported", "да" becomes True, "#1" becomes 1. Case, spaces, hyphens and underscores
    in keys are ignored. A part that differs in more than its spelling, such as an unknown label, is kept unchanged.

    Args:
        value: the decoded value.
        schema: JSON schema of the value.
        decode: function that decodes a list or mapping that is given as JSON text; raises ValueError or RecursionError.
        key: name of the field that holds the value; "" for the whole value. With "statement", "Statement 1" becomes 1.

    Raises:
        ValueError: if a key occurs in two spellings with different values, or a boolean is in place of an integer.
    """
    if "anyOf" in schema and (branches := [one for one in schema["anyOf"] if one.get("type") != "null"]):
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
            texts = items.get("type") == "string"
            return [text_of(item, key) if texts else respell(item, items, decode) for item in value]
        case str() if kind == "boolean":  # "да", "Нет.", "是", "예", "sì" or "YES"
            return BOOLEAN_WORDS.get(bare_word(value).casefold(), value)
        case str() if kind == "integer":
            return integer_of(value, key)
        case str() if labels := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
            return label_of(value, labels)
        case bool() if kind == "integer":
            raise ValueError(f"{key or 'an item'}: a number is expected, not {json.dumps(value)}")
    return value


def label_of(text: str, labels: list[Any]) -> str:
    """Return the label that equals a text, ignoring case, quotes and a full stop; the text itself if none does."""
    if text in labels:
        return text
    word = _words(bare_word(text))
    matches = [label for label in labels if isinstance(label, str) and _words(label) == word]
    return matches[0] if len(matches) == 1 else text


def integer_of(text: str, key: str = "") -> int | str:
    """Return the number in "#1", "1.", "[1]" or, for the field `statement`, "Statement 1"; keep other texts."""
    stripped = text.strip(" \t\r\n\u00a0\"'`*_")
    if key and stripped.casefold().startswith(key.casefold()):
        stripped = stripped[len(key) :].lstrip(" \u00a0_:")
    if match := _NUMBER.fullmatch(stripped) or _BRACKETED.fullmatch(stripped):
        return int(next(filter(None, match.groups())))
    return text


def bare_word(text: str) -> str:
    """Return a text without surrounding quotes, brackets and emphasis, and without a final full stop or comma."""
    text = text.lstrip(_OPENING_QUOTES).rstrip(_CLOSING_QUOTES)
    if text.endswith(_END):
        text = text[:-1].rstrip(_CLOSING_QUOTES)
    return text


def _is_plain(value: Mapping[str, Any], key: str) -> bool:
    """Return True if the other values of an object are plain: an object or list beside an answer may be another one."""
    others = (inner for name, inner in value.items() if name != key)
    return not any(isinstance(inner, dict | list) or str(inner).strip()[:1] in ("{", "[") for inner in others)


def _same_name(name: object, other: object) -> bool:
    return isinstance(name, str) and isinstance(other, str) and simplified(name) == simplified(other) != ""


def _words(label: str) -> str:
    return re.sub(r"[\s_-]+", "_", label).casefold()


@lru_cache(maxsize=256)  # a provider and a judge send the same keys with each reply
def simplified(name: object) -> str:
    """Return a name in lower case, without spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", str(name)).casefold()


def _with_keys_of(value: Mapping[str, Any], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object whose keys are spelled as those of the schema; unknown keys are kept."""
    if value.keys() <= properties.keys():
        return dict(value)
    spelled: dict[str, Any] = {}
    names = {simplified(name): name for name in properties}
    is_ambiguous = len(names) < len(properties)
    for key, inner in value.items():
        name = key if key in properties or is_ambiguous else names.get(simplified(key), key)
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
