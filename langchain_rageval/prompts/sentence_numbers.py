"""SentenceNumbers: the type of the fields in which a judge cites sentences of the contexts."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


class JsonNumber(float):
    """Number of a JSON document that keeps its spelling: as sentence numbers, 1.10 and 1.1 differ.

    Args:
        literal: the number as it is written in the document.
    """

    literal: str

    def __new__(cls, literal: str) -> JsonNumber:
        """Create the number from its spelling."""
        number = super().__new__(cls, literal)
        number.literal = literal
        return number

    def __reduce__(self) -> tuple[type[JsonNumber], tuple[str]]:
        """Return how a copy is created: from the spelling."""
        return JsonNumber, (self.literal,)


def read_sentence_numbers(value: Any) -> Any:
    """Return a list of texts for a text, such as "1.1, 2.3", and for numbers of a JSON document; others unchanged."""
    values = value if isinstance(value, list) else [value] if isinstance(value, str | JsonNumber) else value
    if not isinstance(values, list):
        return values
    return [item.literal if isinstance(item, JsonNumber) else item for item in values]


def read_evidence(value: Any) -> Any:
    """Return sentence numbers as `read_sentence_numbers` does; null stands for no evidence."""
    return [] if value is None else read_sentence_numbers(value)


SentenceNumbers = Annotated[list[str], BeforeValidator(read_sentence_numbers)]
"""Sentence numbers such as "2.3", which the step compares with those of the contexts."""

Evidence = Annotated[list[str], BeforeValidator(read_evidence)]
"""Sentence numbers that support a verdict; none if the reply says null."""
