"""The share of statements that the contexts support, of the answer or of the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.metrics.value import Value, quoted
from langchain_rageval.prompts.answer_schemas import VerdictLabel
from langchain_rageval.text.language import detect_language

_MOST_NAMED = 3


def share_of_supported(verdicts: Sequence[Finding], question: str, without: str) -> Value:
    """Supported statements / statements.

    Args:
        verdicts: findings of `verify_statements`.
        question: in whose language the reason is told.
        without: why no value applies when there are no statements.
    """
    statements = [finding for finding in verdicts if finding.kind != "agreement"]
    if not statements:
        return Value.without(without)
    missed = [finding for finding in statements if finding.verdict != "supported"]
    reason = _reason(len(statements), missed, detect_language(question))
    return Value((len(statements) - len(missed)) / len(statements), reason, verdicts)


def restored_verdicts(sample: Sample, score: Score, *, kind: FindingKind, under: str) -> dict[str, Any] | None:
    """The state of a metric that counts supported statements, from the findings of one that did.

    Args:
        sample: that was scored.
        score: its score.
        kind: of the statements.
        under: key of the verdicts in the state.
    """
    judged = [finding for finding in score.findings if finding.kind != "agreement"]
    if any(finding.kind != kind or finding.verdict not in get_args(VerdictLabel) for finding in judged):
        return None
    return {"sample": sample, under: score.findings}


def _reason(count: int, missed: Sequence[Finding], language: str) -> str:
    supported = count - len(missed)
    if language == "ru":
        noun = "утверждения" if count % 10 == 1 and count % 100 != 11 else "утверждений"
        told, labels = f"Контексты подтверждают {supported} из {count} {noun}", {"contradicted": "противоречит"}
        missing, more = "не найдено", "и ещё {}"
    else:
        noun = "statement" if count == 1 else "statements"
        told, labels = f"The contexts support {supported} of {count} {noun}", {"contradicted": "contradicted"}
        missing, more = "not found", "and {} more"
    named = [f"{labels.get(finding.verdict, missing)}: {quoted(finding.text)}" for finding in missed[:_MOST_NAMED]]
    rest = [more.format(len(missed) - _MOST_NAMED)] if len(missed) > _MOST_NAMED else []
    return "; ".join([told, *named, *rest]) + "."
