"""chrF: the share of runs of up to six characters that the answer and a reference have in common.

From 0 to 1, higher is better; no model is asked. Another case ending costs little, where whole words would not forgive
it. Source: Popović 2015, aclanthology.org/W15-3049, and 2017, aclanthology.org/W17-4770, for chrF++; as sacrebleu
counts them.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import near_reference, overlap_metric, source_in_extra

_LONGEST_RUN_OF_WORDS = 2


def chrf(*, word_order: int = 0, name: str = "chrf") -> Metric:
    """Score the answer by chrF against the nearest reference.

    Both are folded first (case, ё or е). Runs of 1 to 6 characters without white space are counted, and recall weighs
    twice as much as precision.

    Args:
        word_order: 0 for chrF; 1 or 2 to count runs of so many words as well, 2 being chrF++.
        name: key of the score.

    Returns:
        A metric reading `answer` and `references`; 0 for a blank answer, unscored when the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `word_order` is none of these.
    """
    if not isinstance(word_order, int) or not 0 <= word_order <= _LONGEST_RUN_OF_WORDS:
        raise ConfigError(f"word_order is 0 for chrF, 1, or 2 for chrF++, got {word_order!r}")
    return overlap_metric(
        name,
        partial(sentence_chrf, word_order=word_order),
        source=source_in_extra("sacrebleu", "chrf"),
        told=partial(near_reference, measure="chrF" + "+" * word_order),
        options={"word_order": word_order},
    )


def sentence_chrf(answer: str, reference: str, *, word_order: int) -> float:
    """Its value for two folded texts, from 0 to 1."""
    return float(_scorer(word_order).sentence_score(answer, [reference]).score) / 100


@cache
def _scorer(word_order: int) -> Any:
    from sacrebleu import CHRF  # of the package, as in bleu

    return CHRF(word_order=word_order)
