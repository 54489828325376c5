"""Meter: adds up what was paid."""

from __future__ import annotations

import threading

from langchain_rageval.schema import Usage

CHARACTERS_PER_TOKEN = 4


def tokens_in(*texts: str) -> int:
    """Tokens of texts where no tokenizer is at hand: characters / 4, which suits English better than Russian."""
    return sum(map(len, texts)) // CHARACTERS_PER_TOKEN


class Meter:
    """Counts calls, tokens, seconds and embedded texts, and passes them on to the meter it belongs to.

    Args:
        parent: charged with the same, so that a run's meter holds the sum over its metrics.

    Attributes:
        abandoned: calls that were left behind in their threads.
        unreported: tokens, as characters / 4, of the calls whose model reports none; they are in no usage.
    """

    def __init__(self, parent: Meter | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds = 0.0
        self._embedded = 0
        self._tokens: dict[str, int] = {}
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
    ) -> None:
        """Charge a call, or texts to embed."""
        with self._lock:
            self._calls += calls
            self._seconds += seconds
            self._embedded += embedded
            self.abandoned += abandoned
            self.unreported += unreported
            for name, count in (("input_tokens", input_tokens), ("output_tokens", output_tokens)):
                if count is not None:
                    self._tokens[name] = self._tokens.get(name, 0) + count
        if self._parent is not None:
            self._parent.add(
                calls=calls,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                seconds=seconds,
                embedded=embedded,
                abandoned=abandoned,
                unreported=unreported,
            )

    @property
    def usage(self) -> Usage:
        """What was paid so far."""
        with self._lock:
            return Usage(calls=self._calls, seconds=self._seconds, embedded=self._embedded, **self._tokens)
