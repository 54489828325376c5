"""Governor of a run: budget, circuit breaker of each endpoint, and concurrency limit.

The governor counts the work of the whole run. A task is admitted before it begins and settled when it ends. A model
call is checked before it is sent and recorded when it ends.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import astuple, dataclass
from functools import reduce
from math import inf
from typing import NamedTuple

from langchain_rageval._internal.redaction import LONGEST_MESSAGE, cut_middle, redact_secrets
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import BudgetExceeded, JudgeUnavailable, message_of
from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter, Slot
from langchain_rageval.run.budget import Budget, Cost
from langchain_rageval.run.retry import headers_of, is_permanent, is_transient, is_unreachable, limits_in, retry_after
from langchain_rageval.run.usage import UsageMeter

_FAILED_TRIES = 50
_FAILED_SCORES = 20
_REFUSALS = 5
_PAUSE = 5.0  # seconds between two tries of an endpoint that is down
_ONE_CALL = Cost(calls=1, tokens=1)  # a call needs at least one token; how many it will need is not known
_FREE = Cost()
_UNBOUNDED = Cost(inf, inf, inf)


class Outage(NamedTuple):
    """Reason why an endpoint is not called any more: failed scores in a row.

    Attributes:
        failures: number of failed scores in a row.
        cause: failure of the last score.
    """

    failures: int
    cause: Failure


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
        refusals: number of tries in a row that ended with a permanent error.
        down_since: when the tries began to fail without a reply; None while there are replies.
        failed_scores: number of scores in a row that failed alike.
        kind: type of their failure.
        cause: the last failure; None while calls are sent.
    """

    called: bool = False
    answered: bool = False
    valid: bool = False
    failed_tries: int = 0
    refusals: int = 0
    down_since: float | None = None
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

    def give_up(self, count: int, error: Exception) -> None:
        """Open the breaker because of an error."""
        message = cut_middle(redact_secrets(message_of(error), None), LONGEST_MESSAGE)
        self.failed_scores, self.cause = count, Failure(error=type(error).__name__, message=message)


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
        self._counts = self._counts.plus(Cost(*map(bool, cost)))

    def expected(self, budget: Budget, guess: Callable[[], Cost]) -> Cost:
        """Return the mean cost, with guesses for fields in which no task has had a cost, if the budget bounds one."""
        counts = self._counts
        unknown = any(bound is not None and not count for bound, count in zip(astuple(budget), counts, strict=True))
        means = zip(self.total, counts, guess() if unknown else _FREE, strict=True)
        return Cost(*(total / count if count else default for total, count, default in means))


@dataclass(frozen=True)
class Lease:
    """Share of one process in the limits of a run that uses several processes.

    Attributes:
        granted: total cost that the process may spend.
        slots: number of model calls that the process may have under way; None for no limit.
        share: share of the endpoint's rate limit that the process may use, from 0 to 1.
        is_answered: True if an endpoint has answered a call of any process.
    """

    granted: Cost
    slots: int | None
    share: float
    is_answered: bool


class Ledger:
    """Divides the budget and the concurrency of a run among several processes, in leases. A Ray actor holds the ledger.

    A lease covers many calls, so that a process sends one message for all of them. A granted amount counts as spent
    until the process reports its actual cost. The calls therefore never exceed the budget; the tokens exceed it only by
    the tokens of calls under way. The granted cost of a process that died still counts as spent.

    Args:
        budget: bounds on the cost of all processes; None for no bounds.
        limit: largest number of model calls at a time, over all processes.
        workers: expected number of processes. If more processes report, they share the limit too.
    """

    def __init__(self, budget: Budget | None, limit: int, workers: int) -> None:
        self._budget, self._limit, self._workers = budget, limit, workers
        self._granted: dict[str, Cost] = {}
        self._spent: dict[str, Cost] = {}
        self._seen: dict[str, float] = {}

    def lease(self, worker: str, spent: Cost, wanted: Cost) -> Lease:
        """Return the lease of a process: the cost that it may spend in all, and its number of concurrent calls.

        If the budget left for all processes is less than `wanted`, the lease grants what is left and raises no error.

        Args:
            worker: name of the process.
            spent: cost that the process has spent so far.
            wanted: cost that the process needs beyond the cost granted so far; `Cost()` (zero) asks for no more.
        """
        now = time.monotonic()
        self._seen[worker], self._spent[worker] = now, spent
        count = max(self._workers, sum(now - seen <= _ACTIVE for seen in self._seen.values()))
        granted = self._granted.get(worker, Cost()).at_least(spent)
        if self._budget is not None:
            others = (self._granted[name].at_least(self._spent[name]) for name in self._granted if name != worker)
            taken = reduce(Cost.plus, others, Cost())
            bounds = zip(astuple(self._budget), taken, granted, wanted, strict=True)
            granted = Cost(*(_grant(*numbers, count) for numbers in bounds))
        self._granted[worker] = granted
        slots = self._limit // count + (list(self._seen).index(worker) < self._limit % count)
        return Lease(granted, max(1, slots), 1 / count, any(cost.tokens for cost in self._spent.values()))


