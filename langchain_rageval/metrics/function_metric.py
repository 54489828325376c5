"""The decorator `metric`, which turns a plain function of a sample into a metric."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial, update_wrapper
from importlib import import_module
from numbers import Real
from operator import attrgetter
from typing import Any, TypedDict, Unpack, overload

import numpy as np

from langchain_rageval.data.notes import Note, explain
from langchain_rageval.data.schema import Aspect, Direction, Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.supported import Value
from langchain_rageval.run.requests import Compute, Operation
from langchain_rageval.steps.stage import Stage, State

_RESULT = "result"


_Function = Callable[[Sample], Any]


class _Options(TypedDict, total=False):
    aspect: Aspect
    name: str | None
    direction: Direction
    range: tuple[float, float]
    version: str | None


@overload
def metric(
    function: None = None, *, reads: Iterable[str], **options: Unpack[_Options]
) -> Callable[[_Function], Metric]: ...


@overload
def metric(function: _Function, *, reads: Iterable[str], **options: Unpack[_Options]) -> Metric: ...


def metric(
    function: _Function | None = None,
    *,
    reads: Iterable[str] | None = None,
    aspect: Aspect = "answer",
    name: str | None = None,
    direction: Direction = "higher",
    range: tuple[float, float] = (0.0, 1.0),
    version: str | None = None,
) -> Metric | Callable[[_Function], Metric]:
    """Make a metric from a function of a sample that returns a bool, a number, a Value, or None for unscored.

        @metric(reads={"answer"}, aspect="style")
        def short_enough(sample):
            return len(sample.answer) <= 300

    The function may be async. `invoke` and `evaluate` run an async function on a new event loop for each sample, so the
    function should not use a client that is bound to another loop. `ainvoke` and `aevaluate` await it on the caller's
    loop and run a sync function in a thread. A dry run (a run without model calls, from which `plan` estimates the
    cost) does not call the function.

    Args:
        function: the function; None in the form `@metric(reads=...)`.
        reads: fields that a sample must have, besides the question.
        aspect: aspect of the sample that is scored: any word.
        name: key of the score; by default the name of the function.
        direction: whether "higher" or "lower" is better.
        range: lowest and highest possible value.
        version: text, such as "1", by which reports and journals identify the function, instead of by its code. Change
            the version when the function changes.

    Returns:
        The metric; without a function, a decorator that returns it.

    Raises:
        ConfigError: if `reads` is missing, the function does not take one argument, or another option is invalid.
    """
    if function is None:
        return partial(  # type: ignore[return-value]
            metric, reads=reads, aspect=aspect, name=name, direction=direction, range=range, version=version
        )
    counted = SampleFunction(function)
    if reads is None:
        raise ConfigError(f'name the fields of the sample that {counted.name} reads: @metric(reads={{"answer"}})')
    return Metric(
        counted.name if name is None else name,
        aspect=aspect,
        reads=reads,
        steps=CallFunction(function=counted, name=counted.name),
        reduce=counted,
        direction=direction,
        version=version,
        range=range,
    )


class SampleFunction:
    """Reducer (function that computes the value) of a metric that the decorator `metric` made of a function.

    The reducer does not call the function. An earlier step, `CallFunction`, calls it and adds the result to the state
    (mapping of the sample and all results). The reducer returns this result as a Value. The reducer can be pickled,
    although the function's name in its module now refers to the metric.

    Raises:
        ConfigError: if the function does not take one argument.
    """

    def __init__(self, function: Callable[[Sample], Any]) -> None:
        if not callable(function) or isinstance(function, type | Metric):
            raise ConfigError(f"metric takes a function of a sample, got {function!r}")
        try:
            inspect.signature(function).bind(None)
        except TypeError as error:
            raise ConfigError(f"a function of a metric is called with one sample: {error}") from None
        except ValueError:  # of C functions, which have no signature
            pass
        self.function = function
        update_wrapper(self, function, updated=())

    @property
    def name(self) -> str:
        """Name of the function. For a `partial` or another object, the name of its function or class."""
        function = self.function
        while isinstance(function, partial):
            function = function.func
        return str(getattr(function, "__name__", type(function).__name__))

    def __call__(self, state: State) -> Value:
        """Return the result of the function in a state as a Value.

        Raises:
            ConfigError: if it is not a bool, a number, a Value or None.
        """
        match state[_RESULT]:
            case Value() as value:
                return value
            case None:
                return Value.without("the function returned None")
            case bool() | np.bool_() | Real() | Decimal() as result:
                text = str(result) if isinstance(result, bool | np.bool_) else f"{float(result):g}"
                note = Note("function-returned", name=self.name, text=text)
                return Value(float(result), explain(state["sample"].language_text, note))
            case result:
                expected = "a bool, a number, a Value, or None if no value applies"
                raise ConfigError(f"{self.name} returned {type(result).__name__}: return {expected}")

    def __reduce__(self) -> tuple[Callable[..., SampleFunction], tuple[Any, ...]]:
        """Return how pickle rebuilds the function: by the name of the metric that it is decorated as, if there is one.

        A function of `__main__` is left to the pickler: Ray's sends its code, since workers have another `__main__`.
        """
        place = (self.function.__module__, getattr(self.function, "__qualname__", ""))
        if place[0] != "__main__":
            try:
                if _decorated(*place).function is self.function:
                    return _decorated, place
            except (ImportError, AttributeError):
                pass  # a local or plain function
        return SampleFunction, (self.function,)


class CallFunction(Stage[State]):
    """Stage that calls a function of the sample and adds the result to the state."""

    function: SampleFunction

    def work(self, state: State) -> Operation[State]:
        """Call the function with the sample, and add its result to the state."""
        result = yield Compute(partial(self.function.function, state["sample"]))
        return state | {_RESULT: result}

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its results: only a fixed name, the same for all functions.

        The function itself is identified by the metric's reducer (`SampleFunction`, which computes the value).
        """
        return {"step": "function of the sample"}


def _decorated(module: str, name: str) -> SampleFunction:
    """Return the function of the metric with a name in a module.

    Raises:
        AttributeError: if it is not a metric made of a function.
    """
    function = attrgetter(f"{name}.reduce")(import_module(module))
    if isinstance(function, SampleFunction):
        return function
    raise AttributeError(f"{module}.{name} is not a metric made of a function")
