"""Admission of tasks by a budget, room for model calls, and the circuit breaker of an endpoint."""

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import httpx
import openai
import pytest
from helpers.each import each, error_of
from helpers.waiting import PATIENCE
from hypothesis import given
from hypothesis import strategies as st

from langchain_rageval import Budget, BudgetExceeded, ConfigError
from langchain_rageval.data.schema import Failure, Usage
from langchain_rageval.errors import JudgeUnavailable
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.governor import Governor, Lease, LeasingGovernor, Ledger
from langchain_rageval.run.usage import UsageMeter

SPENT = "the budget of {} is spent; the score was begun and cannot be finished"
ENDPOINT, OTHER = object(), object()


@pytest.fixture
def clock(monkeypatch):
    """Time of the governor, in seconds, which a test sets."""
    now = SimpleNamespace(seconds=50.0)
    monkeypatch.setattr("langchain_rageval.run.governor.time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


@each(
    ("bounds", "message"),
    [
        ({}, "a budget must set at least one of calls, tokens, embeddings"),
        ({"calls": -1}, "a budget's calls must be a whole number of at least 0, got -1"),
        ({"tokens": 1.5}, "a budget's tokens must be a whole number of at least 0, got 1.5"),
        ({"embeddings": True}, "a budget's embeddings must be a whole number of at least 0, got True"),
    ],
)
def test_a_budget_without_valid_bounds_is_rejected(bounds, message):
    assert str(error_of(ConfigError, Budget, **bounds)) == message
    assert str(Budget(calls=1000, tokens=5)) == "1,000 calls and 5 tokens"


def nothing():
    return Cost()


def begins(governor):
    """Begin a call; return whether the budget has room for it."""
    try:
        governor.begin_call()
    except BudgetExceeded:
        return False
    return True


def test_the_mean_cost_of_the_kind_replaces_the_guess():
    governor = Governor(Budget(calls=10))
    for cost in (Cost(1), Cost(3)):
        reserved = governor.admit("m", lambda: Cost(5))
        governor.settle("m", reserved, cost)
    assert governor.admit("m", nothing) == Cost(2)
    assert governor.admit("other", lambda: Cost(5)) is None
    unbounded = Governor()
    assert all(unbounded.admit("m", lambda: Cost(10**9)) for _ in range(3))
    assert (governor.exhausted, unbounded.exhausted) == (True, False)


def test_after_the_first_rejection_only_free_tasks_are_admitted():
    governor = Governor(Budget(calls=4))
    assert governor.admit("dear", lambda: Cost(9)) is None
    assert governor.admit("cheap", lambda: Cost(1)) is None
    assert governor.admit("free", lambda: Cost(0, 100, 100)) == Cost(0, 100, 100)


def test_the_meter_counts_before_a_task_is_settled():
    """Calls of a work under way, above what was reserved for it."""
    meter = UsageMeter()
    governor = Governor(Budget(calls=10, tokens=100), meter)
    assert governor.admit("m", lambda: Cost(1))
    meter.add(calls=1, unreported=80)
    assert governor.admit("m", lambda: Cost(1, 20))
    meter.add(calls=1, input_tokens=1)
    assert governor.admit("n", lambda: Cost(1, 20)) is None


def test_the_guess_is_used_until_a_bounded_cost_is_known():
    guesses = []

    def guess():
        guesses.append(1)
        return Cost(1, 7, 2)

    governor = Governor(Budget(calls=100, embeddings=100))
    for cost, expected in ((Cost(), Cost(1, 7, 2)), (Cost(3), Cost(1, 7, 2)), (Cost(3, 0, 4), Cost(3, 7, 2))):
        assert governor.admit("m", guess) == expected
        governor.settle("m", expected, cost)
    assert len(guesses) == 3
    governor.settle("m", Cost(), Cost())  # a free task does not lower the mean
    assert governor.admit("m", guess) == Cost(3, 0, 4)  # nobody asked for tokens
    assert len(guesses) == 3


def test_a_refused_call_says_the_budget_and_room_that_calls_hold_is_no_reason_to_reject_tasks():
    governor = Governor(Budget(calls=3))
    for _ in range(3):
        governor.begin_call()
    assert str(error_of(BudgetExceeded, governor.begin_call)) == SPENT.format("3 calls")
    assert governor.admit("m", lambda: Cost(2)) is not None


@given(st.integers(0, 6), st.lists(st.sampled_from(["begin", "end", "end from the cache"])))
def test_a_call_is_refused_exactly_if_spent_calls_and_those_under_way_reach_the_bound(bound, events):
    meter = UsageMeter()
    governor, spent, under_way = Governor(Budget(calls=bound), meter), 0, 0
    for event in events:
        if event == "begin":
            has_begun = begins(governor)
            assert has_begun == (spent + under_way < bound)
            under_way += has_begun
        elif under_way:
            charged = event == "end"
            governor.end_call(lambda charged=charged: meter.add(calls=int(charged)))
            spent, under_way = spent + charged, under_way - 1


THREADS, TURNS = 8, 20


def hammer(function):
    """Call a function in eight threads, twenty times in each, and return the sum of what it returned."""
    start = threading.Barrier(THREADS)

    def work():
        start.wait(PATIENCE)
        return sum(function() for _ in range(TURNS))

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(job.result() for job in [pool.submit(work) for _ in range(THREADS)])


class YieldingMeter(UsageMeter):
    """Lets other threads run between reading and use of the usage, and before it is charged."""

    @property
    def usage(self):
        usage = super().usage
        time.sleep(1e-4)
        return usage

    def add(self, **cost):
        time.sleep(1e-5)
        super().add(**cost)


class YieldingFailure(Failure):
    """Lets other threads run on each access to the type of the error."""

    def __getattribute__(self, name):
        if name == "error":
            time.sleep(1e-5)
        return super().__getattribute__(name)


def test_a_call_whose_charging_is_under_way_is_counted_once():
    meter, begins = UsageMeter(), threading.Event()
    governor = Governor(Budget(calls=2), meter)
    governor.begin_call()

    def begin_another():
        begins.set()
        governor.begin_call()

    def charge():
        meter.add(calls=1)
        another.append(pool.submit(begin_another))
        assert begins.wait(PATIENCE)
        time.sleep(1e-3)  # the other call looks for room now, or after the charging

    another = []
    with ThreadPoolExecutor(1) as pool:
        governor.end_call(charge)
        another[0].result(PATIENCE)


def test_calls_and_texts_of_many_threads_reach_the_bound_and_do_not_exceed_it():
    meter = YieldingMeter()
    governor = Governor(Budget(calls=100, embeddings=300), meter)

    def embed():
        try:
            governor.spend(Cost(embeddings=3), lambda: meter.add(embedded=3))
        except BudgetExceeded:
            return 0
        return 3

    assert (hammer(lambda: spend(governor, meter, 1)), meter.usage.calls) == (100, 100)
    assert (hammer(embed), meter.usage.embedded) == (300, 300)


def test_failures_of_many_threads_are_each_counted_once():
    governor, failure = Governor(), YieldingFailure(step="verify", error="Rejected", message="no")
    governor.check_endpoint(ENDPOINT)
    assert hammer(lambda: governor.record_failed_score([ENDPOINT], failure)) == 1
    assert governor.outage(ENDPOINT) == (20, failure)


@each(
    ("budget", "spent", "fits"),
    [
        (Budget(tokens=5), {"input_tokens": 4}, True),
        (Budget(tokens=5), {"input_tokens": 4, "unreported": 1}, False),
        (Budget(calls=1), {"calls": 1}, False),
        (Budget(embeddings=1), {"embedded": 9, "calls": 9}, True),  # a call embeds nothing
    ],
)
def test_a_call_is_refused_once_calls_or_tokens_are_spent(budget, spent, fits):
    meter = UsageMeter()
    governor = Governor(budget, meter)
    meter.add(**spent)
    assert begins(governor) == fits
    assert (governor.admit("m", lambda: Cost(1, 1)) is not None) == fits


def test_a_refused_call_ends_the_admission_of_tasks():
    governor = Governor(Budget(calls=4, embeddings=1))
    governor.check_cost(Cost(embeddings=1))
    error_of(BudgetExceeded, governor.check_cost, Cost(embeddings=1), Cost(embeddings=1))
    assert governor.admit("m", lambda: Cost(calls=1)) is None
    assert governor.admit("m", nothing) == Cost()


def test_retries_end_after_fifty_failures_in_a_row_after_the_first_reply_only_of_connections():
    for has_answered, error, is_allowed, outcome in (
        (False, TimeoutError(), False, None),
        (False, ConnectionRefusedError(), False, ValueError()),
        (True, TimeoutError(), True, None),
        (True, ConnectionRefusedError(), False, ValueError()),
        (False, ValueError(), True, None),
    ):
        governor = Governor()
        governor.record_try(OTHER, None)
        if has_answered:
            governor.record_try(ENDPOINT, None)
        for number in range(50):
            assert governor.allows_retry(ENDPOINT), number
            governor.record_try(ENDPOINT, error)
        assert governor.allows_retry(ENDPOINT) == is_allowed, (has_answered, error)
        assert governor.allows_retry(OTHER)
        governor.check_endpoint(ENDPOINT)  # calls go on
        governor.record_try(ENDPOINT, outcome)  # and begins the count again
        assert governor.allows_retry(ENDPOINT)


def failed_scores(governor, number, error="Rejected"):
    """Record so many failed scores; whether the last one ended the calls."""
    failures = [Failure(step="verify", error=error, message=f"no {n}") for n in range(number)]
    return [governor.record_failed_score([ENDPOINT, OTHER, ENDPOINT], failure) for failure in failures][-1]


def test_calls_end_after_twenty_scores_in_a_row_that_failed_alike():
    governor = Governor()
    governor.check_endpoint(ENDPOINT)
    assert not failed_scores(governor, 19)
    assert not failed_scores(governor, 19, "another")
    assert governor.outage(ENDPOINT) is None
    assert failed_scores(governor, 1, "another")
    assert governor.outage(ENDPOINT) == (20, Failure(step="verify", error="another", message="no 0"))
    assert not failed_scores(governor, 1, "another")  # it has ended them before
    assert not governor.allows_retry(ENDPOINT)
    with pytest.raises(JudgeUnavailable, match="is not called any more"):
        governor.check_endpoint(ENDPOINT)
    assert governor.outage(OTHER) is None  # never called


def test_failed_scores_of_an_endpoint_with_a_valid_reply_end_nothing():
    governor = Governor()
    governor.check_endpoint(ENDPOINT)
    governor.record_try(ENDPOINT, None)
    assert not failed_scores(governor, 19)
    governor.record_try(ENDPOINT, None, is_valid=True)
    assert not failed_scores(governor, 40)


def test_calls_before_the_scores_are_not_held_for_those_of_a_score():
    governor = Governor()
    for endpoint in (ENDPOINT, OTHER):
        governor.check_endpoint(endpoint)
        governor.record_try(endpoint, None, is_valid=True)
    governor.begin_scores()
    governor.check_endpoint(ENDPOINT)
    assert failed_scores(governor, 20)
    assert governor.outage(OTHER) is None  # not called for a score


# Several processes


def leased(ledger, name, budget=None, meter=None, limit=16, **options):
    return LeasingGovernor(partial(ledger.lease, name), budget, meter or UsageMeter(), limit, **options)


def spend(governor, meter, calls):
    """Make as many calls as the budget allows, at most so many; return their number."""
    for made in range(calls):
        if not begins(governor):
            return made
        governor.end_call(partial(meter.add, calls=1))
    return calls


@each(("budget", "workers"), [(0, 1), (1, 3), (10, 4), (999, 4), (10_000, 2)])
def test_all_workers_together_spend_the_budget_and_never_more(budget, workers):
    bounds, ledger = Budget(calls=budget), Ledger(Budget(calls=budget), 16, workers)
    meters = [UsageMeter() for _ in range(workers)]
    governors = [leased(ledger, f"w{n}", bounds, meter, patience=0) for n, meter in enumerate(meters)]
    made = [0] * workers
    for _ in range(budget // workers + 2):
        for number, (governor, meter) in enumerate(zip(governors, meters, strict=True)):
            made[number] += spend(governor, meter, 1)
    assert sum(made) <= budget
    assert sum(made) >= budget - workers  # what others hold at the end


def test_a_task_that_fits_a_larger_lease_is_admitted_and_one_beyond_the_budget_is_not():
    budget = Budget(tokens=1_000)
    governor = leased(Ledger(budget, 4, 1), "one", budget, patience=0)
    assert governor.admit("m", lambda: Cost(tokens=900)) == Cost(tokens=900)
    assert governor.admit("m", lambda: Cost(tokens=900)) is None
    assert governor.exhausted


def test_an_endpoint_has_answered_once_tokens_were_spent_in_any_process():
    meter, ledger = UsageMeter(), Ledger(None, 4, 2)
    lessees = [leased(ledger, name, meter=own, patience=0) for name, own in (("one", meter), ("two", None))]
    governors = [Governor(meter=meter), *lessees]
    answered = [[governor.is_answered for governor in governors]]
    for spent in ({"calls": 1}, {"embedded": 1}, {"unreported": 1}):
        meter.add(**spent)
        answered.append([governor.is_answered for governor in governors])
    assert answered == [[False] * 3] * 3 + [[True] * 3]


def test_slots_and_pace_are_shared_by_the_expected_workers_and_by_more_if_there_are_more(monkeypatch):
    ledger = Ledger(None, 10, 3)
    governors = [leased(ledger, str(number), limit=10, patience=0) for number in range(3)]
    assert [governor.limiter.limit for governor in governors] == [4, 3, 3]
    assert governors[0].share == pytest.approx(1 / 3)
    more = [leased(ledger, f"more {number}", limit=10, patience=0) for number in range(2)]
    assert [governor.limiter.limit for governor in more] == [2, 2]
    slot = governors[0].limiter.slot().__enter__()
    governors[0].record_rejection(slot, from_headers({"x-ratelimit-limit-requests": "600"}))
    assert governors[0].limiter.pace == pytest.approx(10 * 0.98 / 3)


def from_headers(headers, status=429):
    response = httpx.Response(status, headers=headers, request=httpx.Request("POST", "http://judge"))
    return openai.RateLimitError("refused", response=response, body=None)


SIXTY_CALLS = {"anthropic-ratelimit-tokens-limit": "6000"}  # a minute, of 100 tokens each


@each(
    ("spent", "limits", "pace"),
    [
        ((10, 900, 100), {**SIXTY_CALLS, "anthropic-ratelimit-requests-limit": "6000"}, 1.0),
        ((10, 900, 100), SIXTY_CALLS, 1.0),
        ((10, 900, 100), {**SIXTY_CALLS, "anthropic-ratelimit-requests-limit": "30"}, 0.5),
        ((2, 0, 0), {"x-ratelimit-limit-tokens": "30"}, 1.0),
        ((0, 0, 0), {"x-ratelimit-limit-tokens": "30"}, None),  # before the first call
        ((1, 50, 0), {"x-ratelimit-limit-tokens": "3000"}, 1.0),
        ((1, 50, 0), {}, None),
    ],
)
def test_a_stated_limit_of_tokens_is_a_pace_by_the_tokens_of_a_call(spent, limits, pace):
    meter = UsageMeter()
    meter.add(**dict(zip(("calls", "input_tokens", "output_tokens"), spent, strict=True)))
    governor = Governor(meter=meter, limit=4)
    with governor.limiter.slot() as slot:
        governor.record_rejection(slot, from_headers(limits))
    assert governor.limiter.pace == (None if pace is None else pytest.approx(0.98 * pace))


def test_an_endpoint_that_is_down_is_waited_for_until_the_patience_is_spent(clock):
    governor, lost = Governor(patience=60), ConnectionRefusedError("[Errno 111] Connection refused")
    governor.record_try(ENDPOINT, lost)
    assert governor.pause(ENDPOINT, lost) == 5
    assert governor.pause(ENDPOINT, ValueError("no")) is None
    clock.seconds += 59
    assert governor.pause(ENDPOINT, lost) == 5
    governor.record_try(ENDPOINT, None)
    governor.record_try(ENDPOINT, lost)
    clock.seconds += 59
    assert governor.pause(ENDPOINT, lost) == 5  # it answered meanwhile
    clock.seconds += 1
    assert governor.pause(ENDPOINT, lost) is None
    assert (governor.is_impatient, governor.outage(ENDPOINT).cause.message) == (True, str(lost))
    assert Governor().pause(ENDPOINT, lost) is None


def test_with_patience_five_permanent_errors_in_a_row_end_the_calls():
    wrong = openai.AuthenticationError("Incorrect key", response=from_headers({}, 401).response, body=None)
    for patience, errors, ends in (
        *((60, [*[wrong] * 4, between, *[wrong] * 5], True) for between in (None, TimeoutError())),
        (60, [wrong] * 5, True),
        (0, [wrong] * 9, False),
    ):
        governor = Governor(patience=patience)
        for error in errors:
            assert governor.outage(ENDPOINT) is None
            governor.record_try(ENDPOINT, error)
        outage = governor.outage(ENDPOINT)
        assert (outage and (outage.failures, outage.cause.message)) == ((5, "Incorrect key") if ends else None)


def test_a_process_that_was_silent_for_half_a_minute_shares_no_more(clock):
    ledger, slots = Ledger(None, 8, 1), []
    for seconds, name in ((0, "a"), (10, "b"), (20, "b"), (0.5, "b")):  # "a" is silent for 30 s, then for more
        clock.seconds += seconds
        slots.append((ledger.lease(name, Cost(), Cost()).slots, round(1 / ledger.lease(name, Cost(), Cost()).share)))
    assert slots == [(8, 1), (4, 2), (4, 2), (8, 1)]


@each(("patience", "seconds"), [(0, 5.0), (60, 5.0), (20, 5.0), (8, 2.0)])
def test_a_lease_is_renewed_when_it_is_older_than_five_seconds_or_a_quarter_of_the_patience(clock, patience, seconds):
    wanted = []

    def lease(spent, more):
        wanted.append(more)
        return Lease(Cost(100, 100, 100), 4, 1.0, False)

    governor = LeasingGovernor(lease, Budget(calls=2), UsageMeter(), 4, patience=patience)
    renewals = []
    for passed in (0, seconds, 0.25, seconds, 0.25):
        clock.seconds += passed
        governor.begin_call()
        renewals.append(len(wanted))
    assert renewals == [1, 1, 2, 2, 3]
    assert wanted == [Cost()] * 3


def test_a_process_that_leases_calls_counts_those_under_way():
    lease = Lease(Cost(2, 100, 100), 4, 1.0, False)
    governor = LeasingGovernor(lambda spent, wanted: lease, Budget(calls=2), UsageMeter(), 4, patience=0)
    assert [begins(governor) for _ in range(3)] == [True, True, False]


def test_the_cost_of_a_usage_includes_unreported_tokens_and_no_unknown_ones():
    for usage, unreported, cost in (
        (Usage(calls=2, input_tokens=10, output_tokens=None, embedded=3), 5, Cost(2, 15, 3)),
        (Usage(calls=1, input_tokens=None, output_tokens=4), 0, Cost(1, 4, 0)),
        (Usage(calls=1), 0, Cost(1, 0, 0)),
    ):
        assert Cost.of(usage, unreported) == cost


@each(
    ("workers", "bound", "leases"),
    [
        (1, 1000, [(0, 1, 64), (64, 1, 128), (128, 0, 128)]),  # 64 times what is wanted
        (1, 100, [(0, 1, 25), (25, 1, 43), (43, 57, 100), (100, 1, 100)]),  # a quarter of what is left
        (2, 100, [(0, 1, 12), (12, 1, 23)]),  # an eighth
        (1, 60, [(0, 50, 50), (50, 50, 60)]),  # what is wanted, and never more than there is
        (1, 60, [(70, 1, 70)]),
        (1, 0, [(0, 1, 0)]),
    ],
)
def test_a_lease_is_a_block_of_what_is_left(workers, bound, leases):
    ledger = Ledger(Budget(tokens=bound), 4, workers)
    for spent, wanted, granted in leases:
        lease = ledger.lease("one", Cost(tokens=spent), Cost(tokens=wanted))
        assert lease.granted == Cost(math.inf, granted, math.inf)


def test_what_other_processes_were_granted_or_have_spent_is_not_left():
    ledger = Ledger(Budget(calls=100), 2, 1)
    assert ledger.lease("one", Cost(), Cost(calls=40)).granted.calls == 40
    assert ledger.lease("two", Cost(), Cost(calls=90)).granted.calls == 60
    assert ledger.lease("one", Cost(calls=70), Cost()).granted.calls == 70
    assert [ledger.lease(name, Cost(), Cost()).slots for name in ("one", "two", "three")] == [1, 1, 1]


@each(("patience", "pause"), [(20, 2.0), (50, 5.0), (600, 5.0)])
def test_a_pause_is_a_tenth_of_the_patience_and_at_most_five_seconds(clock, patience, pause):
    governor, lost = Governor(patience=patience), ConnectionRefusedError()
    assert governor.pause(ENDPOINT, lost) == pause
    governor.record_try(ENDPOINT, lost)
    clock.seconds += patience / 2
    governor.record_try(ENDPOINT, lost)  # it is down since the first try
    clock.seconds += patience / 2
    assert governor.pause(ENDPOINT, lost) is None
    assert governor.outage(ENDPOINT).failures == 2
    assert governor.pause(ENDPOINT, lost) is None
