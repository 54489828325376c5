"""ROUGE: how many words, pairs of words, or words in the same order the answer and a reference share.

From 0 to 1, higher is better; no model is asked. Source: Lin 2004, "ROUGE: A Package for Automatic Evaluation of
Summaries", aclanthology.org/W04-1013; numbers equal those of the package rouge-score on English, whose own tokenizer
drops every letter that is not Latin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.overlap import near_reference, overlap_metric
from langchain_rageval.text.normalization import tokens_of

Variant = Literal["rougeL", "rouge1", "rouge2", "rouge3", "rouge4"]
Of = Literal["fmeasure", "precision", "recall"]


def rouge(*, variant: Variant = "rougeL", of: Of = "fmeasure", name: str | None = None) -> Metric:
    """Score how many words the answer shares with the nearest reference.

    Words are runs of letters and digits of any alphabet, folded (case, ё or е); characters where words are not set
    apart, as in Chinese. They are not stemmed: another case ending is another word.

    Args:
        variant: "rougeL" for the longest sequence of words that both have in the same order, with gaps; "rouge1" to
            "rouge4" for sequences of so many words without gaps.
        of: "recall" is shared / the reference's, "precision" shared / the answer's, "fmeasure" their harmonic mean.
        name: key of the score; by default "rouge" for "rougeL", else the variant.

    Returns:
        A metric reading `answer` and `references`; 0 for a blank answer, unscored when the references are blank.
        Findings of the kind "criterion" hold the number for each reference.

    Raises:
        ConfigError: if an option is none of these.
    """
    if variant not in get_args(Variant):
        raise ConfigError(f"variant is one of {', '.join(get_args(Variant))}, got {variant!r}")
    if of not in get_args(Of):
        raise ConfigError(f"of is one of {', '.join(get_args(Of))}, got {of!r}")
    named = f"ROUGE-{variant.removeprefix('rouge')}"
    return overlap_metric(
        name or ("rouge" if variant == "rougeL" else variant),
        partial(shared_words, variant=variant, of=of),
        source="rouge",
        told=partial(near_reference, measure=named if of == "fmeasure" else f"{named} {of}"),
        options={"variant": variant, "of": of},
    )


def shared_words(answer: str, reference: str, *, variant: Variant, of: Of) -> float:
    """ROUGE of two folded texts; 0.0 when one of them is too short for a sequence of the variant's length."""
    ours, theirs = tokens_of(answer), tokens_of(reference)
    if variant == "rougeL":
        shared, sizes = longest_common(ours, theirs), (len(ours), len(theirs))
    else:
        length = int(variant.removeprefix("rouge"))
        grams = _grams(ours, length), _grams(theirs, length)
        shared, sizes = (grams[0] & grams[1]).total(), (grams[0].total(), grams[1].total())
    precision, recall = (shared / size if size else 0.0 for size in sizes)
    if of != "fmeasure":
        return precision if of == "precision" else recall
    return 2 * precision * recall / (precision + recall) if shared else 0.0


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence.

    Source: Hyyrö 2004, "Bit-parallel LCS-length computation revisited": a row of the usual table is one integer, whose
    zero bits are the places where the length grows. Time n·m / 64.
    """
    places: dict[str, int] = {}
    for at, token in enumerate(other):
        places[token] = places.get(token, 0) | 1 << at
    row = full = (1 << len(other)) - 1
    for token in one:
        matches = row & places.get(token, 0)
        row = (row + matches | row - matches) & full
    return len(other) - row.bit_count()


def _grams(tokens: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[at : at + length]) for at in range(len(tokens) - length + 1))
