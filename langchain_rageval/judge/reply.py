"""Reply of a model: the texts that may hold the answer, and the reasons why the model stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from langchain_rageval.judge.repairs import simplified

_TEXT_BLOCKS: Final = ("text", "output_text")
_FENCE: Final = re.compile(r"^```\w*\s*+(.*?)\s*```$", re.DOTALL)
_THOUGHT_FIELDS: Final = ("reasoning_content", "reasoning", "thinking")


class ReplyText(NamedTuple):
    """Text of a reply that may hold the JSON of the answer.

    Attributes:
        text: the text itself.
        tool: name of the tool call whose arguments are the text; "" for other texts.
        is_decoded: True if a client decoded the JSON. Its numbers may then be spelled differently than in the reply of
            the judge.
    """

    text: str
    tool: str = ""
    is_decoded: bool = False


def reply_texts(message: BaseMessage) -> list[ReplyText]:
    """Return the arguments of each tool call of a message; if there are no tool calls, its text.

    If a message has no text and its thoughts are one JSON object or list, the thoughts are the reply: the server took
    the reply for a thought. Other thoughts are ignored, because they hold drafts.

    Raises:
        RecursionError: if the arguments of a tool call are nested too deeply.
    """
    if calls := list(_tool_calls(message)):
        return calls
    text = message.content if isinstance(message.content, str) else "".join(_block_texts(message.content))
    if not text.strip():
        whole = [one for one in thoughts(message) if isinstance(_decoded(without_fence(one)), dict | list)]
        text = whole[0] if len(whole) == 1 else text
    return [ReplyText(text)]


def without_fence(text: str) -> str:
    """Return a text without the code fence that encloses it."""
    return _FENCE.sub(r"\1", text.strip())


def thoughts(message: BaseMessage) -> list[str]:
    """Return the distinct thoughts that a server or a client keeps apart from the text of a message."""
    blocks = message.content if isinstance(message.content, list) else []
    holders = [message.additional_kwargs, *(block for block in blocks if isinstance(block, dict))]
    texts = [holder.get(name) for holder in holders for name in _THOUGHT_FIELDS]
    return list(dict.fromkeys(text for text in texts if isinstance(text, str) and text.strip()))


def _block_texts(blocks: Any) -> Iterator[str]:
    """Yield the texts of the content of a message without thoughts, also of OpenAI's Responses API."""
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
    raw = message.additional_kwargs.get("tool_calls")
    functions = {
        call.get("id"): call["function"]
        for call in (raw if isinstance(raw, list) else [])
        if isinstance(call, Mapping) and isinstance(call.get("function"), Mapping)
    }
    for call in calls:
        arguments = call["args"]
        spelled = functions.get(call.get("id"), {}).get("arguments")
        if isinstance(spelled, str) and isinstance(arguments, dict) and _decoded(spelled) == arguments:
            arguments = spelled
        yield _reply_of(call["name"], arguments)
    function = message.additional_kwargs.get("function_call")
    if not calls and isinstance(function, Mapping):
        yield _reply_of(function.get("name"), function.get("arguments"))


def _reply_of(name: Any, arguments: Any) -> ReplyText:
    if isinstance(arguments, str | None):
        return ReplyText(arguments or "", str(name or ""))
    return ReplyText(json.dumps(arguments, ensure_ascii=False), str(name or ""), is_decoded=True)


