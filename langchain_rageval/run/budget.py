"""Budget of a run, the costs that count against it, and the planned costs of a run."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import ConfigError

_Cost = TypeVar("_Cost")


class PlannedCosts(dict[str, _Cost]):
    """Mapping from names, such as those of metrics, to expected costs. Subclasses define `total`, the sum of all."""

    @property
    @abstractmethod
    def total(self) -> Any:
        """Expected cost of the whole plan, as an object with `calls`, `tokens`, `embedded` and `money`."""

    @property
    def calls(self) -> int:
        """Expected number of chat model calls in total."""
        return int(self.total.calls)

    @property
    def tokens(self) -> int:
        """Expected sum of input and output tokens in total."""
        return int(self.total.tokens)

    @property
    def embedded(self) -> int:
        """Number of texts to embed in total."""
        return int(self.total.embedded)

    @property
    def money(self) -> float | None:
        """Price of the expected calls in total; None without prices, or if a model has no price."""
        money: float | None = self.total.money
        return money


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Upper bounds on the cost of a run; None for no bound.

    Args:
        calls: number of chat model calls, including retries. Calls that your own Runnables make internally are not
            counted.
        tokens: number of input and output tokens; estimated as characters / 4 for models that report no tokens.
        embeddings: number of texts sent to be embedded.

    Raises:
        ConfigError: if no bound is set, or a bound is not a whole number of at least 0.
    """

    calls: int | None = None
    tokens: int | None = None
    embeddings: int | None = None

    def __post_init__(self) -> None:
        """Validate the bounds."""
        if all(bound is None for bound in vars(self).values()):
            raise ConfigError(f"a budget must set at least one of {', '.join(vars(self))}")
        for name, bound in vars(self).items():
            if bound is not None and (not isinstance(bound, int) or isinstance(bound, bool) or bound < 0):
                raise ConfigError(f"a budget's {name} must be a whole number of at least 0, got {bound!r}")

    def __str__(self) -> str:
        """Return the bounds as text, such as "100 calls and 5,000 tokens"."""
        return " and ".join(f"{bound:,} {name}" for name, bound in vars(self).items() if bound is not None)

    def allows(self, cost: Cost, after: Cost) -> bool:
        """Return True if a further cost stays within every bound. A cost of 0 always does.

        Args:
            cost: the cost to be added.
            after: the cost spent so far.
        """
        costs = zip((self.calls, self.tokens, self.embeddings), cost, after, strict=True)
        return all(bound is None or not extra or so_far + extra <= bound for bound, extra, so_far in costs)


class Cost(NamedTuple):
    """Calls, tokens and embedded texts that count against a `Budget`, in the order of the fields of `Budget`."""

    calls: float = 0
    tokens: float = 0
    embeddings: float = 0

    @classmethod
    def of(cls, usage: Usage, unreported: int = 0) -> Cost:
        """Return the cost of a usage.

        `unreported` is the estimated number of tokens of calls whose model reports no tokens.
        """
        return cls(usage.calls, (usage.input_tokens or 0) + (usage.output_tokens or 0) + unreported, usage.embedded)

    def plus(self, other: Cost, times: float = 1) -> Cost:
        """Return this cost plus `times` the other cost."""
        return Cost(*(own + times * extra for own, extra in zip(self, other, strict=True)))

    def at_least(self, other: Cost) -> Cost:
        """Return the larger value of two costs, field by field."""
        return Cost(*map(max, self, other))
