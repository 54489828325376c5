"""Similarity of an answer to its references: the texts that are compared, and their findings."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.metrics.supported import BLANK_REFERENCES, Value
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

SIMILARITY = "similarity"
OVERLAP = "overlap"


def answer_and_references(state: State) -> tuple[str, Sequence[str]]:
    """Return the answer and the references that are not blank; no references if the answer is blank."""
    sample: Sample = state["sample"]
    answer = sample.answer or ""
    return answer, [reference for reference in sample.references if answer.strip() and reference.strip()]


def blank_value(sample: Sample) -> Value | None:
    """Return the value of a sample whose answer or references are blank, or None if neither is blank.

    Blank references leave the sample unscored; a blank answer is 0.
    """
    if not any(reference.strip() for reference in sample.references):
        return Value.without(BLANK_REFERENCES)
    if not (sample.answer or "").strip():
        return Value(0.0, "Ответ пуст." if detect_language(sample.language_text) == "ru" else "The answer is blank.")
    return None


def similarity_findings(sample: Sample, similarities: Sequence[float], *, reason: str = SIMILARITY) -> list[Finding]:
    """Return a finding for each reference that is not blank, under the number of the reference.

    Args:
        sample: has the references.
        similarities: one for each reference that is not blank, in order; empty if the answer is blank.
        reason: what was measured.
    """
    numbered = [(number, text) for number, text in enumerate(sample.references, 1) if text.strip()]
    return [
        Finding(kind="criterion", number=number, text=text, verdict=repr(similarity), reason=reason)
        for (number, text), similarity in zip(numbered, similarities, strict=bool(similarities))
    ]


def similarities_from_findings(sample: Sample, findings: Sequence[Finding]) -> list[float] | None:
    """Return the similarities that `similarity_findings` stored, or None if the findings lack a needed similarity.

    None is also returned if there are similarities although the answer or the references are blank.
    """
    similarities = [
        float(finding.verdict) for finding in findings if (finding.kind, finding.reason) == ("criterion", SIMILARITY)
    ]
    expected = bool((sample.answer or "").strip()) and any(reference.strip() for reference in sample.references)
    return similarities if bool(similarities) == expected else None
