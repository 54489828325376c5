"""Faithfulness: the share of the answer's statements that the contexts support.

From 0 to 1, higher is better. Source: Es et al. 2023, "RAGAS: Automated Evaluation of Retrieval Augmented Generation",
arXiv:2309.15217, section 3. Unlike in ragas, the denominator is the number of statements sent to the judge, not of
verdicts returned. Other libraries call it groundedness.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import fsum

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.judge.panels import request_probabilities
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import NO_FACTS, Value, share_of_supported, verdicts_from_findings
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.verify_statements import Verifier, verify_statements


def faithfulness(
    judge: JudgeLike, *, verifier: Verifier | None = None, expected: bool = False, name: str = "faithfulness"
) -> Metric:
    """Score the share of the answer's statements that the contexts support.

    Args:
        judge: called twice per sample, to extract statements and to verify them; once if `contexts` is empty, not at
            all if the answer is blank.
        verifier: a cross-encoder for natural language inference, or `NliVerifier(...)`, that verifies the statements in
            place of the judge.
        expected: True to score the expected share of supported statements, from the probabilities of the judge's
            verdicts. The probabilities are then requested from the judge; a verdict without probabilities counts as
            certain.
        name: key of the score.

    Returns:
        A metric that reads `question`, `answer` and `contexts`; unscored if the answer states no facts. Findings are
        the statements in order, with their verdicts and the context sentences cited as evidence.
    """
    judge = request_probabilities(judge, expected)
    steps = extract_statements(judge, of="answer") | verify_statements(judge, of="answer", verifier=verifier)
    return Metric(
        name,
        aspect="grounding",
        reads={"question", "answer", "contexts"},
        steps=steps,
        reduce=expected_share if expected else supported_share,
        state_from_findings=partial(verdicts_from_findings, kind="statement", under="answer_verdicts"),
    )


def supported_share(state: State) -> Value:
    """Return the share of the answer's statements that the contexts support."""
    return share_of_supported(state["answer_verdicts"], state["sample"].language_text, without=NO_FACTS)


def expected_share(state: State) -> Value:
    """Return the expected share of the answer's statements that the contexts support, from the verdicts' probabilities.

    A verdict without probabilities counts as certain.
    """
    value = supported_share(state)
    statements = [finding for finding in value.findings if finding.kind == "statement"]
    if value.number is None or not any(finding.probabilities for finding in statements):
        return value
    expected = fsum(finding.probability_of("supported") for finding in statements)
    count = len(statements)
    added = explain(state["sample"].language_text, Note("expected-share", expected=expected, count=count))
    return replace(value, number=min(expected / count, 1.0), reason=f"{value.reason} {added}")
