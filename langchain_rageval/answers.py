"""What the judge answers: one pydantic class per step, its name the schema's title.

Fields stand in the order in which a model should write them: the reason before the verdict it leads to.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

VerdictLabel = Literal["supported", "contradicted", "absent"]


class Statements(BaseModel):
    """Short, self-contained statements of a text."""

    statements: list[str]


class Verdict(BaseModel):
    """What the contexts say of one statement."""

    statement: int
    reason: str
    evidence: list[str]
    verdict: VerdictLabel


class Verdicts(BaseModel):
    """One verdict for each statement."""

    verdicts: list[Verdict]


ANSWERS: dict[str, type[BaseModel]] = {
    "extract_statements": Statements,
    "verify_statements": Verdicts,
}
