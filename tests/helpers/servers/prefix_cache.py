"""A prefix cache as vLLM has it: blocks of tokens, each known by all that stands before it, the least used go first.

Tokens follow a plain rule instead of a model's vocabulary: four bytes of UTF-8 are one. So a Cyrillic letter is half a
token, which is near what multilingual vocabularies make of it, and a figure can be checked by hand.
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
    """What a prompt cost, in tokens; a last token may be short of four bytes."""

    prompt: int
    served: int

    @property
    def unserved(self) -> int:
        """Those that the server had to compute."""
        return self.prompt - self.served


class PrefixCache:
    """Remembers the full blocks of the prompts that came; a block is served when it and all before it are there.

    A prompt's blocks are there for the next one from the moment it comes, as in vLLM, which knows a block as soon as
    its prompt is scheduled. Of the blocks of one prompt the last goes first, so that shared heads stay.

    Args:
        blocks: most blocks kept.
    """

    def __init__(self, blocks: int) -> None:
        self.blocks = blocks
        self._kept: OrderedDict[bytes, None] = OrderedDict()  # least recently used first

    def read(self, prompt: str) -> Reading:
        """Read a prompt and keep its blocks."""
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
    """The messages as one text with markers of their roles, as a chat template (here ChatML) puts them to a model."""
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join([*turns, "<|im_start|>assistant\n"])


def _chain(text: bytes) -> Iterator[bytes]:
    """A name for each full block, made of all the bytes up to its end."""
    digest = blake2b(digest_size=16)
    for end in range(_BYTES_PER_BLOCK, len(text) + 1, _BYTES_PER_BLOCK):
        digest.update(text[end - _BYTES_PER_BLOCK : end])
        yield digest.digest()
