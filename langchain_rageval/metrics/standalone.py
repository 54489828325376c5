"""Question of a conversation for all metrics of a sample: rewritten once per judge, and shared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.steps.questions import REFUSED, rewrite_question
from langchain_rageval.steps.stage import SharedSteps, Stage, State

KIND = "standalone_question"
"""Kind of the finding that holds the question as it was judged."""


def rewriting_of(sample: Sample, reads: frozenset[str], stages: Iterable[Stage[State]]) -> SharedSteps | None:
    """Return the step that a metric runs before its own for a sample; None if it judges the question as it is.

    That is so if the sample has no history, if the metric reads the history itself, or if none of its stages shows the
    question to a judge.
    """
    if not sample.history or "history" in reads:
        return None
    judge = next((judge for stage in stages if stage.shows_question for judge in stage.judges), None)
    if judge is None:
        return None
    key = (id(judge.model), judge._fingerprint_text)
    return SharedSteps([rewrite_question(judge)], name="rewrite_question", key=key)


def question_notes(state: dict[str, Any]) -> Sequence[Finding]:
    """Return the finding about the question in a state; `[]` if it was not rewritten."""
    notes: Sequence[Finding] = state.get("question_findings", ())
    return notes


def is_refusal(finding: Finding) -> bool:
    """Return True for a finding that a rewrite could not be used."""
    return finding.kind == KIND and finding.verdict == REFUSED
