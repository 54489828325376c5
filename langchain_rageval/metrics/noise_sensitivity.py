"""Noise sensitivity: the share of the answer's statements that are wrong and that chunks have led it to.

From 0 to 1, lower is better. Source: RAGChecker (Ru et al. 2024, arXiv:2408.08067, section 3.3).
"""

from __future__ import annotations

from typing import Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.claim_part import Attribution, claim_part
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.steps.verify import Verifier

Mode = Literal["relevant", "irrelevant"]


def noise_sensitivity(
    judge: JudgeLike,
    mode: Mode = "relevant",
    *,
    attribution: Attribution = "cited",
    verifier: Verifier | None = None,
    name: str | None = None,
) -> Metric:
    """Score how often the answer takes over from its contexts what the reference does not say.

    The same as `claim_noise_relevant` and `claim_noise_irrelevant` of `claim_metrics`, for those who want no more.

    Args:
        judge: asked five times a sample, as for `claim_metrics`; both modes together cost no more.
        mode: "relevant" counts what a chunk supports that also supports the reference: the fact was there, beside
            others. "irrelevant" counts what only other chunks support: the answer follows what is beside the point.
        attribution: "cited" or "per_chunk", how it is known which chunks support a statement; see `claim_metrics`.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in the judge's place.
        name: key of the score, by default "noise_sensitivity_relevant" or "noise_sensitivity_irrelevant".

    Returns:
        A metric reading `question`, `answer`, `references` and `contexts`; unscored when the answer states no facts, or
        when a verdict cites nothing. `rescore` makes one mode from what was found for the other.

    Raises:
        ConfigError: if an option is none there is.
    """
    if mode not in get_args(Mode):
        raise ConfigError(f'mode is "relevant" or "irrelevant", got {mode!r}')
    given = name if name is not None else f"noise_sensitivity_{mode}"
    return claim_part(f"noise_{mode}", judge, attribution=attribution, verifier=verifier, name=given)
