"""Budget of a run, admission of tasks while it lasts, and planned costs."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from math import inf
from typing import Protocol, TypeVar

from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import BudgetExceeded, ConfigError
from langchain_rageval.run.usage import UsageMeter


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


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Upper bounds on the cost of a run; None for no bound.

    Args:
        calls: number of chat model calls, retries included. Calls that your own Runnables make internally are not
            counted.
        tokens: number of input and output tokens; characters / 4 for models that report none.
        embeddings: number of texts sent to be embedded.

    Raises:
        ConfigError: if no bound is set, or a bound is not a whole number of at least 0.
    """

    calls: int | None = None
    tokens: int | None = None
    embeddings: int | None = None

    def __post_init__(self) -> None:
        """Validate the bounds."""
        bounds = {field.name: getattr(self, field.name) for field in fields(self)}
        if all(bound is None for bound in bounds.values()):
            raise ConfigError(f"a budget sets at least one of {', '.join(bounds)}")
        for name, bound in bounds.items():
            if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
                raise ConfigError(f"a budget's {name} must be a whole number of at least 0, got {bound!r}")

    def __str__(self) -> str:
        """Return the bounds as text, such as "100 calls and 5,000 tokens"."""
        bounds = [(field.name, getattr(self, field.name)) for field in fields(self)]
        return " and ".join(f"{bound:,} {name}" for name, bound in bounds if bound is not None)

    def allows(self, cost: Cost, after: Cost) -> bool:
        """Return True if a further cost stays within every bound; a cost of 0 always does.

        Args:
            cost: the further cost.
            after: the cost so far.
        """
        costs = zip(astuple(self), astuple(cost), astuple(after), strict=True)
        return all(bound is None or not extra or so_far + extra <= bound for bound, extra, so_far in costs)


@dataclass(frozen=True)
class Cost:
    """Cost that is counted against a budget, with fields in the order of its bounds."""

    calls: float = 0
    tokens: float = 0
    embeddings: float = 0

    @classmethod
    def of(cls, usage: Usage, unreported: int = 0) -> Cost:
        """Return the cost of a usage plus estimated tokens of calls whose model reports none."""
        return cls(usage.calls, (usage.input_tokens or 0) + (usage.output_tokens or 0) + unreported, usage.embedded)

    def plus(self, other: Cost, times: float = 1) -> Cost:
        """Return the sum of this cost and `times` the other one."""
        return Cost(*(own + times * extra for own, extra in zip(astuple(self), astuple(other), strict=True)))

    def at_least(self, other: Cost) -> Cost:
        """Return a cost whose every field is the larger value of two costs."""
        return Cost(*map(max, astuple(self), astuple(other)))


class BudgetCeiling:
    """Refuses the model calls that would exceed a budget; calls under way may exceed its tokens.

    Args:
        budget: the bounds.
        meter: the run's meter.
    """

    def __init__(self, budget: Budget, meter: UsageMeter) -> None:
        self.budget = budget
        self._meter = meter
        self._under_way = 0
        self._lock = threading.Lock()

    @contextmanager
    def charge_call(self) -> Iterator[None]:
        """Hold room for one call while it is under way.

        Raises:
            BudgetExceeded: if there is no room for a further call, or the tokens are spent.
        """
        with self._lock:
            spent = Cost.of(self._meter.usage, self._meter.unreported)
            calls, tokens = self.budget.calls, self.budget.tokens
            if (calls is not None and spent.calls + self._under_way >= calls) or (
                tokens is not None and spent.tokens >= tokens
            ):
                raise self._exceeded()
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def check_wave(self, spent: Cost, wave: Cost) -> None:
        """Raise BudgetExceeded if a wave of requests does not fit the budget.

        Args:
            spent: cost of the earlier waves.
            wave: expected cost of this one.
        """
        if not self.budget.allows(wave, spent):
            raise self._exceeded()

    def check_embeddings(self) -> None:
        """Raise BudgetExceeded if all texts that may be embedded were sent."""
        bound = self.budget.embeddings
        if bound is not None and self._meter.usage.embedded >= bound:
            raise self._exceeded()

    def _exceeded(self) -> BudgetExceeded:
        return BudgetExceeded(f"the budget of {self.budget} is spent; the score was begun and cannot be finished")


class CostEstimate:
    """Running mean of the cost of the tasks of one kind; tasks that cost nothing are ignored.

    An answer without facts is free. If it counted, all later tasks would be admitted as if they were free, too.
    """

    def __init__(self) -> None:
        self._total = Cost()
        self._counts = Cost()

    def add(self, cost: Cost) -> None:
        """Add the cost of a finished task."""
        self._total = self._total.plus(cost)
        self._counts = self._counts.plus(Cost(*(bool(part) for part in astuple(cost))))

    def expected(self, budget: Budget, guess: Callable[[], Cost]) -> Cost:
        """Return the mean cost of finished tasks; a guess for fields in which no task has had a cost yet.

        Args:
            budget: the guess is made only if it bounds such a field.
            guess: returns the guessed cost.
        """
        totals, counts = astuple(self._total), astuple(self._counts)
        bounds = zip(astuple(budget), counts, strict=True)
        unknown = any(bound is not None and not count for bound, count in bounds)
        guessed = astuple(guess() if unknown else Cost())
        means = zip(totals, counts, guessed, strict=True)
        return Cost(*(total / count if count else default for total, count, default in means))


class BudgetTracker:
    """Admits tasks while the budget lasts.

    Args:
        budget: the bounds; None admits every task.
        meter: the run's meter.

    Attributes:
        exhausted: True once a task was rejected. From then on every task that costs something is rejected, so that the
            finished tasks are the first of the list and not the cheap ones.
    """

    def __init__(self, budget: Budget | None, meter: UsageMeter) -> None:
        self.budget = budget
        self.exhausted = False
        self._meter = meter
        self._settled = Cost()
        self._reserved = Cost()
        self._kinds: dict[Hashable, CostEstimate] = {}
        self._lock = threading.Lock()

    def admit(self, kind: Hashable, guess: Callable[[], Cost]) -> Cost | None:
        """Admit a task if its expected cost still fits.

        Args:
            kind: tasks of one kind have similar costs.
            guess: returns the expected cost; used until a task of the kind has had a cost.

        Returns:
            The reserved cost, to be passed to `settle` when the task is finished; None if the task is rejected.
        """
        if self.budget is None:
            return Cost()
        with self._lock:
            expected = self._kinds.setdefault(kind, CostEstimate()).expected(self.budget, guess)
            committed = self._settled.plus(self._reserved).at_least(Cost.of(self._meter.usage, self._meter.unreported))
            fits = self.budget.allows(expected, committed)
            self.exhausted = self.exhausted or not fits
            if not fits or (self.exhausted and not self.budget.allows(expected, Cost(inf, inf, inf))):
                return None
            self._reserved = self._reserved.plus(expected)
            return expected

    def settle(self, kind: Hashable, reserved: Cost, cost: Cost) -> None:
        """Replace the reserved cost of a finished task by its actual cost."""
        if self.budget is not None:
            with self._lock:
                self._reserved = self._reserved.plus(reserved, -1)
                self._settled = self._settled.plus(cost)
                self._kinds.setdefault(kind, CostEstimate()).add(cost)
