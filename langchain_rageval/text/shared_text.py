"""Shared text: how much of a text occurs in another one, whatever its white space, letter case and borders."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise

from langchain_rageval.text.normalization import normalize_text, tokens_of

_SIZE = 20  # characters; a shorter run that two texts share says nothing about where they come from
_MOST_REPLACED = 0.1  # share of the words


def shared_share(one: str, other: str) -> float:
    """Return the share of the shorter text that the longer one holds too, from 0 to 1; 0 if a text is blank.

    Runs of at least 20 characters without white space count, in any order; a text shorter than that counts if it occurs
    as a whole.
    """
    shorter, longer = sorted(("".join(normalize_text(text).split()) for text in (one, other)), key=len)
    if not shorter:
        return 0.0
    if shorter in longer:
        return 1.0
    runs = {longer[at : at + _SIZE] for at in range(len(longer) - _SIZE + 1)}
    shared = end = 0
    for at in range(len(shorter) - _SIZE + 1):
        if shorter[at : at + _SIZE] in runs:
            shared += at + _SIZE - max(at, end)
            end = at + _SIZE
    return shared / len(shorter)


def common_share(one: str, other: str) -> float:
    """Return the share of the shorter text that both have in common, as `shared_share`; 0 for texts of one pattern.

    Such texts, as the descriptions of two products, have other words at the same places: more than a tenth of those
    that stand between the words that both contain, with one word at each end.
    """
    share = shared_share(one, other)
    return share if share in (0.0, 1.0) or _replaced_share(one, other) <= _MOST_REPLACED else 0.0


def _replaced_share(one: str, other: str) -> float:
    """Return the share of words that differ at the same place; the ends count once, since texts may be cut anywhere.

    The first and the last word of each text, which a splitter may have cut, are left out.
    """
    words, others = sorted((tokens_of(normalize_text(text))[1:-1] for text in (one, other)), key=len)
    *runs, end = SequenceMatcher(None, words, others).get_matching_blocks()
    if not runs:
        return 0.0
    gaps = [min(after.a - run.a - run.size, after.b - run.b - run.size) for run, after in pairwise([*runs, end])]
    replaced = min(runs[0].a, runs[0].b, 1) + sum(gaps[:-1]) + min(gaps[-1], 1)
    return replaced / (replaced + sum(run.size for run in runs))
