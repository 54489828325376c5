"""Repairs of invalid JSON in replies; none adds or drops an item or changes the content of a string.

`json_spans` finds the objects and lists in a reply. `REPAIRS` are functions from text to text, for the text of one
span; `VALUE_REPAIRS` are functions from value to value, for the decoded value. Both are applied in order, each to the
result of the ones before, until the reply is valid. Every function takes linear time. To add a repair, append a
function to one of the two tuples at the end of this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

_QUOTES: Final = {"'": "'", "“": "”", "„": "“”", "«": "»", "‘": "’"}

# Possessive, and ended at the latest by the end of the text, so that a string is matched without backtracking.
_STRING: Final = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_QUOTED: Final = "|".join(
    rf"{opening}(?:[^\\{closing}]|\\.?|[{closing}](?!\s*+(?:[,:\]}}]|\Z)))*+(?:[{closing}]|\Z)"
    for opening, closing in _QUOTES.items()
)
_OTHER_STRING: Final = rf"(?P<before>[\[{{,:]\s*+)(?P<quoted>{_QUOTED})"
_TOKEN: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}|[\[\]{{}}]|</think>", re.DOTALL)
_MARK: Final = re.compile(r"</?think>|[\[\]{}]")
_JSON_START: Final = re.compile(
    rf"[\[{{]\s*+(?:[\"{''.join(_QUOTES)}\[\]{{}}\d-]|(?:true|false|null|True|False|None|NaN)\b|//|/\*|\Z)"
    r"|\{\s*+\w++\s*+:"
)
_INDEX: Final = re.compile(r"(?<=[A-Za-z0-9_])\[")
_STRAIGHTENED: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}", re.DOTALL)
_ESCAPE: Final = re.compile(r'"|\\(?:x([0-9a-fA-F]{2})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|.)', re.DOTALL)
_LITERAL: Final = re.compile(rf"{_STRING}|\b(?:True|False|None)\b", re.DOTALL)
_COMMA: Final = re.compile(rf"{_STRING}|[\[{{,:]\s*+,|,(?=\s*+[\]}}])", re.DOTALL)
_HINT: Final = 'close every bracket and quote once, and write each " inside a string as \\"'


class CutOff(ValueError):
    """A thought, list, object or string has no end."""


def json_spans(text: str) -> list[str]:
    """Find the outermost objects and lists in a reply, outside of thoughts, code fences and prose.

    `Вот ответ: {"verdict": 1}. Надеюсь, помог!` contains one, and so does a fenced block. `<think>…</think>` is
    skipped, and so is everything before a `</think>` without a start. A bracket that does not start like JSON, such as
    `{a, b}` or `[draft: …`, is prose; `names[0]` is an index.

    Returns:
        The spans in order; if there are none, the stripped text after the last thought.

    Raises:
        CutOff: if a thought or a span has no end, or more brackets are closed after a span than were opened.
    """
    spans: list[str] = []
    position = text_start = prose_brackets = 0
    while mark := _MARK.search(text, position):
        position = mark.end()
        if mark[0] == "<think>":
            position = text_start = _end_of_thought(text, position)
        elif mark[0] == "</think>":
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
        elif spans:
            raise CutOff(f"more brackets close than open: {_HINT}")
    return spans or [text[text_start:].strip()]


def _end_of_thought(text: str, start: int) -> int:
    end = text.find("</think>", start)
    if end < 0:
        raise CutOff("the thought is cut off: think less, and answer with the JSON after </think>")
    return end + len("</think>")


def _end_of_span(text: str, start: int) -> int:
    """Return the end of the object or list whose bracket is at `start`, or the position of a `</think>` within it."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        depth += (token[0][0] in "[{") - (token[0][0] in "]}")
        if token[0] == "</think>":
            return token.start()
        if depth == 0:
            return token.end()
    raise CutOff(f"the JSON is cut off: {_HINT}")


def straight_quotes(text: str) -> str:
    """Replace the quotes of `{'вывод': 'да'}`, `{“вывод”: “да”}`, `{„вывод“: „да“}`, `{«вывод»: «да»}` by double ones.

    Such a string ends at the closing quote before a comma, a colon, a closing bracket or the end of the text, so
    `['don't']` is one string.
    """

    def straighten(match: re.Match[str]) -> str:
        if not match["quoted"]:
            return match[0]
        return f'{match["before"]}"{_ESCAPE.sub(_json_escape, match["quoted"][1:-1])}"'

    return _STRAIGHTENED.sub(straighten, text)


def _json_escape(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return json.dumps(chr(int(code, 16)))[1:-1]
    return {'"': '\\"', "\\'": "'"}.get(match[0], match[0])


def json_literals(text: str) -> str:
    """Replace Python literals, as in `{"abstains": True, "answer": None}`, by `true`, `false` and `null`."""
    literals = {"True": "true", "False": "false", "None": "null"}
    return _LITERAL.sub(lambda match: literals.get(match[0], match[0]), text)


def no_trailing_commas(text: str) -> str:
    """Remove the last comma of `["a", "b",]` and `{"a": 1,}`; `[,]` and `["a",,]` lack an item and are kept."""
    return _COMMA.sub(lambda match: "" if match[0] == "," else match[0], text)


def out_of_list(value: Any) -> Any:
    """Return the only object of a list, as in `[{"verdict": 1}]`; other values unchanged."""
    match value:
        case [dict() as only]:
            return only
    return value


def out_of_wrapper(value: Any) -> Any:
    """Return the object or list under an object's only key, as in `{"result": {"verdict": 1}}`; others unchanged."""
    match value:
        case dict() if len(value) == 1 and isinstance(inner := next(iter(value.values())), dict | list):
            return inner
    return value


REPAIRS: Final[tuple[Callable[[str], str], ...]] = (straight_quotes, json_literals, no_trailing_commas)
VALUE_REPAIRS: Final[tuple[Callable[[Any], Any], ...]] = (out_of_list, out_of_wrapper)
