"""String presence: whether the answer contains one of the references literally.

0 or 1, higher is better; no model is called. Source: the measure of the same name in ragas, with whole words, in any
alphabet, in place of any substring.
"""

from __future__ import annotations

from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import overlap_metric
from langchain_rageval.metrics.string_bounds import contains_whole_words, without_stop


def string_presence(*, name: str = "string_presence") -> Metric:
    """Score whether the answer contains a reference, for short references such as a name, a date or a number.

    Only whole words match: "кот" does not match in "который", nor 158 in 1158 or 1,158. In Chinese, Japanese, Korean,
    Thai and other scripts without spaces between words, any place matches. Canonical form, case, ё or е, white space
    and a full stop at the end of the reference make no difference.

    Args:
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`: 1 if the answer contains one of them, else 0, also for a blank
        answer; unscored if the references are blank. Findings of the kind "criterion" hold the number for each
        reference.
    """
    return overlap_metric(name, presence, source="whole words", format_reason=_reason, options={})


def presence(answer: str, reference: str) -> float:
    """Return 1.0 if the normalized answer contains the normalized reference, else 0.0."""
    return float(contains_whole_words(answer, without_stop(reference)))


def _reason(best: float, russian: bool) -> str:
    if russian:
        return "Эталон дословно есть в ответе." if best else "Ни одного эталона в ответе дословно нет."
    return "The answer contains a reference." if best else "The answer contains no reference."
