"""Shared text: how much of a text occurs in another one, whatever its white space, letter case and borders."""

from __future__ import annotations

from langchain_rageval.text.normalization import normalize_text

_SIZE = 20  # characters; a shorter run that two texts share says nothing about where they come from


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
