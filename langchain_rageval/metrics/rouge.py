"""ROUGE: overlap of the words, word n-grams or longest common subsequence of the answer and a reference.

From 0 to 1, higher is better; no model is called. Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of
Summaries", aclanthology.org/W04-1013. On English the numbers equal those of the package rouge-score, whose tokenizer
drops every letter that is not Latin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import nearest_reference_reason, overlap_metric
from langchain_rageval.text.normalization import tokens_of

RougeVariant = Literal["rougeL", "rouge1", "rouge2", "rouge3", "rouge4"]
RougeStatistic = Literal["fmeasure", "precision", "recall"]


def rouge(*, variant: RougeVariant = "rougeL", of: RougeStatistic = "fmeasure", name: str | None = None) -> Metric:
    """Score the word overlap of the answer with the nearest reference.

    Words are sequences of letters and digits of any alphabet, normalized (case, ё or е); single characters in scripts
    without spaces between words, such as Chinese. They are not stemmed: another inflection is another word.

    Args:
        variant: "rougeL" for the longest common subsequence of words, gaps allowed; "rouge1" to "rouge4" for n-grams of
            that many words.
        of: "recall" is the share of the reference's words that the answer shares, "precision" the share of the answer's
            words, "fmeasure" their harmonic mean.
        name: key of the score; by default "rouge" for "rougeL", else the variant.

    Returns:
        A metric that reads `answer` and `references`; 0 for a blank answer, unscored if the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if an option is invalid.
    """
    if variant not in get_args(RougeVariant):
        raise ConfigError(f"variant must be one of {', '.join(get_args(RougeVariant))}, got {variant!r}")
    if of not in get_args(RougeStatistic):
        raise ConfigError(f"of must be one of {', '.join(get_args(RougeStatistic))}, got {of!r}")
    measure = f"ROUGE-{variant.removeprefix('rouge')}"
    return overlap_metric(
        name or ("rouge" if variant == "rougeL" else variant),
        partial(shared_words, variant=variant, of=of),
        source="rouge",
        format_reason=partial(nearest_reference_reason, measure=measure if of == "fmeasure" else f"{measure} {of}"),
        options={"variant": variant, "of": of},
    )


def shared_words(answer: str, reference: str, *, variant: RougeVariant, of: RougeStatistic) -> float:
    """Return the ROUGE of two normalized texts; 0.0 if one of them has fewer words than the variant's n-grams."""
    answer_words, reference_words = tokens_of(answer), tokens_of(reference)
    if variant == "rougeL":
        shared, sizes = lcs_length(answer_words, reference_words), (len(answer_words), len(reference_words))
    else:
        length = int(variant.removeprefix("rouge"))
        grams = _ngrams(answer_words, length), _ngrams(reference_words, length)
        shared, sizes = (grams[0] & grams[1]).total(), (grams[0].total(), grams[1].total())
    precision, recall = (shared / size if size else 0.0 for size in sizes)
    if of != "fmeasure":
        return precision if of == "precision" else recall
    return 2 * precision * recall / (precision + recall) if shared else 0.0


def lcs_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Source: Hyyrö 2004, "Bit-parallel LCS-length computation revisited": each row of the dynamic programming table is
    one integer, whose zero bits mark where the length grows. Time n·m / 64.
    """
    places: dict[str, int] = {}
    for at, token in enumerate(other):
        places[token] = places.get(token, 0) | 1 << at
    row = full = (1 << len(other)) - 1
    for token in one:
        matches = row & places.get(token, 0)
        row = (row + matches | row - matches) & full
    return len(other) - row.bit_count()


def _ngrams(tokens: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))
