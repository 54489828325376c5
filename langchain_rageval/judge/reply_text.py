"""Texts of a message in which the answer may be: its tool calls, its text, or its thoughts if it has no other text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

_TEXT_BLOCKS: Final = ("text", "output_text")
_FENCE: Final = re.compile(r"^```\w*\s*+(.*?)\s*```$", re.DOTALL)
_THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")


class ReplyText(NamedTuple):
    """JSON text of a reply.

    Attributes:
        text: the text.
        tool: name of the tool call that the text is an argument of; "" for other texts.
        is_decoded: True if a client decoded the JSON, so that the spelling of its numbers is not the judge's.
    """

    text: str
    tool: str = ""
    is_decoded: bool = False


def reply_texts(message: BaseMessage) -> list[ReplyText]:
    """Return the arguments of each tool call of a message; without tool calls, its text.

    A message without any text whose thoughts are one JSON object or list is a reply that the server took for a thought.
    Other thoughts are not read: they hold drafts.

    Raises:
        RecursionError: if the arguments of a tool call are nested too deeply.
    """
    if calls := list(_tool_calls(message)):
        return calls
    text = message_text(message)
    if not text.strip() and len(whole := [thought for thought in thoughts(message) if _is_json(thought)]) == 1:
        text = whole[0]
    return [ReplyText(text)]


def message_text(message: BaseMessage) -> str:
    """Return the text of a message without thoughts, also from the blocks of OpenAI's Responses API."""
    return message.content if isinstance(message.content, str) else "".join(_block_texts(message.content))


def without_fence(text: str) -> str:
    """Return a text without the code fence around the whole of it."""
    return _FENCE.sub(r"\1", text.strip())


def thoughts(message: BaseMessage) -> list[str]:
    """Return the distinct thoughts that a server or a client separated from the text."""
    blocks = message.content if isinstance(message.content, list) else []
    holders = [message.additional_kwargs, *(block for block in blocks if isinstance(block, dict))]
    texts = [holder.get(name) for holder in holders for name in _THOUGHT_FIELDS]
    return list(dict.fromkeys(text for text in texts if isinstance(text, str) and text.strip()))


def _block_texts(blocks: Any) -> Iterator[str]:
    for block in blocks if isinstance(blocks, list) else [blocks]:
        if isinstance(block, str):
            yield block
        elif isinstance(block, Mapping) and block.get("type", "text") in _TEXT_BLOCKS:
            yield str(block.get("text") or "")
        elif isinstance(block, Mapping) and block.get("type") == "message":
            yield from _block_texts(block.get("content") or [])


def _tool_calls(message: BaseMessage) -> Iterator[ReplyText]:
    """Yield the tool calls of a message.

    For chunks the raw text is used: LangChain completes their `tool_calls` by guessing if they are truncated.
    """
    calls: list[Any] = []
    if isinstance(message, AIMessageChunk):
        calls = message.tool_call_chunks
    elif isinstance(message, AIMessage):
        calls = [*message.tool_calls, *message.invalid_tool_calls]
    raw = {call.get("id"): call["function"].get("arguments") for call in _raw_calls(message)}
    for call in calls:
        arguments = call["args"]
        spelled = raw.get(call.get("id"))
        if isinstance(spelled, str) and isinstance(arguments, dict) and _decodes_to(spelled, arguments):
            arguments = spelled
        yield _reply_of(call["name"], arguments)
    function = message.additional_kwargs.get("function_call")
    if not calls and isinstance(function, Mapping):
        yield _reply_of(function.get("name"), function.get("arguments"))


def _raw_calls(message: BaseMessage) -> list[Any]:
    calls = message.additional_kwargs.get("tool_calls")
    calls = calls if isinstance(calls, list) else []
    return [call for call in calls if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)]


def _reply_of(name: Any, arguments: Any) -> ReplyText:
    if isinstance(arguments, str | None):
        return ReplyText(arguments or "", str(name or ""))
    return ReplyText(json.dumps(arguments, ensure_ascii=False), str(name or ""), is_decoded=True)


def _decodes_to(text: str, value: Any) -> bool:
    try:
        return bool(json.loads(text) == value)
    except (ValueError, RecursionError):
        return False


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(without_fence(text)), dict | list)
    except (ValueError, RecursionError):
        return False
