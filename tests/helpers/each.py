"""Rules over lists of cases as one test, expected errors, rules of public test classes, endpoints and doors."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from itertools import product
from typing import Any

import pytest

Test = Callable[..., Any]


def error_of(kind: type[BaseException], call: Callable[..., Any], /, *args: Any, **options: Any) -> Any:
    """Return the error of a kind that a call raises; the test fails if it raises none."""
    with pytest.raises(kind) as caught:
        call(*args, **options)
    return caught.value


def each(
    names: str | Sequence[str], values: Iterable[Any], ids: Iterable[Any] | Callable[[Any], Any] | None = None
) -> Callable[[Test], Test]:
    """Run the body of a test for each case; the test fails once, and lists all cases that failed.

    Use it like `pytest.mark.parametrize`, where many cases hold one rule and need no fresh fixtures: all cases share
    those of the test, such as `tmp_path` and `monkeypatch`. Two of them on one test give all pairs.

    Args:
        names: parameters of the test, separated by commas or as a tuple.
        values: per case one value, or one tuple of values for several names; at least one case.
        ids: names of the cases in the failure; the values themselves if None.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = list(values)
    rows = [value if len(parameters) > 1 else (value,) for value in values]
    if ids is None:
        labels = [_label(row) for row in rows]
    else:
        labels = [str(label) for label in (map(ids, values) if callable(ids) else ids)]
    cases = [(label, dict(zip(parameters, row, strict=True))) for label, row in zip(labels, rows, strict=True)]
    assert cases, f"no case for {names}"

    def decorate(test: Test) -> Test:
        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def run(*args: Any, **fixtures: Any) -> None:
                failures: list[tuple[str, BaseException]] = []
                for label, case in cases:
                    with _collecting(failures, label):
                        await test(*args, **fixtures, **case)
                _report(failures, len(cases))

        else:

            @wraps(test)
            def run(*args: Any, **fixtures: Any) -> None:
                failures: list[tuple[str, BaseException]] = []
                for label, case in cases:
                    with _collecting(failures, label):
                        test(*args, **fixtures, **case)
                _report(failures, len(cases))

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate


def _label(row: tuple[Any, ...]) -> str:
    texts = [value if isinstance(value, str) else getattr(value, "__name__", repr(value)) for value in row]
    return ", ".join(texts)[:200]


@contextmanager
def _collecting(failures: list[tuple[str, BaseException]], label: str) -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:  # a skip and Ctrl-C end the test
        failures.append((label, error))


def _report(failures: list[tuple[str, BaseException]], total: int) -> None:
    if failures:
        lines = [f"{label}: {type(error).__name__}: {error}" for label, error in failures]
        raise AssertionError("\n".join([f"{len(lines)} of {total} cases failed", *lines])) from failures[0][1]


def rules_of(tests: type) -> list[str]:
    """Return the names of the tests of a class."""
    return [name for name in vars(tests) if name.startswith("test_")]


def cases_of(test: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the arguments of each case of a parametrized test; one case without arguments for any other."""
    marks = [mark for mark in getattr(test, "pytestmark", []) if mark.name == "parametrize"]
    axes = [[{mark.args[0]: value} for value in mark.args[1]] for mark in marks]
    return [{name: value for part in parts for name, value in part.items()} for parts in product(*axes)]


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
