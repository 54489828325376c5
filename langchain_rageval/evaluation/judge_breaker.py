"""Judge breaker: ends the calls to a judge that has failed in the same way for many scores and never answered."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from langchain_rageval.data.schema import Failure
from langchain_rageval.judge.endpoint import Endpoint
from langchain_rageval.judge.judge import Judge

_STOPPED = "The run was stopped: "
_JUDGE_STOPPED = "A judge is not called any more: "
STOPPED = (_STOPPED, _JUDGE_STOPPED)
"""Beginnings of the note in the report of a run in which a breaker has opened: for all metrics, or for some."""

_FAILURES_TO_OPEN = 20


@dataclass
class _State:
    """Replies and errors of an endpoint in this run.

    Attributes:
        requests_before: number of requests to the endpoint before the run.
        replies_before: number of valid replies of the endpoint before the run.
        kind: type of the last failure.
        failures: number of failed scores in a row with a failure of this type.
        cause: the failure with which the breaker opened; None while it is closed.
    """

    requests_before: int
    replies_before: int
    kind: str = ""
    failures: int = 0
    cause: Failure | None = None


@dataclass
class JudgeBreaker:
    """Counts, per endpoint, the scores in a row that failed in the same way, until its first valid reply in the run."""

    _states: dict[int, _State] = field(default_factory=dict)
    _names: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def watch(self, judges: Iterable[Judge]) -> list[Endpoint]:
        """Return the endpoints of judges, and note how many valid replies they have given before."""
        members = {id(member._endpoint): member for judge in judges for member in judge.asked}
        with self._lock:
            for key, member in members.items():
                if key not in self._states:
                    known = member._endpoint.capabilities
                    self._states[key] = _State(known.requests, known.valid_replies)
                    self._names[key] = member.identity
        return [member._endpoint for member in members.values()]

    def record(self, endpoints: Iterable[Endpoint], failure: Failure) -> bool:
        """Count a failed score against its endpoints that were asked and gave no valid reply.

        Returns:
            True if it opened the breaker of one.
        """
        opened = False
        with self._lock:
            for endpoint in endpoints:
                state = self._states[id(endpoint)]
                known = endpoint.capabilities
                if known.requests == state.requests_before:  # such as the strong judge of a cascade
                    continue
                if known.valid_replies > state.replies_before or state.cause is not None:
                    continue
                state.failures = state.failures + 1 if failure.error == state.kind else 1
                state.kind = failure.error
                if state.failures >= _FAILURES_TO_OPEN:
                    state.cause, opened = failure, True
        return opened

    def is_open(self, endpoints: Iterable[Endpoint]) -> bool:
        """Return True if no further calls are made to one of these endpoints."""
        return any(self._states[id(endpoint)].cause is not None for endpoint in endpoints)

    def notes(self, metrics: Sequence[Iterable[Endpoint]]) -> list[str]:
        """Return a sentence for each judge that is no longer called, with the cause.

        Args:
            metrics: the endpoints of each metric of the run.
        """
        beginning = _STOPPED if all(map(self.is_open, metrics)) else _JUDGE_STOPPED
        return [
            f"{beginning}{self._names[key]} failed {state.failures} times in a row without a valid reply; "
            f"last failure: {state.cause.error}: {state.cause.message}"
            for key, state in list(self._states.items())
            if state.cause is not None
        ]
