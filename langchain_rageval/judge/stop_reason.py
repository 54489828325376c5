"""Reasons why a model stopped, as providers and their clients spell them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import BaseMessage

from langchain_rageval.judge.reply_text import reply_texts, thoughts

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
    """Error about a reply that the endpoint truncated at its length limit. The message is for the judge.

    Attributes:
        only_thoughts: True if the model's reasoning used up the limit before the answer began.
        output_tokens: number of tokens that the model had generated; None if unknown.
    """

    def __init__(self, raw: str, *, only_thoughts: bool, output_tokens: int | None) -> None:
        problem = _FOR_REASONING_JUDGE if only_thoughts else _FOR_JUDGE
        super().__init__(ValueError(problem), llm_output=raw)
        self.only_thoughts = only_thoughts
        self.output_tokens = output_tokens


def check_stop(message: BaseMessage, metadata: Mapping[str, Any], *, has_lists: bool) -> None:
    """Raise an error if the endpoint truncated a reply, or the model refused to answer.

    Args:
        message: the reply.
        metadata: what the provider says of the reply.
        has_lists: True if the answer contains lists: a list that stopped for an unknown reason may be incomplete.

    Raises:
        CutOffReply: if the reply was truncated.
        ValueError: if the model refused, or stopped for an unknown reason and the answer contains lists.
    """
    reasons = stop_reasons(metadata)
    if is_cut_off(metadata) or any(map(_IS_LENGTH.fullmatch, reasons)) or _thoughts_are_all(message, reasons):
        raise _cut_off(message)
    blocks = message.content if isinstance(message.content, list) else []
    refused = any(isinstance(block, dict) and block.get("type") == "refusal" for block in blocks)
    if refused or any(map(_IS_REFUSAL.fullmatch, reasons)) or message.additional_kwargs.get("refusal"):
        raise ValueError("the model refused to answer")
    if has_lists and reasons and not any(map(_IS_COMPLETE.fullmatch, reasons)):
        shown = ", ".join(sorted(reasons))
        raise ValueError(f"the model stopped for an unknown reason ({shown}), so that a list may be incomplete")


def stop_reasons(metadata: Mapping[str, Any]) -> set[str]:
    """Return the reasons why a model stopped, without case and separators, such as "maxtokens" and "stop"."""
    reasons: set[str] = set()
    for key, value in metadata.items():
        name = _key_of(key)
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
    """Return True if other entries of the metadata than the stop reason say that the reply is incomplete."""
    entries = {_key_of(key): value for key, value in metadata.items()}
    return bool(entries.get("truncated") is True or entries.get("stoppedlimit") is True or entries.get("done") is False)


def _reason(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("type") or value.get("reason") or value.get("name")
    if isinstance(value, int) and not isinstance(value, Enum):
        return _GEMINI_NUMBERS.get(value, "")  # vLLM gives the number of a stop token
    return _simplified(_name(value).rpartition(".")[2])


def _name(value: Any) -> str:
    return value.name if isinstance(value, Enum) else str(value)


@lru_cache(maxsize=256)  # a provider sends the same keys with each reply
def _key_of(name: str) -> str:
    return _simplified(name)


def _simplified(text: str) -> str:
    return re.sub(r"[\s_-]+", "", str(text)).casefold()


def _cut_off(message: BaseMessage) -> CutOffReply:
    raw = "\n".join(reply.text for reply in reply_texts(message))
    usage = getattr(message, "usage_metadata", None) or {}
    thinks = bool(thoughts(message)) or _reasoning_tokens(message) > 0 or "<" in raw
    only_thoughts = thinks and bool(_THOUGHT.fullmatch(raw))
    return CutOffReply(raw, only_thoughts=only_thoughts, output_tokens=usage.get("output_tokens"))


def _thoughts_are_all(message: BaseMessage, reasons: set[str]) -> bool:
    """Return True if a message has no text, was nearly all reasoning, and is not known to be complete."""
    usage = getattr(message, "usage_metadata", None) or {}
    if not 0 < _MOSTLY * (usage.get("output_tokens") or 0) <= _reasoning_tokens(message):
        return False
    is_complete = any(map(_IS_COMPLETE.fullmatch, reasons))
    return not is_complete and not any(reply.text.strip() for reply in reply_texts(message))


def _reasoning_tokens(message: BaseMessage) -> int:
    usage = getattr(message, "usage_metadata", None) or {}
    return int((usage.get("output_token_details") or {}).get("reasoning") or 0)
