"""Passage: a piece of a document about which questions are written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from langchain_rageval.data.schema import InputModel


class Passage(InputModel):
    """A piece of a document.

    Attributes:
        id: stable identifier; by default a hash of source, span and text.
        text: text of the passage.
        source: name of the document.
        start: offset of the first character in the document.
        end: offset after the last character. `text == document[start:end]` if the splitter keeps the text; if it
            changed white space, the span of the same words; if it rewrote them, the whole document.
        metadata: metadata of the document, with additions of the splitter.
    """

    id: str = ""
    text: str
    source: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    metadata: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, _context: Any, /) -> None:
        """Set a missing id to a hash of source, span and text."""
        if not self.id:
            content = json.dumps([self.source, self.start, self.end, self.text])
            object.__setattr__(self, "id", hashlib.blake2b(content.encode(), digest_size=8).hexdigest())
