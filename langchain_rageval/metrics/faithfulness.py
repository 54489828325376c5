"""Faithfulness: the share of the answer's statements that the contexts support.

From 0 to 1, higher is better. Source: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 3. Unlike ragas, what was asked is the denominator, not what the judge returned.
"""

from __future__ import annotations

from collections.abc import Sequence

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.language import detect_language
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.value import NO_FACTS, Value
from langchain_rageval.schema import Finding
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.step import State
from langchain_rageval.steps.verify_statements import verify_statements

_MOST_NAMED = 3


def faithfulness(judge: JudgeLike, *, name: str = "faithfulness") -> Metric:
    """Score how far the contexts support the answer.

    Args:
        judge: asked twice per sample, to extract statements and to verify them; once when `contexts` is empty, not at
            all when the answer is blank.
        name: key of the score.

    Returns:
        A metric reading `question`, `answer` and `contexts`; unscored when the answer states no facts. Findings are the
        statements in order, with their verdicts and the context sentences that decide them.
    """
    steps = extract_statements(judge, of="answer") | verify_statements(judge, of="answer")
    return Metric(
        name, aspect="grounding", reads={"question", "answer", "contexts"}, steps=steps, reduce=supported_share
    )


def supported_share(state: State) -> Value:
    """Supported statements / statements."""
    verdicts: list[Finding] = state["answer_verdicts"]
    statements = [finding for finding in verdicts if finding.kind == "statement"]
    if not statements:
        return Value.without(NO_FACTS)
    missed = [finding for finding in statements if finding.verdict != "supported"]
    reason = _reason(len(statements), missed, detect_language(state["sample"].question))
    return Value((len(statements) - len(missed)) / len(statements), reason, verdicts)


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
    named = [
        f"{labels.get(finding.verdict, missing)}: «{finding.text.rstrip('.')}»" for finding in missed[:_MOST_NAMED]
    ]
    rest = [more.format(len(missed) - _MOST_NAMED)] if len(missed) > _MOST_NAMED else []
    return "; ".join([told, *named, *rest]) + "."
