"""A budget while it is being spent."""

import pytest
from helpers.each import each

from langchain_rageval import Budget, ConfigError
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.budget import BudgetTracker, Cost
from langchain_rageval.run.usage import UsageMeter


def nothing():
    return Cost()


@each(
    ("bounds", "message"),
    [
        ({}, "a budget sets at least one of calls, tokens, embeddings"),
        ({"calls": -1}, "a budget's calls must be a whole number of at least 0, got -1"),
        ({"tokens": 1.5}, "a budget's tokens must be a whole number of at least 0, got 1.5"),
        ({"embeddings": True}, "a budget's embeddings must be a whole number of at least 0, got True"),
    ],
)
def test_a_budget_without_valid_bounds_is_rejected(bounds, message):
    with pytest.raises(ConfigError) as caught:
        Budget(**bounds)
    assert str(caught.value) == message


def test_a_budget_says_its_bounds():
    assert str(Budget(calls=1000, tokens=5)) == "1,000 calls and 5 tokens"


def test_without_a_budget_every_task_is_admitted():
    budget_tracker = BudgetTracker(None, UsageMeter())
    assert all(budget_tracker.admit("m", lambda: Cost(10**9)) for _ in range(3))
    budget_tracker.settle("m", Cost(), Cost(5))
    assert not budget_tracker.exhausted


def test_the_guess_is_reserved_until_a_task_is_settled():
    budget_tracker = BudgetTracker(Budget(calls=4), UsageMeter())
    first = budget_tracker.admit("m", lambda: Cost(2))
    assert first == Cost(2)
    assert budget_tracker.admit("m", lambda: Cost(2)) == Cost(2)
    assert budget_tracker.admit("m", lambda: Cost(2)) is None
    assert budget_tracker.exhausted


def test_the_mean_cost_of_the_kind_replaces_the_guess():
    budget_tracker = BudgetTracker(Budget(calls=10), UsageMeter())
    for cost in (Cost(1), Cost(3)):
        reserved = budget_tracker.admit("m", lambda: Cost(5))
        budget_tracker.settle("m", reserved, cost)
    assert budget_tracker.admit("m", nothing) == Cost(2)
    assert budget_tracker.admit("other", lambda: Cost(5)) is None


def test_after_the_first_rejection_only_free_tasks_are_admitted():
    budget_tracker = BudgetTracker(Budget(calls=4), UsageMeter())
    assert budget_tracker.admit("dear", lambda: Cost(9)) is None
    assert budget_tracker.admit("cheap", lambda: Cost(1)) is None
    assert budget_tracker.admit("free", lambda: Cost(0, 100, 100)) == Cost(0, 100, 100)


def test_the_meter_counts_before_a_task_is_settled():
    """Calls of a work under way, above what was reserved for it."""
    meter = UsageMeter()
    budget_tracker = BudgetTracker(Budget(calls=10, tokens=100), meter)
    assert budget_tracker.admit("m", lambda: Cost(1))
    meter.add(calls=1, unreported=80)
    assert budget_tracker.admit("m", lambda: Cost(1, 20))
    meter.add(calls=1, input_tokens=1)
    assert budget_tracker.admit("n", lambda: Cost(1, 20)) is None


@each("bound", ["calls", "tokens", "embeddings"])
def test_each_bound_is_enforced_separately(bound):
    budget_tracker = BudgetTracker(Budget(**{bound: 3}), UsageMeter())
    cost = Cost(**{bound: 2})
    assert budget_tracker.admit("m", lambda: cost)
    assert budget_tracker.admit("m", lambda: cost) is None


def test_the_cost_of_a_usage_includes_unreported_tokens():
    usage = Usage(calls=2, input_tokens=10, output_tokens=None, embedded=3)
    assert Cost.of(usage, unreported=5) == Cost(2, 15, 3)


def test_free_tasks_do_not_lower_the_mean_cost_of_their_kind():
    budget_tracker = BudgetTracker(Budget(calls=10, embeddings=10), UsageMeter())
    for cost in (Cost(), Cost(4), Cost(), Cost(2, embeddings=5)):
        budget_tracker.settle("m", Cost(), cost)
    assert budget_tracker.admit("m", nothing) == Cost(3, embeddings=5)


def test_the_guess_is_used_until_a_bounded_cost_is_known():
    guesses = []

    def guess():
        guesses.append(1)
        return Cost(1, 7, 2)

    budget_tracker = BudgetTracker(Budget(calls=100, embeddings=100), UsageMeter())
    for cost, expected in ((Cost(), Cost(1, 7, 2)), (Cost(3), Cost(1, 7, 2)), (Cost(3, 0, 4), Cost(3, 7, 2))):
        assert budget_tracker.admit("m", guess) == expected
        budget_tracker.settle("m", expected, cost)
    assert len(guesses) == 3
    assert budget_tracker.admit("m", guess) == Cost(3, 0, 4)  # nobody asked for tokens
    assert len(guesses) == 3
