"""Repairs of invalid JSON in replies; none adds or drops an item or changes the content of a string.

`json_spans` finds the objects and lists in a reply. `REPAIRS` are functions from text to text, for the text of one
span. They are applied in order, each to the result of the ones before, until the text is valid JSON. Every function
takes linear time. To add a repair, append a function to the tuple at the end of this file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final

_QUOTES: Final = {"'": "'", "“": "”", "„": "“”", "«": "»", "‘": "’"}

_THINKING_TAGS: Final = "think(?:ing)?|thoughts?|reasoning|reflection|scratchpad"
_THOUGHT_START: Final = rf"<(?:{_THINKING_TAGS})>|\[THINK\]|◁think▷|<\|START_THINKING\|>"
_THOUGHT_END: Final = rf"</(?:{_THINKING_TAGS})>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>"
_CLOSING: Final = {"[think]": "[/THINK]", "◁think▷": "◁/think▷", "<|start_thinking|>": "<|END_THINKING|>"}
_OTHER_SPACES: Final = (
    "\u00a0\u1680\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff"  # JSON knows only space, tab, line ends
)

# Possessive, and ended at the latest by the end of the text, so that a string is matched without backtracking.
_STRING: Final = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_QUOTED: Final = "|".join(
    rf"{opening}(?:[^\\{closing}]|\\.?|[{closing}](?!\s*+(?:[,:\]}}]|\Z)))*+(?:[{closing}]|\Z)"
    for opening, closing in _QUOTES.items()
)
_OTHER_STRING: Final = rf"(?P<before>[\[{{,:]\s*+)(?P<quoted>{_QUOTED})"
_COMMENT: Final = r"(?<!:)//[^\n]*+|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)"
_TOKEN: Final = re.compile(rf"{_STRING}|{_COMMENT}|{_OTHER_STRING}|(?P<end>(?i:{_THOUGHT_END}))|[\[\]{{}}]", re.DOTALL)
_MARK: Final = re.compile(rf"(?P<start>(?i:{_THOUGHT_START}))|(?P<end>(?i:{_THOUGHT_END}))|[\[\]{{}}]")
_JSON_START: Final = re.compile(
    rf"[\[{{][\s{_OTHER_SPACES}]*+(?:[\"{''.join(_QUOTES)}\[\]{{}}\d-]|(?:true|false|null|True|False|None|NaN)\b|//|/\*|\Z)"
    rf"|\{{[\s{_OTHER_SPACES}]*+\w++\s*+:"
)
_INDEX: Final = re.compile(r"(?<=[A-Za-z0-9_])\[")
_STRAIGHTENED: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}", re.DOTALL)
_ESCAPE: Final = re.compile(r'"|\\(?:x([0-9a-fA-F]{2})|U(000[0-9a-fA-F]{5}|0010[0-9a-fA-F]{4})|.)', re.DOTALL)
_LITERAL: Final = re.compile(rf"{_STRING}|\b(?:True|False|None)\b", re.DOTALL)
_COMMA: Final = re.compile(rf"{_STRING}|[\[{{,:]\s*+,|,(?=\s*+[\]}}])", re.DOTALL)
_STRING_OR_COMMENT: Final = re.compile(rf"{_STRING}|{_OTHER_STRING}|(?P<comment>{_COMMENT})", re.DOTALL)
_SAYS_MORE: Final = re.compile(r'["{}]')
_STRING_OR_SPACE: Final = re.compile(rf"{_STRING}|(?P<space>[{_OTHER_SPACES}])", re.DOTALL)
_BARE_KEY: Final = re.compile(rf"{_STRING}|(?P<before>[{{,]\s*+)(?P<key>[^\W\d]\w*+)(?=\s*+:)", re.DOTALL)
_ESCAPED_STRING: Final = re.compile(_STRING, re.DOTALL)
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
    """A thought, list, object or string has no end."""


def json_spans(text: str) -> list[str]:
    """Find the outermost objects and lists in a reply, outside of thoughts, code fences and prose.

    `Вот ответ: {"verdict": 1}. Надеюсь, помог!` contains one, and so does a fenced block. `<think>…</think>`
    and thoughts in other tags are skipped, and so is everything before a `</think>` without a start. A
    bracket that does not start like JSON, such as `{a, b}` or `[draft: …`, is prose; `names[0]` is an index.

    Returns:
        The spans in order; if there are none, the stripped text after the last thought.

    Raises:
        CutOff: if a thought or a span has no end, or more brackets are closed after a span than were opened.
    """
    spans: list[str] = []
    position = text_start = prose_brackets = 0
    while mark := _MARK.search(text, position):
        position = mark.end()
        if mark["start"]:
            position = text_start = _end_of_thought(text, mark[0], position)
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
        elif spans:
            raise CutOff(f"more brackets close than open: {_HINT}")
    return spans or [text[text_start:].strip()]


def _end_of_thought(text: str, tag: str, start: int) -> int:
    closing = _CLOSING.get(tag.lower()) or f"</{tag[1:]}"
    end = re.compile(re.escape(closing), re.IGNORECASE).search(text, start)
    if end is None:
        raise CutOff(f"the thought is cut off: think less, and answer with the JSON after {closing}")
    return end.end()


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
    """Return the final messages and tool calls of a reply in OpenAI's harmony format, without its thoughts.

    `<|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>{…}`, also if the server removed
    the tokens and left `analysis…assistantfinal{…}`. Other texts are returned unchanged.
    """
    if _HARMONY_START.match(text):
        messages = [
            message["content"]
            for message in _HARMONY.finditer(text)
            if message["channel"] == "final" or "to=functions." in f"{message['header']} {message['recipient']}"
        ]
        return "\n".join(messages)
    if bare := _HARMONY_WITHOUT_TOKENS.fullmatch(text):
        return bare["content"]
    return "" if _ANALYSIS_ALONE.match(text) else text


def comments_in(text: str) -> list[str]:
    """Return the `//` and `/* */` comments in JSON text."""
    return [match["comment"] for match in _STRING_OR_COMMENT.finditer(text) if match["comment"]]


def no_comments(text: str) -> str:
    """Remove `//` and `/* */` comments; those that contain a quote or a brace are kept, since they may hold data."""

    def remove(match: re.Match[str]) -> str:
        comment = match["comment"]
        is_plain = comment and not _SAYS_MORE.search(comment) and (comment[1] == "/" or comment.endswith("*/"))
        return " " if is_plain else match[0]

    return _STRING_OR_COMMENT.sub(remove, text)


def plain_spaces(text: str) -> str:
    """Replace no-break and zero-width spaces between the tokens of JSON by spaces; those in strings are kept."""
    return _STRING_OR_SPACE.sub(lambda match: " " if match["space"] else match[0], text)


def quoted_keys(text: str) -> str:
    """Quote the keys of `{verdict: 1, reason: "да"}`."""
    return _BARE_KEY.sub(lambda match: f'{match["before"]}"{match["key"]}"' if match["key"] else match[0], text)


def no_escaped_apostrophes(text: str) -> str:
    r"""Replace `\'` in a string, which JSON does not know, by the apostrophe."""

    def unescape(match: re.Match[str]) -> str:
        return _ESCAPE_PAIR.sub(lambda pair: "'" if pair[1] == "'" else pair[0], match[0])

    return _ESCAPED_STRING.sub(unescape, text) if "\\'" in text else text


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


REPAIRS: Final[tuple[Callable[[str], str], ...]] = (
    no_comments,
    straight_quotes,
    plain_spaces,
    quoted_keys,
    no_escaped_apostrophes,
    json_literals,
    no_trailing_commas,
)
