"""Instruments of the metrics in a Runnable, also of those behind other Runnables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval._internal.description import NotDescribable
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Instrument
from langchain_rageval.data.schema import Score
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.metrics.structure import AnyScorer, Scorer, ScorerGroup, metrics_in, names_of
from langchain_rageval.steps.stage import describe_step


def instruments_in(metric: Runnable[Any, Any] | Scorer) -> dict[str, Instrument]:
    """Return the instrument of each metric in a Runnable by name.

    Runnables in front of a metric belong to what finds the facts. A Runnable without a `Metric` of the package as its
    last part is one instrument, under its own name.
    """
    parts = {part.name: part.provenance for part in metrics_in(metric)}
    if not parts:
        return {names_of(metric)[0]: _instrument_of(metric)}
    in_front = list(runnables_in_front(metric))
    return {name: _with_front(part, in_front) for name, part in parts.items()} if in_front else parts


def with_instruments(
    scores: Mapping[str, Score], metric: AnyScorer, instruments: Mapping[str, Instrument]
) -> dict[str, Score]:
    """Return scores of a Runnable with its instruments, in place of those of the metric alone.

    A score of the user that has an instrument keeps it.
    """
    has_metric = bool(metrics_in(metric))
    if has_metric and not any(runnables_in_front(metric)):
        return dict(scores)
    whole = next(iter(instruments.values()))
    digests = {name: instruments.get(name, whole).digests for name in scores}
    given = {} if has_metric else {name: score.instrument for name, score in scores.items() if score.instrument}
    return {name: score.model_copy(update={"instrument": (digests | given)[name]}) for name, score in scores.items()}


def runnables_in_front(metric: AnyScorer) -> Iterator[Runnable[Any, Any]]:
    """Yield the Runnables that change the input of the metrics in a Runnable."""
    if isinstance(metric, ScorerGroup):
        return
    if isinstance(metric, RunnableSequence):
        yield from metric.steps[:-1]
        yield from runnables_in_front(metric.last)
        return
    for inner in inner_models(metric):
        if inner is not metric:
            yield from runnables_in_front(inner)


def _instrument_of(runnable: Any) -> Instrument:
    try:
        whole = {"steps": [describe_step(runnable)], "package": __version__}
    except NotDescribable as error:
        return Instrument.of(None, None, str(error))
    return Instrument.of(whole, whole)


def _with_front(instrument: Instrument, in_front: list[Runnable[Any, Any]]) -> Instrument:
    try:
        described = [describe_step(step) for step in in_front]
    except NotDescribable as error:
        reasons = "; ".join(filter(None, (str(error), instrument.unknown)))
        return Instrument.of(None, instrument.counted_by, reasons)
    found_by = instrument.found_by and {**instrument.found_by, "before": described}
    return replace(Instrument.of(found_by, instrument.counted_by), unknown=instrument.unknown)
