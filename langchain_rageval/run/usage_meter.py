"""Usage meter: counts model calls, tokens, seconds, embedded texts, money and events."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Hashable

from langchain_rageval.data.schema import Usage
from langchain_rageval.run.prices import PriceList

CHARACTERS_PER_TOKEN = 4


def tokens_in(*texts: str) -> int:
    """Estimate the number of tokens of texts as characters / 4, which fits English better than Russian."""
    return sum(map(len, texts)) // CHARACTERS_PER_TOKEN


class UsageMeter:
    """Counts calls, tokens, seconds, embedded texts, money and events. Usable from threads.

    Args:
        parent: meter that is charged with the same, so that a run's meter holds the sum over its metrics.
        prices: prices of the models; by default those of the parent.

    Attributes:
        prices: prices of the models; None if money is not counted.
        unpriced: why the money of some calls is unknown, each reason once.
        abandoned: number of calls that exceeded the timeout and were abandoned in their threads.
        unreported: estimated tokens (characters / 4) of calls whose model reports none; not part of `usage`.
    """

    def __init__(self, parent: UsageMeter | None = None, prices: PriceList | None = None) -> None:
        self._parent = parent
        self.prices: PriceList | None = prices or (None if parent is None else parent.prices)
        self.unpriced: dict[str, None] = {}
        self._money = 0.0
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds = 0.0
        self._embedded = 0
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
        self._events: Counter[Hashable] = Counter()
        self.abandoned = 0
        self.unreported = 0

    def add(
        self,
        *,
        calls: int = 0,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        seconds: float = 0.0,
        embedded: int = 0,
        abandoned: int = 0,
        unreported: int = 0,
        money: float = 0.0,
        unpriced: str = "",
    ) -> None:
        """Add calls, tokens, seconds, texts or money to the counts of this meter and its parents."""
        meter: UsageMeter | None = self
        while meter is not None:
            with meter._lock:
                meter._calls += calls
                meter._seconds += seconds
                meter._embedded += embedded
                meter.abandoned += abandoned
                meter.unreported += unreported
                meter._money += money
                if unpriced:
                    meter.unpriced[unpriced] = None
                if input_tokens is not None:
                    meter._input_tokens = (meter._input_tokens or 0) + input_tokens
                if output_tokens is not None:
                    meter._output_tokens = (meter._output_tokens or 0) + output_tokens
            meter = meter._parent

    def count(self, event: Hashable, times: int = 1) -> None:
        """Count an event in this meter and its parents."""
        meter: UsageMeter | None = self
        while meter is not None:
            with meter._lock:
                meter._events[event] += times
            meter = meter._parent

    @property
    def events(self) -> Counter[Hashable]:
        """Number of times that each event occurred, a copy."""
        with self._lock:
            return Counter(self._events)

    def add_all_of(self, other: UsageMeter) -> None:
        """Add the counts of another meter."""
        usage = other.usage
        self.add(
            calls=usage.calls,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            seconds=usage.seconds,
            embedded=usage.embedded,
            abandoned=other.abandoned,
            unreported=other.unreported,
            money=other._money,
        )
        for problem in other.unpriced:
            self.add(unpriced=problem)
        for event, times in other.events.items():
            self.count(event, times)

    @property
    def usage(self) -> Usage:
        """Calls, tokens, seconds, embedded texts and money counted so far."""
        with self._lock:
            return Usage(
                calls=self._calls,
                input_tokens=self._input_tokens,
                output_tokens=self._output_tokens,
                seconds=self._seconds,
                embedded=self._embedded,
                money=None if self.prices is None or self.unpriced else self._money,
            )
