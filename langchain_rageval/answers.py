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


class TruePositive(BaseModel):
    """An answer statement that reference statements say as well."""

    answer: int
    references: list[int]
    reason: str


class FalsePositive(BaseModel):
    """An answer statement that no reference statement says."""

    answer: int
    reason: str


class FalseNegative(BaseModel):
    """A reference statement that the answer does not say."""

    reference: int
    reason: str


class Classification(BaseModel):
    """Each answer statement in TP or FP, each reference statement cited by a TP or in FN."""

    TP: list[TruePositive]
    FP: list[FalsePositive]
    FN: list[FalseNegative]


class ContextVerdict(BaseModel):
    """Whether one chunk is useful."""

    context: int
    reason: str
    useful: bool


class ContextVerdicts(BaseModel):
    """One verdict for each chunk."""

    verdicts: list[ContextVerdict]


class NeededSentences(BaseModel):
    """Numbers of the context sentences that are needed to answer, such as "2.3"."""

    reason: str
    sentences: list[str]


class RegeneratedQuestions(BaseModel):
    """Questions that a text answers."""

    evasive: bool
    questions: list[str]


class AspectVerdict(BaseModel):
    """Whether an aspect applies to an answer."""

    reason: str
    verdict: bool


ANSWERS: dict[str, type[BaseModel]] = {
    "extract_statements": Statements,
    "verify_statements": Verdicts,
    "classify_statements": Classification,
    "grade_contexts": ContextVerdicts,
    "select_sentences": NeededSentences,
    "regenerate_questions": RegeneratedQuestions,
    "critique_aspect": AspectVerdict,
}
"""Name of each step to the class of its answer."""
