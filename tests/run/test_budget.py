"""A budget while it is being spent."""

import pytest

from langchain_rageval import Budget, ConfigError
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.budget import BudgetTracker, Cost
from langchain_rageval.run.usage_meter import UsageMeter


def nothing():
    return Cost()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, "at least one of calls, tokens, embeddings"),
        ({"calls": -1}, "calls takes a whole number from 0 on, got -1"),
        ({"tokens": 1.5}, "tokens takes a whole number"),
        ({"embeddings": True}, "embeddings takes a whole number"),
    ],
)
def test_what_sets_no_bound_is_refused(given, told):
    with pytest.raises(ConfigError, match=told):
        Budget(**given)


def test_a_budget_says_its_bounds():
    assert str(Budget(calls=1000, tokens=5)) == "1,000 calls and 5 tokens"


def test_without_a_budget_everything_is_let_in():
    budget_tracker = BudgetTracker(None, UsageMeter())
    assert all(budget_tracker.admit("m", lambda: Cost(10**9)) for _ in range(3))
    budget_tracker.settle("m", Cost(), Cost(5))
    assert not budget_tracker.spent


def test_the_guess_is_reserved_until_a_work_is_settled():
    budget_tracker = BudgetTracker(Budget(calls=4), UsageMeter())
    first = budget_tracker.admit("m", lambda: Cost(2))
    assert first == Cost(2)
    assert budget_tracker.admit("m", lambda: Cost(2)) == Cost(2)
    assert budget_tracker.admit("m", lambda: Cost(2)) is None
    assert budget_tracker.spent


def test_what_its_kind_has_cost_takes_the_place_of_the_guess():
    budget_tracker = BudgetTracker(Budget(calls=10), UsageMeter())
    for cost in (Cost(1), Cost(3)):
        reserved = budget_tracker.admit("m", lambda: Cost(5))
        budget_tracker.settle("m", reserved, cost)
    assert budget_tracker.admit("m", nothing) == Cost(2)
    assert budget_tracker.admit("other", lambda: Cost(5)) is None


def test_nothing_that_costs_is_let_in_once_something_was_turned_away_and_what_is_free_always_is():
    budget_tracker = BudgetTracker(Budget(calls=4), UsageMeter())
    assert budget_tracker.admit("dear", lambda: Cost(9)) is None
    assert budget_tracker.admit("cheap", lambda: Cost(1)) is None
    assert budget_tracker.admit("free", lambda: Cost(0, 100, 100)) == Cost(0, 100, 100)


def test_what_the_meter_shows_counts_though_nobody_has_settled():
    """Calls of a work under way, above what was reserved for it."""
    meter = UsageMeter()
    budget_tracker = BudgetTracker(Budget(calls=10, tokens=100), meter)
    assert budget_tracker.admit("m", lambda: Cost(1))
    meter.add(calls=1, unreported=80)
    assert budget_tracker.admit("m", lambda: Cost(1, 20))
    meter.add(calls=1, input_tokens=1)
    assert budget_tracker.admit("n", lambda: Cost(1, 20)) is None


@pytest.mark.parametrize("bound", ["calls", "tokens", "embeddings"])
def test_each_bound_holds_by_itself(bound):
    budget_tracker = BudgetTracker(Budget(**{bound: 3}), UsageMeter())
    cost = Cost(**{bound: 2})
    assert budget_tracker.admit("m", lambda: cost)
    assert budget_tracker.admit("m", lambda: cost) is None


def test_the_cost_of_a_usage_holds_what_no_model_reported():
    usage = Usage(calls=2, input_tokens=10, output_tokens=None, embedded=3)
    assert Cost.of(usage, unreported=5) == Cost(2, 15, 3)


def test_works_that_cost_nothing_do_not_lower_what_their_kind_costs():
    budget_tracker = BudgetTracker(Budget(calls=10, embeddings=10), UsageMeter())
    for cost in (Cost(), Cost(4), Cost(), Cost(2, embeddings=5)):
        budget_tracker.settle("m", Cost(), cost)
    assert budget_tracker.admit("m", nothing) == Cost(3, embeddings=5)


def test_a_kind_is_guessed_until_it_has_cost_what_the_budget_bounds():
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
