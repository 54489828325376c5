"""The tests of the public test classes as plain functions, to hold one of them over many metrics."""

from collections.abc import Callable
from itertools import product
from typing import Any


def rules_of(tests: type) -> list[str]:
    """Return the names of the tests of a class."""
    return [name for name in vars(tests) if name.startswith("test_")]


def cases_of(test: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the arguments of each case of a parametrized test; one case without arguments for any other."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    axes = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    return [{name: value for part in parts for name, value in part.items()} for parts in product(*axes)]
