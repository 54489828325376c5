"""Circuit breaker: ends the retries of all calls to a model that cannot be reached or never answers."""

from __future__ import annotations

from langchain_rageval.errors import JudgeUnavailable
from langchain_rageval.run.retry import is_transient, is_unreachable

_FAILURES_TO_OPEN = 50


class CircuitBreaker:
    """Stops tries to a model after too many consecutive ones failed in transit, counted per model in one run.

    After the first success only failures to connect count: a server that has answered once may be overloaded for long.
    """

    def __init__(self) -> None:
        self._failures: dict[int, int] = {}
        self._answered: set[int] = set()
        self._rejected: set[int] = set()

    def record(self, model: object, error: Exception | None) -> None:
        """Record the outcome of a try; None for success."""
        failures = self._failures.get(id(model), 0)
        if error is None:
            self._answered.add(id(model))
        counts = error is not None and (
            is_unreachable(error) or (id(model) not in self._answered and is_transient(error))
        )
        self._failures[id(model)] = failures + 1 if counts else 0

    def is_open(self, model: object) -> bool:
        """Return True after 50 consecutive failures: each further call then fails at its first error."""
        return id(model) in self._rejected or self._failures.get(id(model), 0) >= _FAILURES_TO_OPEN

    def reject(self, model: object) -> None:
        """Send no further calls to a model."""
        self._rejected.add(id(model))

    def check(self, model: object) -> None:
        """Raise JudgeUnavailable if no further calls are sent to a model."""
        if id(model) in self._rejected:
            raise JudgeUnavailable(
                "the judge failed again and again without one valid reply, and is not called any more"
            )
