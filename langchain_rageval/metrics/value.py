"""Value: what a reducer makes of the judge's facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from langchain_rageval.schema import Finding

NO_FACTS = "the answer states no facts"


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
