"""Exact match: whether the answer equals one of the references.

0 or 1, higher is better; no model is called. Source: the measure of Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions
for Machine Comprehension of Text", arXiv:1606.05250; here texts are normalized for any alphabet, and no articles are
dropped.
"""

from __future__ import annotations

from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import overlap_metric
from langchain_rageval.metrics.string_bounds import without_stop


def exact_match(*, name: str = "exact_match") -> Metric:
    """Score whether the answer equals a reference.

    Canonical form, case, ё or е, white space and a full stop at the end make no difference ("Мюнхен." equals "мюнхен");
    any other punctuation does.

    Args:
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`: 1 if the answer equals one of them, else 0, also for a blank
        answer; unscored if the references are blank. Findings of the kind "criterion" hold the number for each
        reference.
    """
    return overlap_metric(name, equality, source="equality", format_reason=_reason, options={})


def equality(answer: str, reference: str) -> float:
    """Return 1.0 if two normalized texts are equal except for a final full stop, else 0.0."""
    return float(without_stop(answer) == without_stop(reference))


def _reason(best: float, russian: bool) -> str:
    if russian:
        return "Ответ совпадает с эталоном." if best else "Ответ не совпадает ни с одним эталоном."
    return "The answer equals a reference." if best else "The answer equals none of the references."