def _decoded(text: str) -> Any:
    """Return the value of JSON; None for any other text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


# Keys and reasons are compared in lower case, without spaces, hyphens and underscores.
_NESTED: Final = {"choices", "candidates", "generationinfo", "metadata", "response", "results", "alternatives"}
_KEYS: Final = {"finishreason", "stopreason", "donereason", "finishreasons", "stoptype", "completionreason"}
_COMPLETE: Final = (
    "stop(?:ped|words?|sequences?|tokens?|strs?)? endturn eos eostoken eossequence tooluse toolcalls? functioncall "
    "completed? end ok normal endofsequence endofturn endoftext finish finished done success word final "
    "alternativestatusfinal alternativestatustoolcalls"
)
_IS_COMPLETE: Final = re.compile(f"(?:{'|'.join(_COMPLETE.split())})+")  # chunks may repeat the reason
_IS_LENGTH: Final = re.compile(
    r".*(?:length|maxtoken|maxoutput|maxnew|maxcompletion|limit|truncat|contextwindow|"
    r"contextsize).*|incomplete|alternativestatuspartial"
)
_IS_REFUSAL: Final = re.compile(
    r".*(?:contentfilter|safety|blocklist|blacklist|prohibited|refus|guardrail|toxic|moderation|sensitive).*|spii|"
    r"recitation|blocked"
)
_IS_UNFINISHED: Final = re.compile("incomplete|failed|cancell?ed|inprogress|alternativestatus.*")
_GEMINI_NUMBERS: Final = {1: "stop", 2: "maxtokens", 3: "safety", 4: "recitation"}
_FOR_JUDGE: Final = (
    "the reply was cut off at its length limit: give the complete answer again, with shorter reasons and without "
    "leaving out any item"
)
_FOR_REASONING_JUDGE: Final = (
    "the reply was cut off at its length limit while you were still thinking: think briefly, then give the complete "
    "answer"
)
_THOUGHT: Final = re.compile(
    r"\s*<(think(?:ing)?|thought|reasoning)>(?:(?!</\1>).)*\Z|\s*\Z", re.DOTALL | re.IGNORECASE
)
_MOSTLY: Final = 0.9


class CutOffReply(OutputParserException):
    """Error about a reply that the endpoint truncated at its length limit. The error message is written for the judge.

    Attributes:
        only_thoughts: True if the model's reasoning used up the limit before the answer began.
        output_tokens: number of tokens that the model had generated; None if the number is unknown.
    """

    def __init__(self, raw: str, *, only_thoughts: bool, output_tokens: int | None) -> None:
        super().__init__(ValueError(_FOR_REASONING_JUDGE if only_thoughts else _FOR_JUDGE), llm_output=raw)
        self.only_thoughts = only_thoughts
        self.output_tokens = output_tokens


def check_stop(message: BaseMessage, metadata: Mapping[str, Any], *, has_lists: bool) -> None:
    """Raise an error if the endpoint truncated a reply, or the model refused to answer.

    Args:
        message: the reply.
        metadata: metadata that the provider returned with the reply.
        has_lists: True if the answer contains lists. A list may be incomplete if the model stopped for an unknown
            reason.

    Raises:
        CutOffReply: if the reply was truncated.
        ValueError: if the model refused, or stopped for an unknown reason and the answer contains lists.
    """
    reasons = stop_reasons(metadata)
    if is_cut_off(metadata) or any(map(_IS_LENGTH.fullmatch, reasons)) or _thoughts_are_all(message, reasons):
        raw = "\n".join(reply.text for reply in reply_texts(message))
        thinks = bool(thoughts(message)) or _reasoning_tokens(message) > 0 or "<" in raw
        tokens = _usage(message).get("output_tokens")
        raise CutOffReply(raw, only_thoughts=thinks and bool(_THOUGHT.fullmatch(raw)), output_tokens=tokens)
    blocks = message.content if isinstance(message.content, list) else []
    refused = any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)
    if refused or any(map(_IS_REFUSAL.fullmatch, reasons)) or message.additional_kwargs.get("refusal"):
        raise ValueError("the model refused to answer")
    if has_lists and reasons and not any(map(_IS_COMPLETE.fullmatch, reasons)):
        shown = ", ".join(sorted(reasons))
        raise ValueError(f"the model stopped for an unknown reason ({shown}), so that a list may be incomplete")


def stop_reasons(metadata: Mapping[str, Any]) -> set[str]:
    """Return the reasons why a model stopped, in lower case without separators, such as "maxtokens" and "stop"."""
    reasons: set[str] = set()
    for key, value in metadata.items():
        name = simplified(key)
        items = value if isinstance(value, list | tuple) else [value]
        if name in _KEYS:
            reasons |= set(map(_reason, items))
        elif name == "incompletedetails" and value:
            reasons.add(reason if _IS_REFUSAL.fullmatch(reason := _reason(value)) else "incomplete")
        elif name == "status" and _IS_UNFINISHED.fullmatch(_reason(value)):
            reasons.add(_reason(value))
        elif name in _NESTED:
            reasons = reasons.union(*(stop_reasons(item) for item in items if isinstance(item, Mapping)))
    return reasons - {"", "none", "null"}


def is_cut_off(metadata: Mapping[str, Any]) -> bool:
    """Return True if a flag in a reply's metadata says that the reply is incomplete; the stop reason is not read.

    The flags are `truncated` or `stopped_limit` with the value True, and `done` with the value False.
    """
    entries = {simplified(key): value for key, value in metadata.items()}
    return bool(entries.get("truncated") is True or entries.get("stoppedlimit") is True or entries.get("done") is False)


def _reason(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("type") or value.get("reason") or value.get("name")
    if isinstance(value, int) and not isinstance(value, Enum):
        return _GEMINI_NUMBERS.get(value, "")  # vLLM gives the number of a stop token
    return simplified((value.name if isinstance(value, Enum) else str(value)).rpartition(".")[2])


def _thoughts_are_all(message: BaseMessage, reasons: set[str]) -> bool:
    """Return True if a message has no text, was nearly all reasoning, and is not known to be complete."""
    if not 0 < _MOSTLY * (_usage(message).get("output_tokens") or 0) <= _reasoning_tokens(message):
        return False
    return not any(map(_IS_COMPLETE.fullmatch, reasons)) and not any(one.text.strip() for one in reply_texts(message))


def _usage(message: BaseMessage) -> Mapping[str, Any]:
    return getattr(message, "usage_metadata", None) or {}


def _reasoning_tokens(message: BaseMessage) -> int:
    return int((_usage(message).get("output_token_details") or {}).get("reasoning") or 0)
