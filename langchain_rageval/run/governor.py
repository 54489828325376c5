"""Governor of a run: the ledger of its budget, the circuit breaker of each endpoint, and the concurrency limit.

Everything that is counted over all work of a run is here. Work is admitted before it begins and settled when it ends; a
model call is checked before it is sent and recorded when it ends.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import astuple, dataclass
from functools import reduce
from math import inf
from typing import Protocol

from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import BudgetExceeded, JudgeUnavailable
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.budget import Budget, Cost
from langchain_rageval.run.retry import is_transient, is_unreachable
from langchain_rageval.run.usage import UsageMeter

_FAILED_TRIES = 50
_FAILED_SCORES = 20
_ONE_CALL = Cost(calls=1, tokens=1)  # a call needs at least one token; how many it will need is not known
_FREE = Cost()
_UNBOUNDED = Cost(inf, inf, inf)


@dataclass(frozen=True)
class Outage:
    """Failed scores because of which an endpoint is not called any more.

    Attributes:
        failures: number of failed scores in a row.
        cause: failure of the last one.
    """

    failures: int
    cause: Failure


class Governor(Protocol):
    """Interface of what limits the work of a run.

    An endpoint is named by the object that is called: a judge's model, embeddings, a cross-encoder or a chain.
    """

    @property
    def limiter(self) -> AdaptiveLimiter:
        """Limit of the model calls under way; each call holds one slot."""

    @property
    def budget(self) -> Budget | None:
        """Bounds on the cost; None for no bounds."""

    @property
    def exhausted(self) -> bool:
        """True once a task was rejected or a call refused.

        From then on every task that costs something is rejected, so that the finished tasks are the first of the list
        and not the cheap ones.
        """

    def admit(self, kind: Hashable, guess: Callable[[], Cost]) -> Cost | None:
        """Admit a task if its expected cost still fits the budget.

        Args:
            kind: tasks of one kind have similar costs.
            guess: returns the expected cost; used until a task of the kind has had a cost.

        Returns:
            The reserved cost, to be passed to `settle` when the task is finished; None if the task is rejected.
        """

    def settle(self, kind: Hashable, reserved: Cost, cost: Cost) -> None:
        """Replace the reserved cost of a finished task by its actual cost."""

    def begin_call(self) -> None:
        """Hold room in the budget for a model call; raise BudgetExceeded if there is none, or the tokens are spent."""

    def end_call(self, charge: Callable[[], None]) -> None:
        """Release the room of a model call that has ended.

        Args:
            charge: adds the call to the run's meter. It is counted either as under way or as spent at any time.
        """

    def check_cost(self, cost: Cost, spent: Cost | None = None) -> None:
        """Raise BudgetExceeded if a cost does not fit the budget.

        Args:
            cost: the further cost.
            spent: the cost so far; None for that of the run's meter.
        """

    def check_endpoint(self, endpoint: object) -> None:
        """Note a call to an endpoint; raise JudgeUnavailable if no further calls are sent to it."""

    def record_try(self, endpoint: object, error: Exception | None, *, is_valid: bool = False) -> None:
        """Record the outcome of a call.

        Args:
            endpoint: the endpoint.
            error: error in transit; None if there was a reply.
            is_valid: True if the reply was parsed and is valid.
        """

    def allows_retry(self, endpoint: object) -> bool:
        """Return False if each further call fails at its first error, because too many in a row failed in transit."""

    def record_failed_score(self, endpoints: Iterable[object], failure: Failure) -> bool:
        """Count a failed score against those of its endpoints that were called and gave no valid reply in the run.

        Returns:
            True if an endpoint is not called any more from now on.
        """

    def outage(self, endpoint: object) -> Outage | None:
        """Return why an endpoint is not called any more; None if it is."""


@dataclass
class _Breaker:
    """Circuit breaker of an endpoint: failed tries in a row end the retries, failed scores in a row end the calls.

    After the first reply only failures to connect count as failed tries: a server that has answered once may be
    overloaded for long. After the first valid reply no failed score counts.

    Attributes:
        called: True after the first call.
        answered: True after the first reply.
        valid: True after the first valid reply.
        failed_tries: number of tries in a row that failed in transit.
        failed_scores: number of scores in a row that failed alike.
        kind: type of their failure.
        cause: the last failure; None while calls are sent.
    """

    called: bool = False
    answered: bool = False
    valid: bool = False
    failed_tries: int = 0
    failed_scores: int = 0
    kind: str = ""
    cause: Failure | None = None

    def record_failed_score(self, failure: Failure) -> bool:
        """Count a failed score; return True if it opens the breaker."""
        if not self.called or self.valid or self.cause is not None:  # not called: the strong judge of a cascade
            return False
        self.failed_scores = self.failed_scores + 1 if failure.error == self.kind else 1
        self.kind = failure.error
        if self.failed_scores >= _FAILED_SCORES:
            self.cause = failure
        return self.cause is not None


class _Mean:
    """Running mean of the cost of the tasks of one kind; tasks that cost nothing are ignored.

    An answer without facts is free. If it counted, all later tasks would be admitted as if they were free, too.
    """

    def __init__(self) -> None:
        self.total = Cost()
        self._counts = Cost()

    def add(self, cost: Cost) -> None:
        """Add the cost of a finished task."""
        self.total = self.total.plus(cost)
        self._counts = self._counts.plus(Cost(*map(bool, astuple(cost))))

    def expected(self, budget: Budget, guess: Callable[[], Cost]) -> Cost:
        """Return the mean cost, with guesses for fields in which no task has had a cost, if the budget bounds one."""
        totals, counts = astuple(self.total), astuple(self._counts)
        bounds = zip(astuple(budget), counts, strict=True)
        unknown = any(bound is not None and not count for bound, count in bounds)
        means = zip(totals, counts, astuple(guess() if unknown else _FREE), strict=True)
        return Cost(*(total / count if count else default for total, count, default in means))


class LocalGovernor:
    """Governor of a run in one process. Usable from threads and event loops.

    Args:
        budget: bounds on the cost; None for no bounds.
        meter: the run's meter, which counts what is spent.
        limit: largest number of model calls at a time; None for no limit.

    Attributes:
        budget: as given.
        exhausted: see `Governor`.
        limiter: limit of the model calls under way.
    """

    def __init__(self, budget: Budget | None = None, meter: UsageMeter | None = None, limit: int | None = None) -> None:
        self.budget = budget
        self.exhausted = False
        self.limiter = AdaptiveLimiter(limit)
        self._meter = meter or UsageMeter()
        self._reserved = Cost()
        self._kinds: defaultdict[Hashable, _Mean] = defaultdict(_Mean)
        self._under_way = 0
        self._breakers: defaultdict[int, _Breaker] = defaultdict(_Breaker)
        self._lock = threading.Lock()
        self._call_lock = threading.Lock()  # calls begin while the cost of a task is guessed

    def admit(self, kind: Hashable, guess: Callable[[], Cost]) -> Cost | None:
        """Admit a task if its expected cost still fits the budget; see `Governor`."""
        if self.budget is None:
            return _FREE
        with self._lock:
            expected = self._kinds[kind].expected(self.budget, guess)
            committed = reduce(Cost.plus, (mean.total for mean in self._kinds.values()), self._reserved)
            fits = self.budget.allows(expected, committed.at_least(self._spent))
            self.exhausted = self.exhausted or not fits
            if self.exhausted and not self.budget.allows(expected, _UNBOUNDED):
                return None
            self._reserved = self._reserved.plus(expected)
            return expected

    def settle(self, kind: Hashable, reserved: Cost, cost: Cost) -> None:
        """Replace the reserved cost of a finished task by its actual cost."""
        if self.budget is not None:
            with self._lock:
                self._reserved = self._reserved.plus(reserved, -1)
                self._kinds[kind].add(cost)

    def begin_call(self) -> None:
        """Hold room in the budget for a model call; raise BudgetExceeded if there is none, or the tokens are spent."""
        with self._call_lock:
            if self.budget is not None:
                self.check_cost(_ONE_CALL, self._spent.plus(Cost(calls=self._under_way)))
            self._under_way += 1

    def end_call(self, charge: Callable[[], None]) -> None:
        """Release the room of a model call that has ended; see `Governor`."""
        with self._call_lock:
            charge()
            self._under_way -= 1

    def check_cost(self, cost: Cost, spent: Cost | None = None) -> None:
        """Raise BudgetExceeded if a cost does not fit the budget; see `Governor`."""
        if self.budget is not None and not self.budget.allows(cost, self._spent if spent is None else spent):
            self.exhausted = True
            raise BudgetExceeded(f"the budget of {self.budget} is spent; the score was begun and cannot be finished")

    @property
    def _spent(self) -> Cost:
        return Cost.of(self._meter.usage, self._meter.unreported)

    def check_endpoint(self, endpoint: object) -> None:
        """Note a call to an endpoint; raise JudgeUnavailable if no further calls are sent to it."""
        breaker = self._breakers[id(endpoint)]
        breaker.called = True
        if breaker.cause is not None:
            raise JudgeUnavailable(
                "the judge failed again and again without one valid reply, and is not called any more"
            )

    def record_try(self, endpoint: object, error: Exception | None, *, is_valid: bool = False) -> None:
        """Record the outcome of a call; see `Governor`."""
        breaker = self._breakers[id(endpoint)]
        breaker.answered = breaker.answered or error is None
        breaker.valid = breaker.valid or is_valid
        counts = error is not None and (is_unreachable(error) or (not breaker.answered and is_transient(error)))
        breaker.failed_tries = breaker.failed_tries + 1 if counts else 0

    def allows_retry(self, endpoint: object) -> bool:
        """Return False if each further call fails at its first error; see `Governor`."""
        breaker = self._breakers[id(endpoint)]
        return breaker.cause is None and breaker.failed_tries < _FAILED_TRIES

    def record_failed_score(self, endpoints: Iterable[object], failure: Failure) -> bool:
        """Count a failed score against its endpoints; see `Governor`."""
        keys = dict.fromkeys(map(id, endpoints))
        with self._lock:
            opened = [self._breakers[key].record_failed_score(failure) for key in keys]
        return any(opened)

    def outage(self, endpoint: object) -> Outage | None:
        """Return why an endpoint is not called any more; None if it is."""
        breaker = self._breakers[id(endpoint)]
        return None if breaker.cause is None else Outage(breaker.failed_scores, breaker.cause)
