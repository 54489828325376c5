"""Build the metrics that the user names on the command line; `rageval metrics` lists the names.

The metrics come from this package, from modules of the user, or from other installed packages.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from inspect import Parameter, signature
from operator import attrgetter
from pathlib import Path
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable

from langchain_rageval.cli.terminal import write_json, write_message
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError, did_you_mean
from langchain_rageval.judge.judge import Judge
from langchain_rageval.metrics import ALIASES, ASPECTS, BUILDERS, PRESETS, RANKINGS, SCORES
from langchain_rageval.metrics.grading import Grader, embedding_grader, id_grader, label_grader, llm_grader, span_grader
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import (
    ScorerGroup,
    metrics_in,
    names_of,
    problem_of,
    remedy_for,
    shared_steps_key,
)
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import OfflineJudge

ALL = "all"
"""Name of the preset of all metrics except ranking metrics."""
GRADERS: Mapping[str, Callable[[Judge, Callable[[], Embeddings]], Grader]] = {
    "ids": lambda _judge, _embeddings: id_grader(),
    "labels": lambda _judge, _embeddings: label_grader(),
    "llm": lambda judge, _embeddings: llm_grader(judge),
    "embedding": lambda _judge, embeddings: embedding_grader(embeddings()),
    "spans": lambda _judge, _embeddings: span_grader(),
}
"""Graders by the values of --grader."""

GROUP = "langchain_rageval.metrics"
"""Group of the entry points that name metrics of other packages."""


def run_metrics(options: argparse.Namespace) -> None:
    """Print a line for each metric; the line starts with the metric's name."""
    lines = {name: _headline(module) for name, module in BUILDERS.items()}
    lines |= {
        aspect: f"aspect_critique: built-in aspect, {direction} is better" for aspect, direction in ASPECTS.items()
    }
    lines |= {f"{name}@K": _headline(module) for name, module in RANKINGS.items()}
    for name, point in registered_metrics().items():  # the module is not imported
        lines[name] = f"{point.value} of {point.dist.name}" if point.dist else point.value
    if options.json:
        write_json({"metrics": lines})
        return
    width = max(map(len, lines))
    for name, description in lines.items():
        sys.stdout.write(f"{name:<{width}}  {description}\n")


def _headline(module: str) -> str:
    """Return the first line of the module's docstring without the metric's name; the module is not imported."""
    spec = find_spec(module)
    source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
    first = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "").split("\n")[0]
    return first.split(": ", 1)[-1]


def parse_metric_names(text: str) -> dict[str, bool]:
    """Parse a comma-separated list of metric names.

    Args:
        text: comma-separated names from `rageval metrics`, or aliases in `ALIASES`. A preset selects several metrics.
            `all` selects all metrics of the package except ranking metrics, which need a grader. `aspect_critique`
            selects the built-in aspects. Ranking metrics have a cutoff, as in `ndcg@5`. A metric of the user is
            "package.module:name".

    Returns:
        A mapping from each name, in order, to True if only a preset selects the metric.

    Raises:
        ConfigError: if a name is unknown, or the list is empty.
    """
    names = [ALIASES.get(name, name) for name in map(str.strip, text.split(",")) if name]
    known = [*(name for name in BUILDERS if name != "aspect_critique"), *ASPECTS]
    groups = {ALL: known, **PRESETS, "aspect_critique": list(ASPECTS)}
    for name in names:
        if _is_ranking(name):
            continue
        if (kind := name.partition("@")[0]) in RANKINGS:
            raise ConfigError(f"{name!r} needs a cutoff, a whole number of at least 1, as in {kind}@5")
        if name not in known and name not in groups and ":" not in name and name not in registered_metrics():
            ranked = [f"{kind}@K" for kind in RANKINGS]
            valid = [*PRESETS, ALL, *BUILDERS, *ASPECTS, *ranked]
            problem = f"unknown metric {name!r}; use one of {', '.join(valid)}, or MODULE:NAME"
            raise ConfigError(f"{problem}{did_you_mean(name, [*valid, *ALIASES])}")
    if not names:
        presets = ", ".join([*PRESETS, ALL])
        raise ConfigError(f"--metrics takes comma-separated names, or {presets}; use one of {', '.join(known)}")
    by_preset = {part for name in names if name in (ALL, *PRESETS) for part in groups[name]}
    return {part: part in by_preset and part not in names for name in names for part in groups.get(name, [name])}


