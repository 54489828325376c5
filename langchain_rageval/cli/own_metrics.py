"""Metrics of users on the command line: by the place of their definition, or by the entry point of their package."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from langchain_rageval.cli.imported_object import import_object, search_in_folder
from langchain_rageval.errors import ConfigError

GROUP = "langchain_rageval.metrics"
"""Group of the entry points that name metrics of other packages."""


def registered_metrics() -> dict[str, EntryPoint]:
    """Return the entry points of installed packages that name metrics, by their names."""
    return {point.name: point for point in entry_points(group=GROUP)}


def is_own_metric(name: str) -> bool:
    """Return True for "package.module:name" and for the name of an entry point."""
    return ":" in name or name in registered_metrics()


def build_own_metric(name: str, arguments: Mapping[str, Callable[[], Any]]) -> Any:
    """Return a metric or suite of the user.

    Args:
        name: "package.module:name", where modules are also searched in the working directory, or the name of an entry
            point. It names a metric, a suite, or a function that builds one.
        arguments: functions that give the arguments of a builder, by the names of its parameters.

    Raises:
        ConfigError: if it cannot be imported, is not a metric, or is a builder with other required parameters.
    """
    from langchain_core.runnables import Runnable

    from langchain_rageval.metrics.structure import ScorerGroup, problem_of, remedy_for

    found = _load(name)
    if isinstance(found, ScorerGroup):
        return found
    if not callable(found):
        raise ConfigError(f"--metrics {name} is not a metric but {type(found).__name__}")
    parameters = signature(found).parameters
    required = {
        parameter.name
        for parameter in parameters.values()
        if parameter.default is Parameter.empty
        and parameter.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    }
    if remedy_for(found).startswith(":") or required - arguments.keys():
        remedy = f"decorate it with @metric(reads=...), or let a builder take some of {', '.join(arguments)}"
        raise ConfigError(f"--metrics {name} is a function of ({', '.join(parameters)}): {remedy}")
    built = found(**{parameter: arguments[parameter]() for parameter in parameters if parameter in arguments})
    if not isinstance(built, ScorerGroup):
        problem = problem_of(built) if isinstance(built, Runnable) else None
        raise ConfigError(f"--metrics {name} built no metric: {problem or f'it is a {type(built).__name__}'}")
    return built


def _load(name: str) -> Any:
    if ":" in name:
        return import_object(name, "--metrics")
    search_in_folder(Path())
    try:
        return registered_metrics()[name].load()
    except Exception as error:
        raise ConfigError(f"--metrics {name} cannot be imported: {type(error).__name__}: {error}") from error
