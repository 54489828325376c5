"""Value: the result of a reducer (function that computes a score from the state): number, reason and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from langchain_rageval.data.schema import Finding
from langchain_rageval.text.language import detect_language

NO_FACTS = "the answer states no facts"
NO_REFERENCE_FACTS = "the reference states no facts"
NEITHER_FACTS = f"{NO_FACTS}, nor does the reference"
BLANK_REFERENCES = "the references are blank"
NO_REFERENCE_ENTITIES = "the reference names no entities"

_MAX_QUOTE_LENGTH = 160


@dataclass(frozen=True)
class Value:
    """Result of a reducer (function that computes a score from the state): a number, or the cause why none applies.

    Attributes:
        number: the value, or None if no value applies.
        reason: one sentence, in Russian for a Russian question, else in English.
        findings: facts from which the number was computed.
        unscored: why no number applies, in English; None if there is a number.
    """

    number: float | None
    reason: str = ""
    findings: Sequence[Finding] = ()
    unscored: str | None = None

    @classmethod
    def without(cls, unscored: str, findings: Sequence[Finding] = ()) -> Self:
        """Return a Value without a number; `unscored` says why, in English, and `findings` are kept."""
        return cls(None, findings=findings, unscored=unscored)


def quote(text: str) -> str:
    """Return a statement in quotation marks, without its full stop and cut after 160 characters."""
    text = text.rstrip(".")
    return f"«{text if len(text) <= _MAX_QUOTE_LENGTH else text[:_MAX_QUOTE_LENGTH] + '…'}»"


def nothing_retrieved(question: str) -> Value:
    """Return the value 0 of a sample without contexts; the reason is in the language of the question."""
    return Value(0.0, "Ничего не найдено." if detect_language(question) == "ru" else "Nothing was retrieved.")
