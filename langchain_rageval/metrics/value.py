"""Value: what a reducer makes of the judge's facts."""

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

_LONGEST_QUOTE = 160


@dataclass(frozen=True)
class Value:
    """A number with its reason, or why none applies; the metric makes a Score of it.

    Attributes:
        number: the value; None when none applies.
        reason: one sentence in the sample's language where that is English or Russian.
        findings: what decided it.
        unscored: why no number applies, in English.
    """

    number: float | None
    reason: str = ""
    findings: Sequence[Finding] = ()
    unscored: str | None = None

    @classmethod
    def without(cls, unscored: str, findings: Sequence[Finding] = ()) -> Self:
        """No number applies."""
        return cls(None, findings=findings, unscored=unscored)


def quoted(text: str) -> str:
    """A statement as a reason quotes it: without its full stop, and not longer than a reader takes in at a glance."""
    whole = text.rstrip(".")
    return f"«{whole if len(whole) <= _LONGEST_QUOTE else whole[:_LONGEST_QUOTE] + '…'}»"


def nothing_retrieved(question: str) -> Value:
    """0, told in the language of the question."""
    return Value(0.0, "Ничего не найдено." if detect_language(question) == "ru" else "Nothing was retrieved.")
