"""Usage: calls, tokens, seconds, embedded texts and money, with prices and short names of models."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from langchain_core.runnables import RunnableLambda, RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import ConfigError, without_keys

_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id")


def model_label(model: Any) -> str:
    """Return the class and the name of a model, embeddings or cross-encoder, such as "ChatOpenAI gpt-5-mini".

    The label of a binding is that of the bound model. The label of fallbacks or of a sequence lists the labels of all
    its models. The label of a text is the text, and without a model it is "the model".
    """
    if isinstance(model, RunnableBindingBase):
        return model_label(model.bound)
    if isinstance(model, RunnableWithFallbacks):
        return " or ".join(dict.fromkeys(map(model_label, model.runnables)))
    if isinstance(model, RunnableSequence):
        return " | ".join(map(model_label, model.steps))
    if isinstance(model, RunnableLambda):
        return model.get_name()
    if model is None or isinstance(model, str):
        return model or "the model"
    return f"{type(model).__name__} {without_keys(next(iter(_own_names(model)), ''))}".strip()


Price = tuple[float, float] | tuple[float, float, float]
"""Price of a million input tokens and of a million output tokens, and optionally of a million input tokens that the
provider had in its cache. In any currency."""


_EXPECTED = (
    "price must map names of models to (per million input tokens, per million output tokens), with a third number for "
    "cached input tokens if it differs, as in price={'gpt-4o-mini': (0.15, 0.6, 0.075)}"
)


@dataclass(frozen=True)
class PriceList:
    """Prices by model name; the empty name "" holds the price of every other model."""

    prices: Mapping[str, Price]

    @classmethod
    def of(cls, price: Any) -> PriceList | None:
        """Build a price list from the value of the option `price`; return None for None.

        Args:
            price: a mapping of model names to prices, or one price for all models. A price is a tuple such as
                `(0.15, 0.6)`: per million input tokens and per million output tokens, as in `CallOptions`.

        Raises:
            ConfigError: if the value has another type, or a number is negative or not finite.
        """
        if price is None:
            return None
        prices = price if isinstance(price, Mapping) else {"": price}
        for name, one in prices.items():
            is_price = isinstance(one, list | tuple) and len(one) in (2, 3) and all(map(is_amount, one))
            if not isinstance(name, str) or not is_price:
                raise ConfigError(f"{_EXPECTED}; got {name}: {one!r}" if name else f"{_EXPECTED}; got {one!r}")
        return cls({name: tuple(one) for name, one in prices.items()})

    def cost(self, names: Iterable[str], tokens: Mapping[str, Any]) -> float | None:
        """Return the money that a call costs; None if its model has no price or its tokens are unknown.

        Args:
            names: names of the model; the first name with a price is used.
            tokens: `usage_metadata` of the model's reply.
        """
        price = next((self.prices[name] for name in (*names, "") if name in self.prices), None)
        if price is None or not tokens:
            return None
        read, written = tokens.get("input_tokens") or 0, tokens.get("output_tokens") or 0
        details = tokens.get("input_token_details")
        cached = min(read, (details.get("cache_read") or 0) if isinstance(details, Mapping) else 0)
        of_cached = price[2] if len(price) > 2 else price[0]
        return ((read - cached) * price[0] + cached * of_cached + written * price[1]) / 1_000_000

    def problem(self, names: Sequence[str]) -> str:
        """Return why the method `cost` returned None: the model has no price, or its reply reports no tokens.

        `names` are the names of the model, as for `cost`; the returned text begins with the first name.
        """
        name = names[0] if names else "a model"
        priced = any(known in self.prices for known in (*names, ""))
        reason = "reports no tokens" if priced else f"has no price (there are prices of {', '.join(self.prices)})"
        return f"{name} {reason}"


def names_of_model(model: Any, reply: Any = None) -> list[str]:
    """Return the names to look up the price of a model: the name in the reply, the configured name, and the class.

    Args:
        model: a chat model, a Runnable around one or several models, or a name; None if it is unknown.
        reply: message of the model; its `response_metadata` names the model that answered.
    """
    metadata = getattr(reply, "response_metadata", None) or {}
    stated = [metadata[key] for key in ("model_name", "model") if isinstance(metadata.get(key), str)]
    return list(dict.fromkeys([*stated, *_configured(model)]))


def format_money(money: float | None) -> str:
    """Return an amount of money as text; "–" if the amount is unknown."""
    if money is None:
        return "–"
    if 0 < money < 0.0001:
        return "< 0.0001"
    return f"{money:,.2f}" if money >= 10 else f"{money:.4f}"


def _configured(model: Any) -> list[str]:
    if model is None or isinstance(model, str):
        return [model] if model else []
    if isinstance(model, RunnableBindingBase):
        return _configured(model.bound)
    if isinstance(model, RunnableWithFallbacks | RunnableSequence):
        parts = model.runnables if isinstance(model, RunnableWithFallbacks) else model.steps
        return [name for part in parts for name in _configured(part)]
    return [*_own_names(model), type(model).__name__]


def _own_names(model: Any) -> list[str]:
    return [name for field in _NAMES if isinstance(name := getattr(model, field, None), str) and name]


def is_amount(number: Any) -> bool:
    """Return True for a number that can be a price: finite and at least 0."""
    return isinstance(number, int | float) and not isinstance(number, bool) and isfinite(number) and number >= 0


CHARACTERS_PER_TOKEN = 4


def tokens_in(*texts: str) -> int:
    """Estimate the number of tokens of texts as characters / 4, which fits English better than Russian."""
    return sum(map(len, texts)) // CHARACTERS_PER_TOKEN


CACHED = "cached reply"
"""Event of a meter: a reply came from the cache of LangChain."""


class UsageMeter:
    """Counts calls, tokens, seconds, embedded texts, money and events. Usable from threads.

    Args:
        parent: meter that counts everything that this meter counts, so that a run's meter holds the sum over its
            metrics.
        prices: prices of the models; by default those of the parent.

    Attributes:
        prices: prices of the models; None if the meter counts no money.
        unpriced: reasons why the cost of some calls is unknown, each reason once.
    """

    def __init__(self, parent: UsageMeter | None = None, prices: PriceList | None = None) -> None:
        self._parents: tuple[UsageMeter, ...] = () if parent is None else (parent, *parent._parents)
        self.prices: PriceList | None = prices or (None if parent is None else parent.prices)
        self.unpriced: dict[str, None] = {}
        self._lock = threading.Lock()
        self._counts: dict[str, Any] = {}
        self._events: dict[Hashable, int] = {}

    def add(self, *, unpriced: Collection[str] = (), **counts: float | None) -> None:
        """Add numbers to the counts of this meter and of its parents.

        Args:
            unpriced: reasons why the cost of some calls is unknown; empty if it is known.
            counts: values for fields of `Usage`, for `abandoned` (number of calls that exceeded the timeout) and for
                `unreported` (estimated tokens of calls that report none); None for an unknown value.
        """
        for meter in (self, *self._parents):
            with meter._lock:
                if unpriced:
                    meter.unpriced |= dict.fromkeys(unpriced)
                for name, count in counts.items():
                    if count is not None:
                        meter._counts[name] = meter._counts.get(name, 0) + count

    def count(self, event: Hashable, times: int = 1) -> None:
        """Count an event in this meter and in its parents."""
        for meter in (self, *self._parents):
            with meter._lock:
                meter._events[event] = meter._events.get(event, 0) + times

    def has_counted(self, event: Hashable) -> bool:
        """Return True if an event occurred."""
        return event in self._events

    def add_all_of(self, other: UsageMeter) -> None:
        """Add the counts of another meter to this meter."""
        self.add(unpriced=other.unpriced, **other._counts)
        for event, times in other.events.items():
            self.count(event, times)

    @property
    def abandoned(self) -> int:
        """Number of calls that exceeded the timeout and were abandoned in their threads."""
        return int(self._counts.get("abandoned", 0))

    @property
    def unreported(self) -> int:
        """Estimated tokens (characters / 4) of calls whose model reports no tokens; not included in `usage`."""
        return int(self._counts.get("unreported", 0))

    @property
    def events(self) -> Counter[Hashable]:
        """Copy of the number of times that each event occurred."""
        with self._lock:
            return Counter(self._events)

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds, embedded texts and money so far; tokens are None if no reply reported them."""
        with self._lock:
            return Usage(
                calls=self._counts.get("calls", 0),
                input_tokens=self._counts.get("input_tokens"),
                output_tokens=self._counts.get("output_tokens"),
                seconds=float(self._counts.get("seconds", 0)),
                embedded=self._counts.get("embedded", 0),
                money=None if self.prices is None or self.unpriced else float(self._counts.get("money", 0)),
            )
