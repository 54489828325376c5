"""Passage: a piece of a document, from which a question is written."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import Field

from langchain_rageval.data.schema import InputModel


class Passage(InputModel):
    """A piece of a document.

    Attributes:
        id: stable name of the passage; by default a hash of source, span and text.
        text: what it says.
        source: name of the document.
        start: where it begins in the document, in characters.
        end: where it ends. `text == document[start:end]` if the splitter keeps the text; if it changed white space, the
            span of the same words; if it rewrote them, the whole document.
        metadata: that of the document, with what the splitter added.
    """

    id: str = ""
    text: str
    source: str
    start: int = Field(ge=0)
    end: int = Field(ge=0)
    metadata: dict[str, Any] = Field(default_factory=dict)

    def model_post_init(self, _context: Any, /) -> None:
        """Name the passage by its place and content when it has no id."""
        if not self.id:
            content = json.dumps([self.source, self.start, self.end, self.text])
            object.__setattr__(self, "id", hashlib.blake2b(content.encode(), digest_size=8).hexdigest())
