"""Admission of tasks by a budget, room for model calls, and the circuit breaker of an endpoint."""

import pytest
from helpers.each import each

from langchain_rageval import Budget, BudgetExceeded
from langchain_rageval.data.schema import Failure
from langchain_rageval.errors import JudgeUnavailable
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.governor import LocalGovernor, Outage
from langchain_rageval.run.usage import UsageMeter

SPENT = "the budget of {} is spent; the score was begun and cannot be finished"
ENDPOINT, OTHER = object(), object()


def nothing():
    return Cost()


def test_without_a_budget_every_task_is_admitted():
    governor = LocalGovernor()
    assert all(governor.admit("m", lambda: Cost(10**9)) for _ in range(3))
    governor.settle("m", Cost(), Cost(5))
    assert not governor.exhausted


def test_the_guess_is_reserved_until_a_task_is_settled():
    governor = LocalGovernor(Budget(calls=4))
    first = governor.admit("m", lambda: Cost(2))
    assert first == Cost(2)
    assert governor.admit("m", lambda: Cost(2)) == Cost(2)
    assert governor.admit("m", lambda: Cost(2)) is None
    assert governor.exhausted


def test_the_mean_cost_of_the_kind_replaces_the_guess():
    governor = LocalGovernor(Budget(calls=10))
    for cost in (Cost(1), Cost(3)):
        reserved = governor.admit("m", lambda: Cost(5))
        governor.settle("m", reserved, cost)
    assert governor.admit("m", nothing) == Cost(2)
    assert governor.admit("other", lambda: Cost(5)) is None


def test_after_the_first_rejection_only_free_tasks_are_admitted():
    governor = LocalGovernor(Budget(calls=4))
    assert governor.admit("dear", lambda: Cost(9)) is None
    assert governor.admit("cheap", lambda: Cost(1)) is None
    assert governor.admit("free", lambda: Cost(0, 100, 100)) == Cost(0, 100, 100)


def test_the_meter_counts_before_a_task_is_settled():
    """Calls of a work under way, above what was reserved for it."""
    meter = UsageMeter()
    governor = LocalGovernor(Budget(calls=10, tokens=100), meter)
    assert governor.admit("m", lambda: Cost(1))
    meter.add(calls=1, unreported=80)
    assert governor.admit("m", lambda: Cost(1, 20))
    meter.add(calls=1, input_tokens=1)
    assert governor.admit("n", lambda: Cost(1, 20)) is None


@each("bound", ["calls", "tokens", "embeddings"])
def test_each_bound_is_enforced_separately(bound):
    governor = LocalGovernor(Budget(**{bound: 3}))
    cost = Cost(**{bound: 2})
    assert governor.admit("m", lambda: cost)
    assert governor.admit("m", lambda: cost) is None


def test_free_tasks_do_not_lower_the_mean_cost_of_their_kind():
    governor = LocalGovernor(Budget(calls=10, embeddings=10))
    for cost in (Cost(), Cost(4), Cost(), Cost(2, embeddings=5)):
        governor.settle("m", Cost(), cost)
    assert governor.admit("m", nothing) == Cost(3, embeddings=5)


def test_the_guess_is_used_until_a_bounded_cost_is_known():
    guesses = []

    def guess():
        guesses.append(1)
        return Cost(1, 7, 2)

    governor = LocalGovernor(Budget(calls=100, embeddings=100))
    for cost, expected in ((Cost(), Cost(1, 7, 2)), (Cost(3), Cost(1, 7, 2)), (Cost(3, 0, 4), Cost(3, 7, 2))):
        assert governor.admit("m", guess) == expected
        governor.settle("m", expected, cost)
    assert len(guesses) == 3
    assert governor.admit("m", guess) == Cost(3, 0, 4)  # nobody asked for tokens
    assert len(guesses) == 3