def build_named_metrics(
    names: Iterable[str], arguments: Mapping[str, Callable[[], Any]], optional: Collection[str]
) -> list[Metric]:
    """Build metrics by name.

    Args:
        names: metric names, as returned by `parse_metric_names`.
        arguments: functions that return the arguments of the builders of metrics, by parameter name: "judge",
            "embeddings" (also as "model"), "grader" and "gain".
        optional: names of metrics that only presets select. Samples that lack a field are unscored, and a metric whose
            package or embeddings are missing is left out with a warning.
    """
    metrics: list[Metric] = []
    left_out: dict[str, list[str]] = {}
    for name in names:
        try:
            built = metrics_in(_build(name, arguments))
        except ConfigError as error:
            if name not in optional:
                raise
            left_out.setdefault(str(error), []).append(name)
        else:
            metrics += [metric.optional() for metric in built] if name in optional else built
    for reason, without in left_out.items():
        write_message(f"{', '.join(without)} left out: {reason}")
    return metrics


def score_names(names: Collection[str]) -> list[str]:
    """Return the names of the scores that the named metrics produce."""
    packaged = {name for name in names if name in BUILDERS or name in ASPECTS or _is_ranking(name)}
    models = {"judge": OfflineJudge, "embeddings": HashingEmbeddings}
    own = {name: names_of(build_own_metric(name, models)) for name in names if name not in packaged}
    return [score for name in names for score in own.get(name) or SCORES.get(name, [name])]


def build_grader(options: argparse.Namespace, judge: Judge, embeddings: Callable[[], Embeddings]) -> Grader:
    """Return the grader (source of the relevance of each retrieved chunk) that the options select."""
    return GRADERS[_grader_name(options)](judge, embeddings)


def _grader_name(options: argparse.Namespace) -> str:
    return options.grader or ("labels" if options.qrels else "ids")


def scorable_metrics(options: argparse.Namespace, metrics: Sequence[Metric], samples: Sequence[Sample]) -> list[Metric]:
    """Return the metrics, without optional metrics that read a field which no sample has.

    A metric is optional if only a preset, such as "core", selects it. A line on stderr names the metrics that are left
    out. Optional conversation metrics are left out without such a line if no sample has a history.

    Raises:
        SampleError: if a sample lacks a field that ranking metrics read with this `--grader` (source of grades).
        ConfigError: if no metric is left.
    """
    _check_gradable(metrics, samples, _grader_name(options))
    selected = []
    has_history = any(sample.history for sample in samples)
    left_out: dict[Any, list[str]] = {}
    for metric in metrics:
        lacking = [metric.missing_fields(sample) for sample in samples]
        if metric.is_optional and "history" in metric.reads and not has_history:
            continue
        if not metric.is_optional or not all(lacking):
            selected.append(metric)
        else:
            of_all = set.intersection(*map(set, lacking)) or set().union(*lacking)
            reason = f"no sample has {', '.join(sorted(of_all))}; --fields maps other names"
            left_out.setdefault((shared_steps_key(metric) or metric.name, reason), []).append(metric.name)
    for (_, reason), names in left_out.items():
        write_message(f"{', '.join(names)} left out: {reason}")
    if not selected:
        raise ConfigError("no metric can score these samples; add answer, contexts or references, or map --fields")
    return selected


