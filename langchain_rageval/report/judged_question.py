"""Question of a row as it was judged: in a conversation, the standalone one; and its conversation as text."""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Row, Sample

_KIND = "standalone_question"
_SPEAKERS = {"user": "User", "assistant": "Assistant"}


def standalone_findings(row: Row) -> list[Finding]:
    """Return the findings about the question of a row, each once: one for each judge that rewrote it."""
    found = [finding for score in row.scores.values() for finding in score.findings if finding.kind == _KIND]
    return list({(finding.text, finding.verdict): finding for finding in found}.values())


def describe_question(row: Row) -> str:
    """Return the question of a row, and after an arrow the standalone question that was judged, if it differs."""
    rewritten = [finding.text for finding in standalone_findings(row) if finding.verdict == "rewritten"]
    return " → ".join([row.sample.question, *rewritten])


def question_with_history(sample: Sample) -> str:
    """Return the question of a sample after the turns before it, each with its speaker; without history, only it."""
    turns = [f"{_SPEAKERS[turn.role]}: {turn.text}" for turn in sample.history]
    return "\n".join([*turns, f"{_SPEAKERS['user']}: {sample.question}"]) if turns else sample.question
