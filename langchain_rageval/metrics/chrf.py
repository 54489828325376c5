"""chrF: F score over the character n-grams, up to six characters, of the answer and a reference.

From 0 to 1, higher is better; no model is called. A different inflection of a word costs little, unlike in measures
over whole words. Source: Popović 2015, aclanthology.org/W15-3049, and 2017, aclanthology.org/W17-4770, for chrF++;
computed by sacrebleu.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import installed_version, nearest_reference_reason, overlap_metric

_MAX_WORD_ORDER = 2


def chrf(*, word_order: int = 0, name: str = "chrf") -> Metric:
    """Score the answer by chrF against the nearest reference.

    Both texts are normalized first (case, ё or е). N-grams of 1 to 6 characters without white space are counted, and
    recall counts twice as much as precision.

    Args:
        word_order: 0 for chrF; 1 or 2 to count word n-grams up to that length as well, 2 for chrF++.
        name: key of the score.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if sacrebleu is not installed, or `word_order` is invalid.
    """
    if not isinstance(word_order, int) or not 0 <= word_order <= _MAX_WORD_ORDER:
        raise ConfigError(f"word_order is 0 for chrF, 1, or 2 for chrF++, got {word_order!r}")
    return overlap_metric(
        name,
        partial(sentence_chrf, word_order=word_order),
        source=installed_version("sacrebleu", "chrf"),
        format_reason=partial(nearest_reference_reason, measure="chrF" + "+" * word_order),
        options={"word_order": word_order},
    )


def sentence_chrf(answer: str, reference: str, *, word_order: int) -> float:
    """Return the chrF of two normalized texts, from 0 to 1."""
    return float(_scorer(word_order).sentence_score(answer, [reference]).score) / 100


@cache
def _scorer(word_order: int) -> Any:
    from sacrebleu import CHRF  # from the package, as in bleu

    return CHRF(word_order=word_order)
