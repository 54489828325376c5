"""Servers behind an OpenAI-compatible client, recognised by their replies."""

from __future__ import annotations

import re
from typing import Final

from langchain_core.messages import BaseMessage

_LLAMA_CPP: Final = re.compile(r"b\d+-[0-9a-f]{6,}")  # its build, as the fingerprint of the system
_VLLM: Final = re.compile(r"chatcmpl-(?:[0-9a-f]{16}|[0-9a-f]{32})")  # a random number in hexadecimal


def is_from_grammar_server(message: BaseMessage) -> bool:
    """Return True if a reply comes from llama.cpp's server or from vLLM.

    Both build a grammar from the schema of each request in milliseconds, while OpenAI takes seconds for a new schema.
    """
    metadata = message.response_metadata
    fingerprint, number = metadata.get("system_fingerprint"), metadata.get("id")
    return bool(_LLAMA_CPP.fullmatch(str(fingerprint)) or _VLLM.fullmatch(str(number)))
