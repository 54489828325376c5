"""Claim metrics: twelve numbers of one claim graph, which say where right and wrong statements come from.

Each from 0 to 1; noise, hallucination and contradiction are better when lower. Source: RAGChecker (Ru et al. 2024,
arXiv:2408.08067, section 3.3), where an answer without statements is 0 throughout, the best and the worst at once; here
it is unscored, but for recall and F1.
"""

from __future__ import annotations

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.claim_graph import FORMULAS
from langchain_rageval.metrics.claim_part import Attribution, claim_part
from langchain_rageval.metrics.suite import Suite, suite
from langchain_rageval.steps.verify import Verifier


def claim_metrics(
    judge: JudgeLike,
    *,
    attribution: Attribution = "cited",
    verifier: Verifier | None = None,
    name: str = "claim",
) -> Suite:
    """Score which statements of the answer are right, which are grounded, and in what.

    - `claim_precision`, `claim_recall`, `claim_f1`: right statements of the answer, statements of the reference that it
      says, and the harmonic mean of both.
    - `claim_context_recall`, `claim_context_precision`: statements of the reference that the contexts support, chunks
      that support one.
    - `claim_context_utilization`: of the reference's statements that were retrieved, those that the answer says.
    - `claim_noise_relevant`, `claim_noise_irrelevant`: wrong statements that a chunk which supports the reference, or
      only others, support.
    - `claim_hallucination`, `claim_self_knowledge`: wrong and right statements that no chunk supports.
    - `claim_faithfulness`, `claim_contradiction`: statements that the contexts support or contradict.

    Where all are scored, faithfulness + hallucination + self-knowledge = 1, and noise (both) + hallucination = 1 -
    precision. With several references a statement is right that any of them says, and their statements are united.

    Args:
        judge: asked five times a sample: for the statements of the answer and of the reference, what the contexts say
            of either, and which both sides share. Steps that other metrics take as well are asked once.
        attribution: how it is known which chunks support a statement. "cited" goes by the sentences that the judge
            cites: what rests on chunks (context precision and utilization, noise) is a lower bound when it does not
            cite all of them, and unscored when a verdict cites nothing. "per_chunk" verifies against each chunk alone,
            as RAGChecker does: one call more for each further chunk and side.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in the judge's place.
        name: what the names of the scores begin with.

    Returns:
        A suite of twelve metrics reading `question`, `answer`, `references` and `contexts`. Findings of each are what
        its number needs: statements of either side with verdicts and citations, and with "TP", "FP" or "FN".

    Raises:
        ConfigError: if an option is none there is.
    """
    if not name:
        raise ConfigError("name is what the names of the scores begin with, got an empty one")
    return suite(
        *(
            claim_part(formula, judge, attribution=attribution, verifier=verifier, name=f"{name}_{formula}")
            for formula in FORMULAS
        )
    )
