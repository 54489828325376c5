"""Findings about the extraction of statements: texts that no statement mentions, and statements that were dropped."""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.data.schema import Finding, Score
from langchain_rageval.metrics.standalone import KIND, is_refusal
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

MOST_UNMENTIONED = 1 / 3
"""Share of the content words and numbers of a text that its statements may leave out before the score says so."""

_HOW = ("extraction", KIND)
_FEWEST_UNITS = 6  # content words and numbers; of fewer, a share says little
_IN_RUSSIAN = {"answer": "ответа", "reference": "эталона"}


def extraction_findings(state: State) -> list[Finding]:
    """Return what was wrong with the extraction of the statements in a state.

    Returns:
        A finding of kind "extraction" with the verdict "dropped" if the judge listed repeated or surplus statements;
        one with the verdict "incomplete" for the answer, and one for the references, if its statements leave out more
        than `MOST_UNMENTIONED` of its content words and numbers. Their reasons contain the counts.
    """
    found: list[tuple[str, str, str]] = []
    if not any(name in state for name in ("dropped_statements", *(f"{side}_unmentioned" for side in _IN_RUSSIAN))):
        return []
    russian = detect_language(state["sample"].question) == "ru"
    if dropped := state.get("dropped_statements"):
        note = (
            "отброшено повторных или лишних утверждений судьи"
            if russian
            else ("repeated or surplus statements of the judge dropped")
        )
        found.append(("dropped", "statements", f"{note}: {dropped}"))
    for side, in_russian in _IN_RUSSIAN.items():
        lost, total = state.get(f"{side}_unmentioned", (0, 0))
        if total >= _FEWEST_UNITS and lost > MOST_UNMENTIONED * total:
            note = (
                f"извлечение неполно: {lost} из {total} значимых слов и чисел {in_russian} нет в утверждениях"
                if russian
                else f"incomplete extraction: no statement mentions {lost} of {total} content words and numbers of the "
                f"{side}"
            )
            found.append(("incomplete", side, note))
    return [
        Finding(kind="extraction", number=number, text=text, verdict=verdict, reason=reason)
        for number, (verdict, text, reason) in enumerate(found, 1)
    ]


def split_extraction(findings: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings about items, and those about how they were found: the extraction and the question."""
    items = [finding for finding in findings if finding.kind not in _HOW]
    return items, [finding for finding in findings if finding.kind in _HOW]


def with_extraction(score: Score, found: Sequence[Finding]) -> Score:
    """Return a score with findings about its extraction and question; its reason, if any, names their problems."""
    if not found:
        return score
    update: dict[str, object] = {"findings": [*score.findings, *found]}
    if score.value is not None:
        parts = [
            score.reason.removesuffix("."),
            *(finding.reason for finding in found if finding.kind != KIND or is_refusal(finding)),
        ]
        reason = "; ".join(filter(None, parts))
        update["reason"] = f"{reason}." if score.reason.endswith(".") else reason
    return score.model_copy(update=update)
