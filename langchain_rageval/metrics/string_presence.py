"""String presence: whether one of the references stands in the answer as it is.

0 or 1, higher is better; no model is asked. Source: the measure of the same name in ragas, with whole words, in any
alphabet, in place of any substring.
"""

from __future__ import annotations

from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import overlap_metric
from langchain_rageval.metrics.string_bounds import stands_in, without_stop


def string_presence(*, name: str = "string_presence") -> Metric:
    """Score whether the answer holds a reference, for short references such as a name, a date or a number.

    It has to stand there as whole words: "кот" does not stand in "который", nor 158 in 1158 or 1,158. In Chinese,
    Japanese, Korean, Thai and their kin, where words are not set apart, any place will do. Canonical form, case,
    ё or е, white space and a full stop at the end of the reference make no difference.

    Args:
        name: key of the score.

    Returns:
        A metric reading `answer` and `references`: 1 when one of them stands in the answer, else 0, also for a blank
        answer; unscored when the references are blank. Findings of the kind "criterion" hold the number for each
        reference.
    """
    return overlap_metric(name, presence, source="whole words", told=_told, options={})


def presence(answer: str, reference: str) -> float:
    """1.0 when a folded reference stands in the folded answer, else 0.0."""
    return float(stands_in(without_stop(reference), answer))


def _told(best: float, russian: bool) -> str:
    if russian:
        return "Эталон дословно есть в ответе." if best else "Ни одного эталона в ответе дословно нет."
    return "A reference stands in the answer." if best else "No reference stands in the answer."
