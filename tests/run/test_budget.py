"""Bounds of a budget, and the cost that is counted against them."""

import pytest
from helpers.each import each

from langchain_rageval import Budget, ConfigError
from langchain_rageval.data.schema import Usage
from langchain_rageval.run.budget import Cost


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
    with pytest.raises(ConfigError) as caught:
        Budget(**bounds)
    assert str(caught.value) == message


def test_a_budget_says_its_bounds():
    assert str(Budget(calls=1000, tokens=5)) == "1,000 calls and 5 tokens"


def test_the_cost_of_a_usage_includes_unreported_tokens():
    usage = Usage(calls=2, input_tokens=10, output_tokens=None, embedded=3)
    assert Cost.of(usage, unreported=5) == Cost(2, 15, 3)
