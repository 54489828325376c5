"""Share of statements that the contexts support, for statements of the answer or of the references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from langchain_rageval.data.schema import Finding, FindingKind, Sample, Score
from langchain_rageval.metrics.value import Value, quote
from langchain_rageval.prompts.answer_schemas import VerdictLabel
from langchain_rageval.text.language import detect_language

_MAX_QUOTED = 3


def share_of_supported(verdicts: Sequence[Finding], question: str, without: str) -> Value:
    """Return the share of the statements that the contexts support.

    Args:
        verdicts: findings of `verify_statements`.
        question: decides the language of the reason.
        without: why the sample is unscored if there are no statements.
    """
    statements = [finding for finding in verdicts if finding.kind != "agreement"]
    if not statements:
        return Value.without(without)
    unsupported = [finding for finding in statements if finding.verdict != "supported"]
    reason = _reason(len(statements), unsupported, detect_language(question))
    return Value((len(statements) - len(unsupported)) / len(statements), reason, verdicts)


def verdicts_from_findings(sample: Sample, score: Score, *, kind: FindingKind, under: str) -> dict[str, Any] | None:
    """Return the state of a metric that counts supported statements, or None if the findings are of another kind.

    Args:
        sample: the sample that was scored.
        score: its earlier score.
        kind: finding kind of the statements.
        under: key of the verdicts in the state.
    """
    statements = [finding for finding in score.findings if finding.kind != "agreement"]
    if any(finding.kind != kind or finding.verdict not in get_args(VerdictLabel) for finding in statements):
        return None
    return {"sample": sample, under: score.findings}


def _reason(count: int, unsupported: Sequence[Finding], language: str) -> str:
    supported = count - len(unsupported)
    if language == "ru":
        noun = "утверждения" if count % 10 == 1 and count % 100 != 11 else "утверждений"
        summary, labels = f"Контексты подтверждают {supported} из {count} {noun}", {"contradicted": "противоречит"}
        missing, more = "не найдено", "и ещё {}"
    else:
        noun = "statement" if count == 1 else "statements"
        summary, labels = f"The contexts support {supported} of {count} {noun}", {"contradicted": "contradicted"}
        missing, more = "not found", "and {} more"
    quotes = [f"{labels.get(finding.verdict, missing)}: {quote(finding.text)}" for finding in unsupported[:_MAX_QUOTED]]
    rest = [more.format(len(unsupported) - _MAX_QUOTED)] if len(unsupported) > _MAX_QUOTED else []
    return "; ".join([summary, *quotes, *rest]) + "."
