"""What the metrics without a model share: the answer is compared with each reference, and the best one counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.similarity import OVERLAP, answer_and_references, compared, nothing_to_compare
from langchain_rageval.metrics.value import Value
from langchain_rageval.steps.compare_texts import TextMeasure, compare_texts
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

Told = Callable[[float, bool], str]
"""From the best number, and whether the sample is Russian, to the reason."""


def overlap_metric(name: str, measure: TextMeasure, *, source: str, told: Told, options: Mapping[str, Any]) -> Metric:
    """A metric that asks no model.

    Args:
        name: key of the score.
        measure: from the folded answer and a folded reference to a number from 0 to 1.
        source: of the measure, as its instrument tells it.
        told: makes the reason.
        options: that could change the number.
    """
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=compare_texts(measure, answer_and_references, source=source),
        reduce=partial(best_overlap, told=told),
        options=options,
    )


def best_overlap(state: State, *, told: Told) -> Value:
    """The greatest of the numbers."""
    sample, similarities = state["sample"], state["similarities"]
    if (nothing := nothing_to_compare(sample)) is not None:
        return nothing
    best = max(similarities)
    reason = told(best, detect_language(sample.question) == "ru")
    return Value(best, reason, compared(sample, similarities, what=OVERLAP))


def near_reference(best: float, russian: bool, *, measure: str) -> str:
    """The reason of a measure that has a name."""
    return f"{measure}, {'ближайший эталон' if russian else 'the nearest reference'}: {best:.2f}."


def source_in_extra(package: str, metric: str) -> str:
    """Name and version of a package of the extra "text"; it is not imported.

    Raises:
        ConfigError: if it is not installed.
    """
    if find_spec(package) is None:
        raise ConfigError(f'{metric} needs {package}: pip install "langchain-rageval[text]"')
    return f"{package} {version(package)}"
