"""Measures of a ranked list: grades in, numbers out.

A grade says how relevant a document is; 0 or less is not relevant, and gains nothing. Equal to trec_eval, whose NDCG
takes the grade itself as the gain (`gain="linear"`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Gain = Literal["exp2", "linear"]
Grades = Sequence[float] | NDArray[np.float64]

_HIGHEST_EXACT = 500.0  # as a power of two it can still be added up; beyond it only ratios count
_TOLERANCE = 1e-9


def ndcg(grades: Grades, ideal: Grades | None = None, k: int | None = None, gain: Gain = "exp2") -> float:
    """Discounted gain of the first k documents, relative to the best order there could be.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        ideal: of every judged document, the retrieved ones among them, in any order; shape (m,). None for `grades`.
        k: cutoff in documents; None for all.
        gain: "exp2" is 2^grade - 1, "linear" the grade itself.

    Returns:
        From 0 to 1, exactly 1.0 for the best order; 0.0 when no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, `gain` is neither, or `ideal` lacks grades that were retrieved.

    Source: Järvelin and Kekäläinen 2002, doi:10.1145/582415.582418, with the log2 discount; "exp2" is of Burges et al.
        2005, doi:10.1145/1102351.1102363.
    """
    if gain not in get_args(Gain):
        raise ValueError(f'gain is "exp2" or "linear", got {gain!r}')
    retrieved = _checked(grades)
    judged = retrieved if ideal is None else _checked(ideal)
    highest = max(judged.max(initial=0.0), retrieved.max(initial=0.0))
    best = _discounted(np.sort(_gains(judged, gain, highest))[::-1], _cutoff(k))
    got = _discounted(_gains(retrieved, gain, highest), k)
    if got > best * (1 + _TOLERANCE):
        raise ValueError("ideal lacks grades that were retrieved: give those of every judged document")
    return float(min(got / best, 1.0)) if best else 0.0


def mrr(grades: Grades, k: int | None = None, threshold: float = 1) -> float:
    """Reciprocal rank of the first relevant document; its mean over questions is the MRR.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents; None for all.
        threshold: least grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 when none of the first k documents is relevant.

    Raises:
        ValueError: if k < 1, or a grade is not finite.
    """
    ranks = np.flatnonzero(_relevant(grades, threshold)[: _cutoff(k)])
    return 1 / (int(ranks[0]) + 1) if ranks.size else 0.0


def average_precision(grades: Grades, relevant: int | None = None, k: int | None = None, threshold: float = 1) -> float:
    """Sum over the relevant ranks of the share of relevant documents so far / number of relevant documents.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        relevant: number of relevant documents there are; None for those in `grades`, also beyond k.
        k: cutoff in documents; None for all.
        threshold: least grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 when no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, or there are more relevant grades than `relevant`.

    Source: Manning, Raghavan, Schütze 2008, "Introduction to Information Retrieval", section 8.4.
    """
    hits = _relevant(grades, threshold)
    count = _count(hits, relevant)
    ranks = np.flatnonzero(hits[: _cutoff(k)]) + 1
    return float(np.sum(np.arange(1, ranks.size + 1) / ranks) / count) if ranks.size else 0.0


def precision(grades: Grades, k: int, threshold: float = 1) -> float:
    """Relevant documents among the first k / k, also when fewer than k were retrieved.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents.
        threshold: least grade of a relevant document.

    Raises:
        ValueError: if k < 1, or a grade is not finite.
    """
    return int(_relevant(grades, threshold)[: _cutoff(k)].sum()) / k


def recall(grades: Grades, relevant: int, k: int | None = None, threshold: float = 1) -> float:
    """Relevant documents among the first k / relevant documents.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        relevant: number of relevant documents there are.
        k: cutoff in documents; None for all.
        threshold: least grade of a relevant document.

    Returns:
        From 0 to 1; 0.0 when no document is relevant.

    Raises:
        ValueError: if k < 1, a grade is not finite, or there are more relevant grades than `relevant`.
    """
    hits = _relevant(grades, threshold)
    count = _count(hits, relevant)
    return int(hits[: _cutoff(k)].sum()) / count if count else 0.0


def hit_rate(grades: Grades, k: int, threshold: float = 1) -> float:
    """1.0 when one of the first k documents is relevant, else 0.0; trec_eval calls it success.

    Args:
        grades: of the retrieved documents, best rank first; shape (n,).
        k: cutoff in documents.
        threshold: least grade of a relevant document.

    Raises:
        ValueError: if k < 1, or a grade is not finite.
    """
    return float(_relevant(grades, threshold)[: _cutoff(k)].any())


def _checked(grades: Grades) -> NDArray[np.float64]:
    array = np.asarray(grades, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"grades are one list of numbers, got an array of the shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError("grades are finite numbers, got NaN or infinity among them")
    return array


def _cutoff(k: int | None) -> int | None:
    if k is not None and (not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 1):
        raise ValueError(f"k takes a whole number from 1 on, got {k!r}")
    return k


def _relevant(grades: Grades, threshold: float) -> NDArray[np.bool_]:
    hits: NDArray[np.bool_] = _checked(grades) >= threshold
    return hits


def _count(hits: NDArray[np.bool_], relevant: int | None) -> int:
    found = int(hits.sum())
    if relevant is not None and relevant < found:
        raise ValueError(f"relevant says {relevant}, but {found} of the retrieved documents are: count them all")
    return found if relevant is None else relevant


def _gains(grades: NDArray[np.float64], gain: Gain, highest: float) -> NDArray[np.float64]:
    """What each grade gains; all divided by one power of two when the highest is too high to be added up."""
    positive = np.maximum(grades, 0.0)
    if gain == "linear":
        return positive
    shift = np.floor(max(0.0, highest - _HIGHEST_EXACT))
    gains: NDArray[np.float64] = np.exp2(positive - shift) - np.exp2(-shift)
    return gains


def _discounted(gains: NDArray[np.float64], k: int | None) -> float:
    first = gains[:k]
    return float(np.sum(first / np.log2(np.arange(2, first.size + 2))))
