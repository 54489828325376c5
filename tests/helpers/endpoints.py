"""Which kinds of endpoint a test runs with when pytest is quick, and which in the gate only."""

import pytest

ENDPOINTS = ("openai", "gigachat")
DOORS = ("evaluate", "aevaluate")


def pairs(door: str, *quick: tuple[str, str]) -> pytest.MarkDecorator:
    """Return a parametrization by the fixture `endpoint` and a fixture of doors.

    Args:
        door: name of the fixture whose parameters are `evaluate` and `aevaluate`.
        quick: the pairs that are not left to the gate.
    """
    every = [(endpoint, one) for endpoint in ENDPOINTS for one in DOORS]
    rows = [pytest.param(*pair, marks=() if pair in quick else pytest.mark.gate) for pair in every]
    return pytest.mark.parametrize(("endpoint", door), rows, indirect=True)


def crossed(door: str) -> pytest.MarkDecorator:
    """Return a parametrization that is quick with each endpoint and each door once."""
    return pairs(door, ("openai", "evaluate"), ("gigachat", "aevaluate"))