def _check_gradable(metrics: Sequence[Metric], samples: Sequence[Sample], grader: str) -> None:
    """Check that every sample has the fields that the ranking metrics, such as `ndcg@5`, read.

    The fields depend on the grader, which grades the relevance of each retrieved chunk. `grader` is the name of the
    grader, a value of the option `--grader` such as "ids".

    Raises:
        SampleError: if a sample lacks a field; the message names the graders other than `grader`.
    """
    for metric in metrics:
        if _is_ranking(metric.name):
            for sample in samples:
                try:
                    metric.read(sample)
                except SampleError as error:
                    others = " or ".join(f"--grader {other}" for other in GRADERS if other != grader)
                    raise SampleError(f"{error}; or use {others}", error.field) from None


def _build(name: str, arguments: Mapping[str, Callable[[], Any]]) -> Metric | Suite:
    kind, _, cutoff = name.partition("@")
    builder: Callable[..., Metric | Suite]
    if name in ASPECTS:
        builder = partial(_imported(BUILDERS, "aspect_critique"), aspect=name)
    elif _is_ranking(name):
        builder = partial(_imported(RANKINGS, kind, "_at"), int(cutoff), name=name)
    elif name in BUILDERS:
        builder = _imported(BUILDERS, name)
    else:
        own: Metric | Suite = build_own_metric(name, {option: arguments[option] for option in ("judge", "embeddings")})
        return own
    return builder(**{option: arguments[option]() for option in arguments.keys() & signature(builder).parameters})


def _imported(modules: Mapping[str, str], name: str, ending: str = "") -> Callable[..., Metric | Suite]:
    builder: Callable[..., Metric | Suite] = getattr(import_module(modules[name]), f"{name}{ending}")
    return builder


def _is_ranking(name: str) -> bool:
    kind, _, cutoff = name.partition("@")
    return kind in RANKINGS and cutoff.isascii() and cutoff.isdigit() and int(cutoff) > 0


def registered_metrics() -> dict[str, EntryPoint]:
    """Return the entry points by which installed packages register metrics, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}


def build_own_metric(name: str, arguments: Mapping[str, Callable[[], Any]]) -> Any:
    """Return a metric or suite of the user, loaded by its name.

    Args:
        name: "package.module:name" or the name of an entry point. It names a metric, a suite, or a function that builds
            a metric or suite. Modules are also searched in the working directory.
        arguments: functions that return the arguments of a builder function, by parameter name.

    Raises:
        ConfigError: if the object cannot be imported, is not a metric, or is a builder with other required parameters.
    """
    if ":" in name:
        found = import_object(name, "--metrics")
    else:
        search_in_folder(Path())
        try:
            found = registered_metrics()[name].load()
        except Exception as error:
            raise ConfigError(f"--metrics {name} cannot be imported: {type(error).__name__}: {error}") from error
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


def import_object(place: str, option: str) -> Any:
    """Import a module and return the object with the given name.

    Args:
        place: "package.module:name" or "folder/module.py:name"; modules are also searched in the working directory.
        option: name of the option, for the error message.

    Raises:
        ConfigError: if the module or the name cannot be imported.
    """
    module, _, name = place.partition(":")
    path = Path(module)
    search_in_folder(path.parent if path.suffix == ".py" else Path())
    try:
        return attrgetter(name)(import_module(path.stem if path.suffix == ".py" else module))
    except Exception as error:
        near = ""
        if isinstance(error, AttributeError):
            names = getattr(error.obj, "__dict__", {})
            near = did_you_mean(error.name, [own for own, value in names.items() if not isinstance(value, type)])
        raise ConfigError(f"{option} {place} cannot be imported: {type(error).__name__}: {error}{near}") from error


def search_in_folder(folder: Path) -> None:
    """Add a folder to the module search path. An installed command does not search the working directory itself."""
    if str(folder.resolve()) not in sys.path:
        sys.path.append(str(folder.resolve()))