def test_calls_under_way_hold_room_for_themselves():
    meter = UsageMeter()
    governor = LocalGovernor(Budget(calls=3), meter)
    governor.begin_call()
    governor.begin_call()
    governor.end_call(lambda: meter.add(calls=1))
    governor.begin_call()
    with pytest.raises(BudgetExceeded) as caught:
        governor.begin_call()
    assert str(caught.value) == SPENT.format("3 calls")
    governor.end_call(nothing)  # a reply from the model's cache
    governor.begin_call()
    assert governor.exhausted


@each(
    ("budget", "spent", "fits"),
    [
        (Budget(tokens=5), {"input_tokens": 4}, True),
        (Budget(tokens=5), {"input_tokens": 4, "unreported": 1}, False),
        (Budget(calls=1), {"calls": 1}, False),
        (Budget(embeddings=1), {"embedded": 9, "calls": 9}, True),
    ],
)
def test_a_call_is_refused_once_calls_or_tokens_are_spent(budget, spent, fits):
    meter = UsageMeter()
    governor = LocalGovernor(budget, meter)
    meter.add(**spent)
    try:
        governor.begin_call()
        assert fits
    except BudgetExceeded:
        assert not fits
    assert governor.exhausted == (not fits)


def test_a_refused_call_ends_the_admission_of_tasks():
    governor = LocalGovernor(Budget(calls=4, embeddings=1))
    governor.check_cost(Cost(embeddings=1))
    with pytest.raises(BudgetExceeded):
        governor.check_cost(Cost(embeddings=1), Cost(embeddings=1))
    assert governor.admit("m", lambda: Cost(calls=1)) is None
    assert governor.admit("m", nothing) == Cost()


def test_retries_end_after_fifty_connection_failures_of_an_endpoint_in_a_row():
    governor = LocalGovernor()
    governor.record_try(OTHER, None)
    for _ in range(49):
        governor.record_try(ENDPOINT, ConnectionRefusedError())
    assert governor.allows_retry(ENDPOINT)
    governor.record_try(ENDPOINT, ConnectionRefusedError())
    assert not governor.allows_retry(ENDPOINT)
    assert governor.allows_retry(OTHER)
    governor.check_endpoint(ENDPOINT)  # calls go on


def test_a_success_or_another_error_allows_retries_again():
    for outcome in (None, ValueError()):
        governor = LocalGovernor()
        for _ in range(50):
            governor.record_try(ENDPOINT, ConnectionRefusedError())
        governor.record_try(ENDPOINT, outcome)
        assert governor.allows_retry(ENDPOINT)


def failed_scores(governor, number, error="Rejected"):
    """Record so many failed scores; whether the last one ended the calls."""
    failures = [Failure(step="verify", error=error, message=f"no {n}") for n in range(number)]
    return [governor.record_failed_score([ENDPOINT, OTHER, ENDPOINT], failure) for failure in failures][-1]


def test_calls_end_after_twenty_scores_in_a_row_that_failed_alike():
    governor = LocalGovernor()
    governor.check_endpoint(ENDPOINT)
    assert not failed_scores(governor, 19)
    assert not failed_scores(governor, 19, "another")
    assert governor.outage(ENDPOINT) is None
    assert failed_scores(governor, 1, "another")
    assert governor.outage(ENDPOINT) == Outage(20, Failure(step="verify", error="another", message="no 0"))
    assert not failed_scores(governor, 1, "another")  # it has ended them before
    assert not governor.allows_retry(ENDPOINT)
    with pytest.raises(JudgeUnavailable, match="is not called any more"):
        governor.check_endpoint(ENDPOINT)
    assert governor.outage(OTHER) is None  # never called


def test_failed_scores_of_an_endpoint_with_a_valid_reply_end_nothing():
    governor = LocalGovernor()
    governor.check_endpoint(ENDPOINT)
    governor.record_try(ENDPOINT, None)
    assert not failed_scores(governor, 19)
    governor.record_try(ENDPOINT, None, is_valid=True)
    assert not failed_scores(governor, 40)
