"""Overlap of word stems: what the offline judge decides by."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import TypeVar

ENOUGH = 0.6
"""Share of the stems of a text from which the text is taken to be said."""

SOME = 0.4
"""Share of the stems of a text from which something is taken to be about it."""

Key = TypeVar("Key")


def stem_share(wanted: Set[str], present: Set[str]) -> float:
    """Return the share of the wanted stems that are present; 0 if none are wanted."""
    return len(wanted & present) / len(wanted) if wanted else 0.0


def tally(wanted: Set[str], present: Set[str]) -> str:
    """Return how many of the wanted stems are present, such as "3/5"."""
    return f"{len(wanted & present)}/{len(wanted)}"


def cover(wanted: Set[str], stems: Mapping[Key, Set[str]], most: int | None = None) -> tuple[list[Key], Set[str]]:
    """Return the keys of the texts that together have most of the wanted stems, and which they have.

    Args:
        wanted: stems to find.
        stems: stems of each text.
        most: largest number of keys; None for any.

    Returns:
        The keys one after the other, each next one of the text that adds most stems, none that adds nothing; and the
        wanted stems that these texts have.
    """
    found, missing = list[Key](), wanted
    while stems and (most is None or len(found) < most):
        best = max(stems, key=lambda key: len(missing & stems[key]))
        if not missing & stems[best]:
            break
        found.append(best)
        missing = missing - stems[best]
    return found, wanted - missing
