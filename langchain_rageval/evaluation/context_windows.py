"""Warnings about requests that exceed the context window of their model, found in a dry run before the first call.

A window is known if the model has a LangChain profile with `max_input_tokens`, or an option `num_ctx`, such as
ChatOllama.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.evaluation.dry_run import dry_run, dry_run_context, plannable_parts
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.judge.identity import model_identity
from langchain_rageval.judge.ladder import bound_options, inner_models
from langchain_rageval.metrics.structure import metrics_in, names_of
from langchain_rageval.run.billing import request_texts
from langchain_rageval.run.requests import Call, ModelRequest

_OTHER_CHARACTERS_PER_TOKEN = 2.5  # of Russian text in the encoding cl100k_base; newer ones need fewer tokens
_ASCII_CHARACTERS_PER_TOKEN = 4
_LONGEST_INSTRUCTIONS = 6_000  # tokens of a request without the texts of the sample, in any layout


@dataclass(frozen=True)
class _Excess:
    """Largest request that exceeds the window of its model."""

    tokens: int
    window: int
    model: str


def warn_of_long_requests(samples: Any, metrics: Sequence[AnyMetric]) -> None:
    """Warn if a request about the longest sample exceeds the known context window of its model.

    Other sources than lists are not read in advance, and metrics whose calls cannot be predicted are not checked.

    Args:
        samples: the samples of the run, as `prepare_samples` returns them.
        metrics: the metrics of the run.

    Warns:
        UserWarning: once for each metric with such a request.
    """
    windows = {number: min(_known_windows(metric), default=None) for number, metric in enumerate(metrics)}
    readable = [sample for sample in samples if isinstance(sample, Sample)] if isinstance(samples, Sequence) else []
    if not readable or not any(windows.values()):
        return
    longest = max(readable, key=lambda sample: sum(map(len, _texts(sample))))
    needed = 2 * estimated_tokens(*_texts(longest)) + _LONGEST_INSTRUCTIONS
    for number, metric in enumerate(metrics):
        window = windows[number]
        excess = _largest_excess(metric, longest) if window and needed > window else None
        if excess:
            warnings.warn(
                f"{', '.join(names_of(metric))}: a request about sample {longest.id!r} has about {excess.tokens:,} "
                f"tokens, more than the context window of {excess.window:,} tokens of {excess.model}: use "
                'Judge(model, max_context_tokens=...), layout="contexts_first" or a model with a larger window',
                stacklevel=3,
            )


def context_window(model: Any) -> int | None:
    """Return the number of tokens that a model accepts, the smallest of several models; None if it is unknown."""
    bound = bound_options(model)
    windows = []
    for inner in inner_models(model):
        profile = getattr(inner, "profile", None)
        found = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        windows += [bound.get("num_ctx"), getattr(inner, "num_ctx", None), found]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=None)


def estimated_tokens(*texts: str) -> int:
    """Estimate the number of tokens of texts: a token for four ASCII characters or for 2.5 others."""
    ascii_characters = sum(len(text.encode("ascii", "ignore")) for text in texts)
    others = sum(map(len, texts)) - ascii_characters
    return round(ascii_characters / _ASCII_CHARACTERS_PER_TOKEN + others / _OTHER_CHARACTERS_PER_TOKEN)


def _largest_excess(metric: AnyMetric, sample: Sample) -> _Excess | None:
    """Return the largest request about a sample that exceeds the window of its model, in a dry run of a metric."""
    found: list[_Excess] = []

    def measure(request: ModelRequest) -> None:
        if isinstance(request, Call) and (window := context_window(request.model)):
            tokens = estimated_tokens(*request_texts(request))
            if tokens > window:
                found.append(_Excess(tokens, window, model_identity(request.model)))

    dry_run(plannable_parts(metric), sample, dry_run_context(measure))
    return max(found, key=lambda excess: excess.tokens, default=None)


def _known_windows(metric: AnyMetric) -> list[int]:
    models = [model for part in metrics_in(metric) for model in part.models]
    return [window for model in models if (window := context_window(model))]


def _texts(sample: Sample) -> list[str]:
    return [sample.question, sample.answer or "", *(sample.contexts or []), *sample.references]
