"""`answered_by` and `scored_by`: Runnables in which a chain answers samples, and metrics score the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs, set_config_context
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.chains.answering import ANSWER_DEFAULTS, Answering, AnswerOptions
from langchain_rageval.chains.chain_input import as_chain
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.evaluation.api import aevaluate, evaluate
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, SamplesSchema, iterate_samples, prepare_samples
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, EvaluateOptions
from langchain_rageval.report.report import Report
from langchain_rageval.run.run import Traced, check_options, fill_defaults


class NotedSamples(list[Sample]):
    """List of samples with the notes of their test set, which the report repeats."""

    def __init__(self, samples: Iterable[Sample], notes: Sequence[str]) -> None:
        super().__init__(samples)
        self.notes = list(notes)


def _notes_of(samples: Any) -> list[str]:
    return [note for note in getattr(samples, "notes", None) or () if isinstance(note, str)]


def _with_notes(report: Report, samples: Any) -> Report:
    return replace(report, notes=list(dict.fromkeys([*_notes_of(samples), *report.notes])))


class AnsweredBy(Traced[Any, list[Sample]]):
    """Runnable that asks a RAG chain the question of every sample, and returns the samples with the chain's answers.

    Attributes:
        chain: the user's chain.
        options: the values of all options of `AnswerOptions`, by name.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    chain: InstanceOf[Runnable[Any, Any]]
    options: Mapping[str, Any]

    @property
    def InputType(self) -> Any:
        """Type of the input, samples in any form, for LangChain's input schema."""
        return SamplesSchema

    def _do(self, input: Any, config: RunnableConfig) -> list[Sample]:
        return NotedSamples(self._answering(_parse(prepare_samples(input, ())), config).run(), _notes_of(input))

    async def _ado(self, input: Any, config: RunnableConfig) -> list[Sample]:
        samples = _parse([item async for item in iterate_samples(prepare_samples(input, ()))])
        return NotedSamples(await self._answering(samples, config).arun(), _notes_of(input))

    def _answering(self, samples: list[Sample], config: RunnableConfig) -> Answering:
        return Answering(samples, self.chain, AnswerOptions(**self.options), config)  # type: ignore[typeddict-item]


def answered_by(
    chain: Runnable[Any, Any] | Callable[[Any], Any], **options: Unpack[AnswerOptions]
) -> Runnable[Any, list[Sample]]:
    """Return a Runnable that asks a RAG chain every question of a Testset or of samples.

    `generator | answered_by(rag_chain) | scored_by(metrics)` goes from documents to a Report.

    Args:
        chain: as for `Testset.run`: a Runnable or a function, sync or async, with any form of input and output.
        **options: described in `AnswerOptions`: `max_concurrency=8`, `timeout=None`, `journal=None`, `version=None`,
            `resume=False`, `retry_failed=False`, `progress=True`.

    Returns:
        A Runnable whose input is a Testset or samples in any form that `evaluate` takes. Its output is the list of
        samples with the answers and contexts of the chain, as from `Testset.run`. Earlier answers and contexts are
        removed. If the chain failed, `answer` is None and `metadata["error"]` holds the error.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if `chain` is neither a Runnable nor a function, or an option is invalid. Invoking the Runnable
            raises it too, if the journal belongs to another run.
    """
    complete = fill_defaults(answered_by, options, ANSWER_DEFAULTS)
    check_options(complete)
    return AnsweredBy(name="answered_by", chain=as_chain(chain), options=complete)


def _parse(items: Iterable[Any]) -> list[Sample]:
    """Return items as samples with distinct ids; an item that could not be read raises its error."""
    read = list(items)
    for item in read:
        if isinstance(item, SampleError):
            raise item
    samples: list[Sample] = prepare_samples(read, ())
    return samples


class ScoredBy(Traced[Any, Report]):
    """Runnable that scores samples with metrics.

    Attributes:
        metrics: the metrics; a suite (a group of metrics) is replaced by its metrics.
        options: options of `evaluate`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    metrics: Sequence[InstanceOf[Runnable[Any, Any]]]
    options: Mapping[str, Any]

    @property
    def InputType(self) -> Any:
        """Type of the input, samples in any form, for LangChain's input schema."""
        return SamplesSchema

    def _do(self, input: Any, config: RunnableConfig) -> Report:
        with set_config_context(config) as context:
            report = context.run(evaluate, input, self.metrics, **self._options(config))
        return _with_notes(report, input)

    async def _ado(self, input: Any, config: RunnableConfig) -> Report:
        with set_config_context(config) as context:
            scoring = aevaluate(input, self.metrics, **self._options(config))
            report = await asyncio.create_task(scoring, context=context)
        return _with_notes(report, input)

    def _options(self, config: RunnableConfig) -> EvaluateOptions:
        """Return the options, with the callbacks of the config added to their own."""
        own: RunnableConfig = {"callbacks": self.options["callbacks"]}
        callbacks: Any = merge_configs(config, own).get("callbacks") if own["callbacks"] else config.get("callbacks")
        return EvaluateOptions(**{**self.options, "callbacks": callbacks})  # type: ignore[typeddict-item]


def scored_by(metrics: AnyMetric | Sequence[AnyMetric], **options: Unpack[EvaluateOptions]) -> Runnable[Any, Report]:
    """Return a Runnable that scores samples with metrics and returns a Report.

    `answered_by(rag_chain) | scored_by(metrics)` answers the questions of a Testset and scores the answers.

    Args:
        metrics: as for `evaluate`.
        **options: as for `evaluate`.

    Returns:
        A Runnable whose input is samples in any form that `evaluate` takes. `invoke` calls `evaluate`, and `ainvoke`
        calls `aevaluate`.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if a metric or an option is invalid.
    """
    chosen = fill_defaults(scored_by, options, EVALUATE_DEFAULTS)
    check_options(chosen)
    unstored: Any = {**chosen, "journal": None}
    checked = Evaluation(metrics, unstored)  # raises ConfigError before the journal is created
    return ScoredBy(name="scored_by", metrics=checked.metrics, options=chosen)
