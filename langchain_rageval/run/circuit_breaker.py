"""Circuit breaker: ends the retries of all calls to a model whose server cannot be reached."""

from __future__ import annotations

from langchain_rageval.run.retry import is_unreachable

_FAILURES_TO_OPEN = 50


class CircuitBreaker:
    """Counter of consecutive tries that could not connect to the server, for each model of a run."""

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}

    def record(self, model: object, error: Exception | None) -> None:
        """Record the outcome of a try; None for success."""
        failures = self._failures.get(id(model), 0)
        self._failures[id(model)] = failures + 1 if error is not None and is_unreachable(error) else 0

    def is_open(self, model: object) -> bool:
        """Return True after 50 consecutive connection failures: each further call then fails at its first error."""
        return self._failures.get(id(model), 0) >= _FAILURES_TO_OPEN
