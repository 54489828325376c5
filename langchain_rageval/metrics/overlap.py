"""Overlap metrics: the answer is compared with each reference without a model, and the best reference counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.similarity import OVERLAP, answer_and_references, blank_value, similarity_findings
from langchain_rageval.metrics.value import Value
from langchain_rageval.steps.compare_texts import TextMeasure, compare_texts
from langchain_rageval.steps.stage import State
from langchain_rageval.text.language import detect_language

FormatReason = Callable[[float, bool], str]
"""Function from the best number, and whether the question is Russian, to the reason of the score."""


def overlap_metric(
    name: str, measure: TextMeasure, *, source: str, format_reason: FormatReason, options: Mapping[str, Any]
) -> Metric:
    """Return a metric that compares texts without a model.

    Args:
        name: key of the score.
        measure: function from the normalized answer and a normalized reference to a number from 0 to 1.
        source: name, and version if any, of the implementation; part of the instrument.
        format_reason: function that words the reason.
        options: all options that could change the number.
    """
    return Metric(
        name,
        aspect="answer",
        reads={"answer", "references"},
        steps=compare_texts(measure, answer_and_references, source=source),
        reduce=partial(best_overlap, format_reason=format_reason),
        options=options,
    )


def best_overlap(state: State, *, format_reason: FormatReason) -> Value:
    """Return the overlap with the reference that the answer overlaps most."""
    sample, similarities = state["sample"], state["similarities"]
    if (blank := blank_value(sample)) is not None:
        return blank
    best = max(similarities)
    reason = format_reason(best, detect_language(sample.question) == "ru")
    return Value(best, reason, similarity_findings(sample, similarities, reason=OVERLAP))


def nearest_reference_reason(best: float, russian: bool, *, measure: str) -> str:
    """Return the sentence that explains a score by a named measure, such as "BLEU"."""
    return f"{measure}, {'ближайший эталон' if russian else 'the nearest reference'}: {best:.2f}."


def installed_version(package: str, metric: str) -> str:
    """Return the name and version of a package of the extra "text", without importing it.

    Raises:
        ConfigError: if the package is not installed; the message names the metric that needs it.
    """
    if find_spec(package) is None:
        raise ConfigError(f'{metric} needs {package}: pip install "langchain-rageval[text]"')
    return f"{package} {version(package)}"
