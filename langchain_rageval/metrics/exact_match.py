"""Exact match: whether the answer is, word for word, one of the references.

0 or 1, higher is better; no model is asked. Source: the measure of Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions
for Machine Comprehension of Text", arXiv:1606.05250, with folding for any alphabet in place of dropped articles.
"""

from __future__ import annotations

from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import overlap_metric
from langchain_rageval.metrics.string_bounds import without_stop


def exact_match(*, name: str = "exact_match") -> Metric:
    """Score whether the answer equals a reference.

    Canonical form, case, ё or е, white space and a full stop at the end make no difference ("Мюнхен." is "мюнхен");
    any other punctuation does.

    Args:
        name: key of the score.

    Returns:
        A metric reading `answer` and `references`: 1 when one of them is the answer, else 0, also for a blank answer;
        unscored when the references are blank. Findings of the kind "criterion" hold the number for each reference.
    """
    return overlap_metric(name, equality, source="equality", told=_told, options={})


def equality(answer: str, reference: str) -> float:
    """1.0 when two folded texts are the same but for a full stop at the end, else 0.0."""
    return float(without_stop(answer) == without_stop(reference))


def _told(best: float, russian: bool) -> str:
    if russian:
        return "Ответ совпадает с эталоном." if best else "Ответ не совпадает ни с одним эталоном."
    return "The answer is a reference word for word." if best else "The answer is none of the references."
