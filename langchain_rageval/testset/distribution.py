"""Distribution of the rows of a test set: the share of each evolution."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from types import MappingProxyType
from typing import Any

from langchain_core.runnables import Runnable

from langchain_rageval.errors import ConfigError
from langchain_rageval.testset.evolutions import EVOLUTIONS, Branch, Evolution, compose

DISTRIBUTION: Mapping[str, float] = {
    "simple": 0.5,
    "reasoning": 0.25,
    "conditional": 0.15,
    "multi_context": 0.1,
}
"""Distribution of a generator without one of its own."""


def normalize_shares(distribution: Any) -> dict[Branch, float]:
    """Return the share of each evolution of a distribution, with sum 1.

    Args:
        distribution: mapping of evolutions or their names to shares, or a list of pairs (share, evolution).

    Raises:
        ConfigError: if an evolution does not exist, a share is not above 0, or there is none.
    """
    pairs = [(share, key) for key, share in distribution.items()] if isinstance(distribution, Mapping) else distribution
    if not isinstance(pairs, list | tuple) or not all(map(_is_pair, pairs)):
        raise ConfigError(
            "distribution must be a mapping of evolutions to shares, or a list of pairs (share, evolution), "
            f"got {distribution!r}"
        )
    shares: dict[Branch, float] = {}
    for share, key in pairs:
        branch = _to_branch(key)
        if not isinstance(share, int | float) or not (isfinite(share) and share > 0):
            raise ConfigError(f"the share of {branch.get_name()} must be a number above 0, got {share!r}")
        shares[branch] = shares.get(branch, 0.0) + float(share)
    if not shares:
        raise ConfigError("distribution must contain at least one evolution, such as {'simple': 1}")
    total = sum(shares.values())
    return {branch: share / total for branch, share in shares.items()}


def _is_pair(item: Any) -> bool:
    return isinstance(item, list | tuple) and len(item) == 2


def branch_of_names(names: str, own: Mapping[str, Evolution] = MappingProxyType({})) -> Branch | None:
    """Return the branch of names joined by "+"; None if one names neither a packaged evolution nor one of `own`."""
    parts = [own.get(name.strip(), EVOLUTIONS.get(name.strip())) for name in names.split("+")]
    return None if None in parts else compose(parts)


def _to_branch(key: Any) -> Branch:
    """Return the branch for a key of a distribution: names joined by "+", a Runnable or a function."""
    if isinstance(key, Runnable) or callable(key):
        return compose([key])
    branch = branch_of_names(str(key))
    if not isinstance(key, str) or branch is None:
        raise ConfigError(
            f"there is no evolution {key!r}; choose from {', '.join(EVOLUTIONS)}, joined by + or |, or pass a Runnable "
            "such as persona('who asks')"
        )
    return branch
