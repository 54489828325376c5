"""Budget: how much a run may spend, and which work is still let in.

What is under way is never broken off. So a work is let in only if what its kind costs as a rule still fits beside what
is spent, and beside what those under way are expected to spend yet. The first of a kind are guessed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, fields
from math import inf

from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.usage_meter import UsageMeter


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a run may spend; None sets no bound.

    Args:
        calls: of chat models, every one that is sent; what a Runnable of your own asks by itself is not seen.
        tokens: that they read and wrote; where a model reports none, characters / 4.
        embeddings: texts sent to be embedded.

    Raises:
        ConfigError: if no bound is set, or one is no whole number from 0 on.
    """

    calls: int | None = None
    tokens: int | None = None
    embeddings: int | None = None

    def __post_init__(self) -> None:
        """Refuse what sets no bound."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        if all(bound is None for bound in given.values()):
            raise ConfigError(f"a budget sets at least one of {', '.join(given)}")
        for name, bound in given.items():
            if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
                raise ConfigError(f"a budget's {name} takes a whole number from 0 on, got {bound!r}")

    def __str__(self) -> str:
        """The bounds in words."""
        given = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " and ".join(f"{bound:,} {name}" for name, bound in given if bound is not None)

    def allows(self, cost: Cost, after: Cost) -> bool:
        """Whether a cost, after others, stays within every bound; what costs nothing always does."""
        costs = zip(astuple(self), astuple(cost), astuple(after), strict=True)
        return all(bound is None or not more or spent + more <= bound for bound, more, spent in costs)


@dataclass(frozen=True)
class Cost:
    """What is counted against a budget, in the order of its bounds."""

    calls: float = 0
    tokens: float = 0
    embeddings: float = 0

    @classmethod
    def of(cls, usage: Usage, unreported: int = 0) -> Cost:
        """The cost of what was paid, with the tokens that no model reported."""
        return cls(usage.calls, (usage.input_tokens or 0) + (usage.output_tokens or 0) + unreported, usage.embedded)

    def plus(self, other: Cost, times: float = 1) -> Cost:
        """Both together, the other one so many times."""
        return Cost(*(own + times * more for own, more in zip(astuple(self), astuple(other), strict=True)))

    def at_least(self, other: Cost) -> Cost:
        """The greater of each."""
        return Cost(*map(max, astuple(self), astuple(other)))


class CostEstimate:
    """What the works of one kind have cost so far, those that cost nothing left aside.

    An answer without facts is free: were it to count, all that come after would be let in as if they were, too.
    """

    def __init__(self) -> None:
        self._total = Cost()
        self._numbers = Cost()

    def add(self, cost: Cost) -> None:
        """Take note of a work."""
        self._total = self._total.plus(cost)
        self._numbers = self._numbers.plus(Cost(*(bool(part) for part in astuple(cost))))

    def expected(self, budget: Budget, guess: Callable[[], Cost]) -> Cost:
        """What one costs: of each the mean; guessed, where the budget bounds what none of them has cost yet."""
        totals, numbers = astuple(self._total), astuple(self._numbers)
        bounds = zip(astuple(budget), numbers, strict=True)
        unknown = any(bound is not None and not number for bound, number in bounds)
        guessed = astuple(guess() if unknown else Cost())
        means = zip(totals, numbers, guessed, strict=True)
        return Cost(*(total / number if number else other for total, number, other in means))


class BudgetTracker:
    """A budget while it is being spent.

    Args:
        budget: None lets everything in.
        meter: of the run.

    Attributes:
        spent: whether a work was turned away. All that cost something are from then on, so that what is done is the
            head of the list and not what happens to be cheap.
    """

    def __init__(self, budget: Budget | None, meter: UsageMeter) -> None:
        self.budget = budget
        self.spent = False
        self._meter = meter
        self._settled = Cost()
        self._reserved = Cost()
        self._kinds: dict[Hashable, CostEstimate] = {}
        self._lock = threading.Lock()

    def admit(self, kind: Hashable, guess: Callable[[], Cost]) -> Cost | None:
        """Let a work in if it still fits.

        Args:
            kind: works of one kind cost alike.
            guess: gives what one costs, as long as none of its kind is known to cost anything.

        Returns:
            What is reserved for it, to be handed to `settle` when it is done; None when it must be left out.
        """
        if self.budget is None:
            return Cost()
        with self._lock:
            expected = self._kinds.setdefault(kind, CostEstimate()).expected(self.budget, guess)
            committed = self._settled.plus(self._reserved).at_least(Cost.of(self._meter.usage, self._meter.unreported))
            fits = self.budget.allows(expected, committed)
            self.spent = self.spent or not fits
            if not fits or (self.spent and not self.budget.allows(expected, Cost(inf, inf, inf))):
                return None
            self._reserved = self._reserved.plus(expected)
            return expected

    def settle(self, kind: Hashable, reserved: Cost, cost: Cost) -> None:
        """Take note of what a work has cost in the end."""
        if self.budget is not None:
            with self._lock:
                self._reserved = self._reserved.plus(reserved, -1)
                self._settled = self._settled.plus(cost)
                self._kinds.setdefault(kind, CostEstimate()).add(cost)
