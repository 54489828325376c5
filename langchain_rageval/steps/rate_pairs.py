"""rate_pairs: score a question with texts by a cross-encoder; equal requests of a run are sent once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval.errors import ModelOutputError
from langchain_rageval.run.requests import Operation, Rate, Shared


def rate_pairs(cross_encoder: BaseCrossEncoder, question: str, texts: Sequence[str]) -> Operation[list[float]]:
    """Return the scores of a question with each text, in order. Makes no call without texts.

    Raises:
        ModelOutputError: if the scores are not finite numbers, or their number differs from that of the texts.
    """
    if not texts:
        return []
    pairs = [(question, text) for text in texts]
    key = ("rate_pairs", id(cross_encoder), question, *texts)
    scores: list[float] = yield Shared(key, _score_pairs(cross_encoder, pairs))
    return scores


def _score_pairs(cross_encoder: BaseCrossEncoder, pairs: Sequence[tuple[str, str]]) -> Operation[list[float]]:
    output = yield Rate(cross_encoder, pairs)
    return _validate_scores(output, len(pairs))


def _validate_scores(output: Any, expected: int) -> list[float]:
    try:
        scores = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelOutputError(f"the cross-encoder returned no numbers, but {str(output)[:100]}") from None
    if scores.ndim != 1:
        raise ModelOutputError(f"the cross-encoder returned no list of scores, but {str(output)[:100]}")
    if len(scores) != expected:
        raise ModelOutputError(f"the cross-encoder returned {len(scores)} scores for {expected} pairs")
    for score in scores[~np.isfinite(scores)]:
        raise ModelOutputError(f"the cross-encoder returned the score {score}, which is not a finite number")
    return [float(score) for score in scores]
