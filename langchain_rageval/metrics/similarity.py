"""The answer beside its references: what is compared, and the findings of it."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.metrics.value import BLANK_REFERENCES, Value
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

SIMILARITY = "similarity"
OVERLAP = "overlap"


def answer_and_references(state: State) -> tuple[str, Sequence[str]]:
    """The answer, and the references that are not blank; none of them when the answer is."""
    sample: Sample = state["sample"]
    answer = sample.answer or ""
    return answer, [reference for reference in sample.references if answer.strip() and reference.strip()]


def nothing_to_compare(sample: Sample) -> Value | None:
    """What holds when a side is blank: unscored without references, 0 without an answer; None when none is."""
    if not any(reference.strip() for reference in sample.references):
        return Value.without(BLANK_REFERENCES)
    if not (sample.answer or "").strip():
        return Value(0.0, "Ответ пуст." if detect_language(sample.question) == "ru" else "The answer is blank.")
    return None


def compared(sample: Sample, similarities: Sequence[float], *, what: str = SIMILARITY) -> list[Finding]:
    """The similarity, or `what` else was measured, with each reference that is not blank, under its number."""
    numbered = [(number, text) for number, text in enumerate(sample.references, 1) if text.strip()]
    return [
        Finding(kind="criterion", number=number, text=text, verdict=repr(similarity), reason=what)
        for (number, text), similarity in zip(numbered, similarities, strict=bool(similarities))
    ]


def similarities_in(sample: Sample, findings: Sequence[Finding]) -> list[float] | None:
    """The similarities that `compared` told of, None when there should be some and are none."""
    found = [
        float(finding.verdict) for finding in findings if (finding.kind, finding.reason) == ("criterion", SIMILARITY)
    ]
    there = bool((sample.answer or "").strip()) and any(reference.strip() for reference in sample.references)
    return found if bool(found) == there else None
