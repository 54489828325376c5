"""Ranking measures of a list of relevance grades: NDCG, MRR, average precision, precision, recall and hit rate.

A grade states how relevant a document is; a grade of 0 or less means not relevant and has no gain. The results equal
the results of trec_eval. NDCG equals that of trec_eval with `gain="linear"`, where the gain is the grade itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Gain = Literal["exp2", "linear"]
Grades = Sequence[float] | NDArray[np.float64]

_HIGHEST_EXACT = 500.0  # grade whose power of two can still be summed; beyond it gains are scaled down
_TOLERANCE = 1e-9


def ndcg(grades: Grades, ideal: Grades | None = None, k: int | None = None, gain: Gain = "exp2") -> float:
    """Compute NDCG: discounted gain of the first k documents, divided by the discounted gain of the best order.

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        ideal: grades of all judged documents, including the retrieved ones, in any order; shape (m,). None to use
            `grades`.
        k: cutoff in documents; None for no cutoff.
        gain: "exp2" for 2^grade - 1, "linear" for the grade itself.

    Returns:
        NDCG from 0 to 1: exactly 1.0 for the best order, 0.0 if no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, `gain` is unknown, or `ideal` lacks grades of retrieved documents.

    Source: Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418, with the log2 discount; "exp2": Burges et al. 2005,
        doi:10.1145/1102351.1102363.
    """
    if gain not in get_args(Gain):
        raise ValueError(f'gain must be "exp2" or "linear", got {gain!r}')
    retrieved = _checked(grades)
    judged = retrieved if ideal is None else _checked(ideal)
    highest = max(judged.max(initial=0.0), retrieved.max(initial=0.0))
    best = _discounted(np.sort(_gains(judged, gain, highest))[::-1], _cutoff(k))
    actual = _discounted(_gains(retrieved, gain, highest), k)
    if actual > best * (1 + _TOLERANCE):
        raise ValueError("ideal lacks grades of retrieved documents: pass the grades of all judged documents")
    return float(min(actual / best, 1.0)) if best else 0.0


def mrr(grades: Grades, k: int | None = None, threshold: float = 1) -> float:
    """Compute the reciprocal rank of the first relevant document; its mean over the questions is the MRR.

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents; None for no cutoff.
        threshold: lowest grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 if none of the first k documents is relevant.

    Raises:
        ValueError: if k < 1, or a grade is not finite.

    Source: Voorhees 1999, "The TREC-8 Question Answering Track Report".
    """
    ranks = np.flatnonzero(_relevant(grades, threshold)[: _cutoff(k)])
    return 1 / (int(ranks[0]) + 1) if ranks.size else 0.0


def average_precision(grades: Grades, relevant: int | None = None, k: int | None = None, threshold: float = 1) -> float:
    """Compute average precision: the sum of precisions at the ranks of relevant documents, divided by `relevant`.

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        relevant: number of all relevant documents; None for the number of relevant documents in `grades`, also beyond
            rank k.
        k: cutoff in documents; None for no cutoff.
        threshold: lowest grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 if no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, or `grades` has more relevant documents than `relevant`.

    Source: Manning, Raghavan, Schütze 2008, "Introduction to Information Retrieval", section 8.4.
    """
    hits = _relevant(grades, threshold)
    count = _count(hits, relevant)
    ranks = np.flatnonzero(hits[: _cutoff(k)]) + 1
    return float(np.sum(np.arange(1, ranks.size + 1) / ranks) / count) if ranks.size else 0.0


def precision(grades: Grades, k: int, threshold: float = 1) -> float:
    """Compute precision at k: the number of relevant documents among the first k, divided by k.

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents.
        threshold: lowest grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 if nothing was retrieved. The divisor is k even if fewer documents were retrieved.

    Raises:
        ValueError: if k < 1, or a grade is not finite.
    """
    return int(_relevant(grades, threshold)[: _cutoff(k)].sum()) / k


def recall(grades: Grades, relevant: int, k: int | None = None, threshold: float = 1) -> float:
    """Compute recall at k: the share of all relevant documents that are among the first k.

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        relevant: number of all relevant documents.
        k: cutoff in documents; None for no cutoff.
        threshold: lowest grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 if no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, or `grades` has more relevant documents than `relevant`.
    """
    hits = _relevant(grades, threshold)
    count = _count(hits, relevant)
    return int(hits[: _cutoff(k)].sum()) / count if count else 0.0


def hit_rate(grades: Grades, k: int, threshold: float = 1) -> float:
    """Return 1.0 if at least one of the first k documents is relevant, else 0.0; trec_eval calls this "success".

    Args:
        grades: grades of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents.
        threshold: lowest grade of a relevant document.

    Raises:
        ValueError: if k < 1, or a grade is not finite.
    """
    return float(_relevant(grades, threshold)[: _cutoff(k)].any())


def _checked(grades: Grades) -> NDArray[np.float64]:
    array = np.asarray(grades, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"grades must be one-dimensional, got an array of shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("grades must be finite numbers, got NaN or infinity")
    return array


def _cutoff(k: int | None) -> int | None:
    if k is not None and (not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1):
        raise ValueError(f"k must be a whole number of at least 1, got {k!r}")
    return k


def _relevant(grades: Grades, threshold: float) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = _checked(grades) >= threshold
    return hits


def _count(hits: NDArray[np.bool_], relevant: int | None) -> int:
    retrieved = int(hits.sum())
    if relevant is not None and relevant < retrieved:
        raise ValueError(
            f"relevant is {relevant}, but {retrieved} retrieved documents are relevant: count all relevant documents"
        )
    return retrieved if relevant is None else relevant


def _gains(grades: NDArray[np.float64], gain: Gain, highest: float) -> NDArray[np.float64]:
    """Return the gain of each grade; all gains are divided by one power of two if their sum would overflow."""
    positive = np.maximum(grades, 0.0)
    if gain == "linear":
        return positive
    shift = np.floor(max(0.0, highest - _HIGHEST_EXACT))
    gains: NDArray[np.float64] = np.exp2(positive - shift) - np.exp2(-shift)
    return gains


def _discounted(gains: NDArray[np.float64], k: int | None) -> float:
    first = gains[:k]
    return float(np.sum(first / np.log2(np.arange(2, first.size + 2))))
