"""UsageMeter: adds up what was paid."""

from __future__ import annotations

import threading

from langchain_rageval.data.schema import Usage

CHARACTERS_PER_TOKEN = 4


def tokens_in(*texts: str) -> int:
    """Tokens of texts where no tokenizer is at hand: characters / 4, which suits English better than Russian."""
    return sum(map(len, texts)) // CHARACTERS_PER_TOKEN


class UsageMeter:
    """Counts calls, tokens, seconds and embedded texts, and passes them on to the meter it belongs to.

    Args:
        parent: charged with the same, so that a run's meter holds the sum over its metrics.

    Attributes:
        abandoned: calls that were left behind in their threads.
        unreported: tokens, as characters / 4, of the calls whose model reports none; they are in no usage.
    """

    def __init__(self, parent: UsageMeter | None = None) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._calls = 0
        self._seconds = 0.0
        self._embedded = 0
        self._input_tokens: int | None = None
        self._output_tokens: int | None = None
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
        meter: UsageMeter | None = self
        while meter is not None:
            with meter._lock:
                meter._calls += calls
                meter._seconds += seconds
                meter._embedded += embedded
                meter.abandoned += abandoned
                meter.unreported += unreported
                if input_tokens is not None:
                    meter._input_tokens = (meter._input_tokens or 0) + input_tokens
                if output_tokens is not None:
                    meter._output_tokens = (meter._output_tokens or 0) + output_tokens
            meter = meter._parent

    @property
    def usage(self) -> Usage:
        """What was paid so far."""
        with self._lock:
            return Usage(
                calls=self._calls,
                input_tokens=self._input_tokens,
                output_tokens=self._output_tokens,
                seconds=self._seconds,
                embedded=self._embedded,
            )
