"""Noise sensitivity: the share of the answer's statements that are wrong and supported by retrieved chunks.

From 0 to 1, lower is better. Source: RAGChecker (Ru et al. 2024, arXiv:2408.08067, section 3.3).
"""

from __future__ import annotations

from typing import Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics.claim_part import Attribution, claim_part
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.steps.verify import Verifier

NoiseMode = Literal["relevant", "irrelevant"]


def noise_sensitivity(
    judge: JudgeLike,
    mode: NoiseMode = "relevant",
    *,
    attribution: Attribution = "cited",
    verifier: Verifier | None = None,
    name: str | None = None,
) -> Metric:
    """Score how often the answer repeats statements of its contexts that the reference does not contain.

    Equals `claim_noise_relevant` or `claim_noise_irrelevant` of `claim_metrics`, without the other metrics.

    Args:
        judge: called five times per sample, as for `claim_metrics`; both modes together need the same five calls.
        mode: "relevant" counts wrong statements supported by a chunk that also supports the reference; "irrelevant"
            counts those that only other chunks support.
        attribution: "cited" or "per_chunk": how the chunks that support a statement are determined; see
            `claim_metrics`.
        verifier: a cross-encoder, or `NliVerifier(...)`, that verifies statements in place of the judge.
        name: key of the score, by default "noise_sensitivity_relevant" or "noise_sensitivity_irrelevant".

    Returns:
        A metric that reads `question`, `answer`, `references` and `contexts`; unscored if the answer states no facts or
        a verdict cites nothing. `Report.rescore` computes one mode from the findings of the other.

    Raises:
        ConfigError: if an option is invalid.
    """
    if mode not in get_args(NoiseMode):
        raise ConfigError(f'mode is "relevant" or "irrelevant", got {mode!r}')
    score_name = name if name is not None else f"noise_sensitivity_{mode}"
    return claim_part(f"noise_{mode}", judge, attribution=attribution, verifier=verifier, name=score_name)
