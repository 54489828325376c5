"""Rate texts by a cross-encoder, once for all who ask it the same in a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from langchain_core.cross_encoders import BaseCrossEncoder

from langchain_rageval.errors import ModelOutputError
from langchain_rageval.run.requests import Operation, Rate, Shared


def rate_pairs(cross_encoder: BaseCrossEncoder, question: str, texts: Sequence[str]) -> Operation[list[float]]:
    """The scores of a question with each of some texts, in order; no call when there are none.

    Raises:
        ModelOutputError: if they are not finite, or not as many as the texts.
    """
    if not texts:
        return []
    pairs = [(question, text) for text in texts]
    key = ("rate_pairs", id(cross_encoder), question, *texts)
    scores: list[float] = yield Shared(key, _rated(cross_encoder, pairs))
    return scores


def _rated(cross_encoder: BaseCrossEncoder, pairs: Sequence[tuple[str, str]]) -> Operation[list[float]]:
    given = yield Rate(cross_encoder, pairs)
    return _finite(given, len(pairs))


def _finite(given: Any, expected: int) -> list[float]:
    try:
        scores = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ModelOutputError(f"the cross-encoder gave no numbers, but {str(given)[:100]}") from None
    if scores.ndim != 1:
        raise ModelOutputError(f"the cross-encoder gave no list of scores, but {str(given)[:100]}")
    if len(scores) != expected:
        raise ModelOutputError(f"the cross-encoder gave {len(scores)} scores for {expected} pairs")
    for score in scores[~np.isfinite(scores)]:
        raise ModelOutputError(f"the cross-encoder gave the score {score}")
    return [float(score) for score in scores]