def _grant(bound: float | None, taken: float, granted: float, wanted: float, workers: int) -> float:
    """Return how much a process may spend in all: what it wants and a block more, if so much is left."""
    if bound is None:
        return inf
    left = bound - taken - granted
    block = max(wanted, min(left / (_BLOCKS * workers), _MOST_CALLS * wanted))
    return granted + max(0, min(left, float(int(block))))


_ACTIVE = 30.0  # seconds since a process reported
_BLOCKS = 4  # leases of each process in what is left of a budget
_MOST_CALLS = 64  # times what a process wants at the moment
_RENEWAL = 5.0  # seconds


class Governor:
    """Budget, concurrency and circuit breakers of a run in one process. Usable from threads and event loops.

    Any object can identify an endpoint: the `EndpointCapabilities` of a judge, embeddings, a cross-encoder or a chain.

    Args:
        budget: bounds on the cost; None for no bounds.
        meter: usage meter of the run, which counts the cost spent.
        limit: largest number of model calls at a time; None for no limit.
        patience: seconds to wait for an endpoint that is down; 0 does not wait. Above 0, a few permanent errors in a
            row, such as a wrong key, end the calls to the endpoint; with 0, only failed scores in a row do.

    Attributes:
        budget: the value of the argument.
        exhausted: True once the budget was too small for a task (such as one metric of one sample) or a model call.
            From then on every task with a cost is rejected, also one that is cheap enough. The finished tasks are thus
            the first in order, and not a selection of cheap ones.
        limiter: limits the number of model calls under way.
        share: share of the endpoint's rate limit that this process may use, from 0 to 1.
        is_impatient: True once an endpoint was down for longer than `patience`.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        meter: UsageMeter | None = None,
        limit: int | None = None,
        *,
        patience: float = 0.0,
    ) -> None:
        self.budget = budget
        self.patience, self.share, self.is_impatient = patience, 1.0, False
        self.exhausted = False
        self.limiter = AdaptiveLimiter(limit)
        self._meter = meter or UsageMeter()
        self._reserved = Cost()
        self._kinds: defaultdict[Hashable, _Mean] = defaultdict(_Mean)
        self._under_way = 0
        self._breakers: dict[int, _Breaker] = {}
        self._lock = threading.Lock()
        self._call_lock = threading.Lock()  # calls begin and end while the cost of a task is guessed

    def admit(self, kind: Hashable, guess: Callable[[], Cost]) -> Cost | None:
        """Admit a task if its expected cost fits the remaining budget.

        Args:
            kind: key of tasks with similar costs. Finished tasks of the same kind give the expected cost.
            guess: function that returns the expected cost while no task of the kind has finished.

        Returns:
            The reserved cost, to be passed to `settle` when the task is finished; None if the task is rejected.
        """
        if self.budget is None:
            return _FREE
        with self._lock:
            expected = self._kinds[kind].expected(self.budget, guess)
            committed = reduce(Cost.plus, (mean.total for mean in self._kinds.values()), self._reserved)
            self.exhausted |= not self._fits(expected, committed.at_least(self._spent))
            if self.exhausted and not self.budget.allows(expected, _UNBOUNDED):
                return None
            self._reserved = self._reserved.plus(expected)
            return expected

    def _fits(self, cost: Cost, after: Cost) -> bool:
        """Return True if a further cost stays within the budget."""
        return self.budget is None or self.budget.allows(cost, after)

    def settle(self, kind: Hashable, reserved: Cost, cost: Cost) -> None:
        """Replace the reserved cost of a finished task by its actual cost.

        Args:
            kind: key of tasks with similar costs; the mean actual cost of a kind is the expected cost of its next task.
            reserved: cost that `admit` returned for the task.
            cost: actual cost of the task.
        """
        if self.budget is not None:
            with self._lock:
                self._reserved = self._reserved.plus(reserved, -1)
                self._kinds[kind].add(cost)

    def begin_call(self) -> None:
        """Reserve budget for a model call; raise BudgetExceeded if no call or no token is left."""
        with self._call_lock:
            if self.budget and not self._fits(_ONE_CALL, self._spent.plus(Cost(calls=self._under_way))):
                raise self._exceeded()
            self._under_way += 1

    def end_call(self, charge: Callable[[], None]) -> None:
        """Release the budget that is reserved for a model call, and charge the finished call.

        Args:
            charge: function that adds the call to the run's meter. The call always counts either as under way or as
                spent.
        """
        with self._call_lock:
            charge()
            self._under_way -= 1

    def spend(self, cost: Cost, charge: Callable[[], None]) -> None:
        """Charge a cost; raise BudgetExceeded if it does not fit the budget.

        Args:
            cost: the cost to charge.
            charge: function that adds the cost to the run's meter.
        """
        with self._call_lock:
            self.check_cost(cost)
            charge()

    def check_cost(self, cost: Cost, spent: Cost | None = None) -> None:
        """Raise BudgetExceeded if a cost does not fit the remaining budget.

        Args:
            cost: the cost to be added.
            spent: the cost spent so far; None for the cost in the run's meter.
        """
        if not self._fits(cost, self._spent if spent is None else spent):
            self.exhausted = True
            raise self._exceeded()

    def _exceeded(self) -> BudgetExceeded:
        return BudgetExceeded(f"the budget of {self.budget} is spent; the score was begun and cannot be finished")

    @property
    def _spent(self) -> Cost:
        return Cost.of(self._meter.usage, self._meter.unreported)

    def _breaker(self, endpoint: object) -> _Breaker:
        return self._breakers.get(id(endpoint)) or self._breakers.setdefault(id(endpoint), _Breaker())

    def begin_scores(self) -> None:
        """Begin the count of failed scores: 20 in a row with the same type of error end the calls to an endpoint.

        After a valid reply of an endpoint, no failed score counts against the endpoint. Replies before this method is
        called do not matter: they answered test questions, which are sent to the judges before the first sample.
        """
        for breaker in self._breakers.values():
            breaker.called = breaker.valid = False

    def check_endpoint(self, endpoint: object) -> None:
        """Raise JudgeUnavailable if the calls to an endpoint have ended after repeated failures.

        The endpoint is also marked as called: failed scores count only against endpoints that were called.
        """
        breaker = self._breaker(endpoint)
        breaker.called = True
        if breaker.cause is not None:
            raise JudgeUnavailable("the judge failed repeatedly without a valid reply, so it is not called any more")

    def record_rejection(self, slot: Slot, error: Exception, longest: float = inf) -> None:
        """Record that an endpoint rejected a call because of too many calls, and apply the rate limits in its headers.

        Args:
            slot: slot of the call.
            error: error that reports the rejection.
            longest: maximum number of seconds to wait, whatever the endpoint requests.
        """
        requests, tokens = limits_in(headers_of(error))
        usage = self._meter.usage
        if tokens is not None and usage.calls:
            by_tokens = tokens * usage.calls / max(1, Cost.of(usage, self._meter.unreported).tokens)
            requests = by_tokens if requests is None else min(requests, by_tokens)
        if requests is not None:
            self.limiter.state_pace(requests / 60 * self.share)
        asked = retry_after(error)
        self.limiter.record_rejection(slot, None if asked is None else min(asked, longest))

    def record_try(self, endpoint: object, error: Exception | None, *, is_valid: bool = False) -> None:
        """Record the outcome of one try of a call.

        Args:
            endpoint: the endpoint that was called.
            error: transport error; None if there was a reply.
            is_valid: True if the reply was parsed and is valid.
        """
        with self._call_lock:
            breaker = self._breaker(endpoint)
            breaker.answered = breaker.answered or error is None
            breaker.valid = breaker.valid or is_valid
            counts = error is not None and (is_unreachable(error) or (not breaker.answered and is_transient(error)))
            breaker.failed_tries = breaker.failed_tries + 1 if counts else 0
            breaker.down_since = None if error is None else breaker.down_since or time.monotonic()
            breaker.refusals = breaker.refusals + 1 if error is not None and is_permanent(error) else 0
            if error is not None and self.patience and breaker.refusals >= _REFUSALS and breaker.cause is None:
                breaker.give_up(breaker.refusals, error)

    def allows_retry(self, endpoint: object) -> bool:
        """Return True if failed calls to an endpoint may be retried; False after too many failures in a row."""
        breaker = self._breaker(endpoint)
        return breaker.cause is None and breaker.failed_tries < _FAILED_TRIES

    def pause(self, endpoint: object, error: Exception) -> float | None:
        """Return the seconds to wait before the next call to an endpoint that is down; None to give up.

        Args:
            endpoint: the endpoint that is down.
            error: error of the last try.
        """
        if not self.patience or not is_transient(error):
            return None
        with self._call_lock:
            breaker = self._breaker(endpoint)
            down = time.monotonic() - (breaker.down_since or time.monotonic())
            if breaker.cause is None and down < self.patience:
                return min(_PAUSE, self.patience / 10)
            if breaker.cause is None:
                self.is_impatient = True
                breaker.give_up(breaker.failed_tries, error)
        return None

    def record_failed_score(self, endpoints: Iterable[object], failure: Failure) -> bool:
        """Count a failed score for each of its endpoints that was called in the run and gave no valid reply.

        Returns:
            True if the calls to one of the endpoints end with this failure, the 20th in a row with the same type of
            error. Each further call to that endpoint then raises JudgeUnavailable. False if calls continue, or had
            ended before.
        """
        breakers = {id(endpoint): self._breaker(endpoint) for endpoint in endpoints}
        with self._call_lock:
            opened = [breaker.record_failed_score(failure) for breaker in breakers.values()]
        return any(opened)

    @property
    def is_answered(self) -> bool:
        """True if an endpoint has answered a call in any process of the run, that is, if tokens were spent."""
        return self._spent.tokens > 0

    def outage(self, endpoint: object) -> Outage | None:
        """Return the reason why an endpoint is not called any more; None if calls continue."""
        breaker = self._breaker(endpoint)
        return None if breaker.cause is None else Outage(breaker.failed_scores, breaker.cause)


class LeasingGovernor(Governor):
    """Governor of one process of a run with several: it admits model calls within the shares that a `Ledger` assigns.

    Args:
        lease: function that returns the lease of this process (its share of the budget and of the calls under way). The
            arguments are the cost spent so far and the cost needed beyond the granted cost, as for `Ledger.lease`.
        budget: bounds on the cost of all processes.
        meter: usage meter of this process.
        limit: largest number of model calls at a time, over all processes.
        patience: seconds to wait for an endpoint that is down; 0 does not wait. See `Governor`.
    """

    def __init__(
        self,
        lease: Callable[[Cost, Cost], Lease],
        budget: Budget | None,
        meter: UsageMeter,
        limit: int,
        *,
        patience: float,
    ) -> None:
        super().__init__(budget, meter, limit, patience=patience)
        self._lease = lease
        self._renewal = min(_RENEWAL, patience / 4 or _RENEWAL)  # all know of the others' replies before they give up
        self._lease_lock = threading.Lock()
        self._renew(Cost())

    def begin_call(self) -> None:
        """Reserve budget for a model call; raise BudgetExceeded if no call or no token is left.

        The lease (share of this process in the budget of the run) is renewed first if it is older than 5 seconds, or
        than a quarter of a `patience` between 0 and 20 seconds. The lease is also renewed if it is used up.
        """
        if time.monotonic() - self._renewed > self._renewal:
            self._renew(Cost())
        super().begin_call()

    @property
    def is_answered(self) -> bool:
        """True if an endpoint has answered a call in any process of the run."""
        return self._renew(Cost()).is_answered

    def _fits(self, cost: Cost, after: Cost) -> bool:
        """Return True if a further cost stays within the lease, or within a larger one."""
        if self.budget is None or self._is_granted(cost, after):
            return True
        self._renew(after.plus(cost).plus(self._granted, -1).at_least(Cost()))
        return self._is_granted(cost, after)

    def _is_granted(self, cost: Cost, after: Cost) -> bool:
        costs = zip(cost, after, self._granted, strict=True)
        return all(not extra or so_far + extra <= granted for extra, so_far, granted in costs)

    def _renew(self, wanted: Cost) -> Lease:
        with self._lease_lock:
            lease, self._renewed = self._lease(self._spent, wanted), time.monotonic()
            self._granted, self.share = lease.granted, lease.share
            self.limiter.set_limit(lease.slots)
            return lease
