"""Prefix cache like that in vLLM: blocks of tokens, identified by all text up to their end, with LRU eviction.

Tokens follow a simple rule instead of a model's vocabulary: four bytes of UTF-8 are one token. A Cyrillic letter is
half a token, which is close to multilingual vocabularies, and results can be verified on paper.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

BYTES_PER_TOKEN = 4
TOKENS_PER_BLOCK = 16

_BYTES_PER_BLOCK = BYTES_PER_TOKEN * TOKENS_PER_BLOCK


@dataclass(frozen=True)
class Reading:
    """Cost of a prompt in tokens; the last token may have fewer than four bytes."""

    prompt: int
    served: int

    @property
    def unserved(self) -> int:
        """Number of tokens that the server had to compute."""
        return self.prompt - self.served


class PrefixCache:
    """Stores the full blocks of prompts; a block is served if it and all blocks before it are stored.

    The blocks of a prompt are available as soon as it arrives, as in vLLM, which stores blocks when a prompt is
    scheduled. Of one prompt the last block is evicted first, so that shared prefixes remain.

    Args:
        blocks: maximum number of stored blocks.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._kept: OrderedDict[bytes, None] = OrderedDict()  # least recently used first

    def read(self, prompt: str) -> Reading:
        """Process a prompt and store its blocks."""
        text = prompt.encode("utf-8", "surrogatepass")
        chain = list(_chain(text))
        hits = next((at for at, block in enumerate(chain) if block not in self._kept), len(chain))
        for block in reversed(chain):
            self._kept[block] = None
            self._kept.move_to_end(block)
        while len(self._kept) > self.blocks:
            self._kept.popitem(last=False)
        return Reading(-(-len(text) // BYTES_PER_TOKEN), hits * TOKENS_PER_BLOCK)


def chat_prompt(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the messages as one text with role markers, as the chat template ChatML does."""
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join([*turns, "<|im_start|>assistant\n"])


def _chain(text: bytes) -> Iterator[bytes]:
    """Yield an identifier of each full block: a hash of all bytes up to its end."""
    digest = blake2b(digest_size=16)
    for end in range(_BYTES_PER_BLOCK, len(text) + 1, _BYTES_PER_BLOCK):
        digest.update(text[end - _BYTES_PER_BLOCK : end])
        yield digest.digest()
