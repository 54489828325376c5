"""Context recall: the share of the references' statements that the contexts support.

From 0 to 1, higher is better. Source: the measure of ragas ("context recall", since 0.1), with statements in place of
sentences. The denominator is the number of statements sent to the judge, not of verdicts returned; statements of
several references are united.
"""

from __future__ import annotations

from functools import partial

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import (
    NO_REFERENCE_FACTS,
    Value,
    nothing_retrieved,
    share_of_supported,
    verdicts_from_findings,
)
from langchain_rageval.steps.extract_statements import extract_statements
from langchain_rageval.steps.stage import State
from langchain_rageval.steps.verify_statements import Verifier, verify_statements


def context_recall(judge: JudgeLike, *, verifier: Verifier | None = None, name: str = "context_recall") -> Metric:
    """Score how much of the references' content was retrieved.

    Args:
        judge: called once for each reference, to extract statements, and once to verify all of them; not called if the
            contexts are blank.
        verifier: a cross-encoder for natural language inference, or `NliVerifier(...)`, that verifies the statements in
            place of the judge.
        name: key of the score.

    Returns:
        A metric that reads `question`, `references` and `contexts`; 0 if nothing was retrieved, unscored if the
        references state no facts. Findings are the references' statements with their verdicts and the context sentences
        cited as evidence.
    """
    steps = extract_statements(judge, of="reference", for_contexts=True) | verify_statements(
        judge, of="reference", verifier=verifier
    )
    return Metric(
        name,
        aspect="context",
        reads={"question", "references", "contexts"},
        steps=steps,
        reduce=recalled_share,
        state_from_findings=partial(verdicts_from_findings, kind="reference_statement", under="reference_verdicts"),
    )


def recalled_share(state: State) -> Value:
    """Return the share of the reference statements that the contexts support."""
    sample = state["sample"]
    if not any(text.strip() for text in sample.contexts):
        return nothing_retrieved(sample.language_text)
    return share_of_supported(state["reference_verdicts"], sample.language_text, without=NO_REFERENCE_FACTS)
