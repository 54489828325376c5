"""Prices of models, and the money that their calls cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from langchain_core.runnables import RunnableSequence, RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval.errors import ConfigError

Price = tuple[float, float] | tuple[float, float, float]
"""Price of a million input tokens and of a million output tokens, and optionally of a million input tokens that the
provider had in its cache. In any currency."""

_NAMES = ("model_name", "model", "model_id", "deployment_name", "azure_deployment", "model_path", "repo_id")
_EXPECTED = (
    "price must map names of models to (per million input tokens, per million output tokens), with a third number for "
    "cached input tokens if it differs, as in price={'gpt-4o-mini': (0.15, 0.6, 0.075)}"
)


@dataclass(frozen=True)
class PriceList:
    """Prices by name of the model; "" is the price of every other model."""

    prices: Mapping[str, Price]

    @classmethod
    def of(cls, price: Any) -> PriceList | None:
        """Return the price list for the option `price`, or None for None.

        Args:
            price: a mapping of names of models to prices, or one price for all models.

        Raises:
            ConfigError: if it is neither, or a number is negative or not finite.
        """
        if price is None:
            return None
        prices = price if isinstance(price, Mapping) else {"": price}
        for name, one in prices.items():
            if not isinstance(name, str) or not _is_price(one):
                raise ConfigError(f"{_EXPECTED}; got {name}: {one!r}" if name else f"{_EXPECTED}; got {one!r}")
        return cls({name: tuple(one) for name, one in prices.items()})

    def cost(self, names: Iterable[str], tokens: Mapping[str, Any]) -> float | None:
        """Return the price of a call, or None if no name of its model has a price or its tokens are unknown.

        Args:
            names: names of the model; the first with a price decides.
            tokens: `usage_metadata` of the reply.
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
        """Return why the money of a call is unknown."""
        name = names[0] if names else "a model"
        priced = any(known in self.prices for known in (*names, ""))
        reason = "reports no tokens" if priced else f"has no price (there are prices of {', '.join(self.prices)})"
        return f"{name} {reason}"


def names_of_model(model: Any, reply: Any = None) -> list[str]:
    """Return the names under which a model may have a price: as its reply states it, as configured, and its class.

    Args:
        model: a chat model, a Runnable around one or several, or a name; None if it is unknown.
        reply: its message, whose `response_metadata` names the model that answered.
    """
    metadata = getattr(reply, "response_metadata", None) or {}
    stated = [metadata[key] for key in ("model_name", "model") if isinstance(metadata.get(key), str)]
    return list(dict.fromkeys([*stated, *_configured(model)]))


def format_money(money: float | None) -> str:
    """Return an amount of money as text, "–" if it is unknown."""
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
    if isinstance(model, RunnableWithFallbacks):
        return [name for inner in model.runnables for name in _configured(inner)]
    if isinstance(model, RunnableSequence):
        return [name for inner in model.steps for name in _configured(inner)]
    names = [name for field in _NAMES if isinstance(name := getattr(model, field, None), str) and name]
    return [*names, type(model).__name__]


def _is_price(price: Any) -> bool:
    if not isinstance(price, list | tuple) or len(price) not in (2, 3):
        return False
    numbers = [n for n in price if isinstance(n, int | float) and not isinstance(n, bool) and isfinite(n) and n >= 0]
    return len(numbers) == len(price)
