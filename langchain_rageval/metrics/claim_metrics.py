"""Claim metrics: twelve numbers of one claim graph, which show the sources of right and wrong statements.

Each is from 0 to 1; lower is better for noise, hallucination and contradiction. Source: RAGChecker (Ru et al. 2024,
arXiv:2408.08067, section 3.3). There an answer without statements is 0 in every metric, which is the best value of some
and the worst of others; here it is unscored, except for recall and F1.
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
    """Score which statements of the answer are right, and which chunks support them.

    - `claim_precision`, `claim_recall`, `claim_f1`: share of the answer's statements that are right, share of the
      reference's statements that the answer contains, and their harmonic mean.
    - `claim_context_recall`, `claim_context_precision`: share of the reference's statements that the contexts support,
      and share of the chunks that support one of them.
    - `claim_context_utilization`: share of the reference's retrieved statements that the answer contains.
    - `claim_noise_relevant`, `claim_noise_irrelevant`: share of the answer's statements that are wrong and supported by
      a chunk that also supports the reference, or only by other chunks.
    - `claim_hallucination`, `claim_self_knowledge`: share of the answer's statements that no chunk supports and that
      are wrong, or right.
    - `claim_faithfulness`, `claim_contradiction`: share of the answer's statements that the contexts support, or
      contradict.

    Where all are scored, faithfulness + hallucination + self-knowledge = 1, and noise (both) + hallucination = 1 -
    precision. With several references, a statement is right if any of them states it, and their statements are united.

    Args:
        judge: called five times per sample: to extract the statements of the answer and of the reference, to verify
            each against the contexts, and to classify which statements both sides share. Steps shared with other
            metrics are run once.
        attribution: how the chunks that support a statement are determined. "cited" reads them from the sentences that
            the judge cites: metrics of chunks (context precision and utilization, noise) are a lower bound if it does
            not cite all of them, and unscored if a verdict cites nothing. "per_chunk" verifies against each chunk
            separately, like RAGChecker: one more call for each further chunk and side.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in place of the judge.
        name: prefix of the names of the scores.

    Returns:
        A suite of twelve metrics that read `question`, `answer`, `references` and `contexts`. Findings of each are
        those that its number depends on: statements of either side with verdicts and citations, or with "TP", "FP" or
        "FN".

    Raises:
        ConfigError: if an option is invalid.
    """
    if not name:
        raise ConfigError("name must be the prefix of the scores' names, got an empty string")
    return suite(
        *(
            claim_part(formula, judge, attribution=attribution, verifier=verifier, name=f"{name}_{formula}")
            for formula in FORMULAS
        )
    )
