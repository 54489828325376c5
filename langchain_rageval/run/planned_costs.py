"""Planned costs: base class of plans, which map names to expected costs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar


class PlannedCost(Protocol):
    """Interface of a line of a plan."""

    @property
    def calls(self) -> int:
        """Number of chat model calls."""

    @property
    def tokens(self) -> int:
        """Sum of the input and output tokens."""

    @property
    def embedded(self) -> int:
        """Number of texts to embed."""

    @property
    def money(self) -> float | None:
        """Price of the calls; None if it is not known."""


_Cost = TypeVar("_Cost", bound=PlannedCost)


class PlannedCosts(Mapping[str, _Cost]):
    """Mapping of names to expected costs, in order, with the costs of all together."""

    def __init__(self, costs: Mapping[str, _Cost]) -> None:
        self._costs = costs

    def __getitem__(self, name: str) -> _Cost:
        """Return the expected cost of a part of the plan by its name."""
        return self._costs[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self._costs)

    def __len__(self) -> int:
        """Return the number of parts."""
        return len(self._costs)

    @property
    @abstractmethod
    def total(self) -> _Cost:
        """Expected cost of the whole plan."""

    @property
    def calls(self) -> int:
        """Expected number of chat model calls in total."""
        return self.total.calls

    @property
    def tokens(self) -> int:
        """Expected sum of input and output tokens in total."""
        return self.total.tokens

    @property
    def embedded(self) -> int:
        """Number of texts to embed in total."""
        return self.total.embedded

    @property
    def money(self) -> float | None:
        """Price of the expected calls in total; None without prices, or if a model has no price."""
        return self.total.money
