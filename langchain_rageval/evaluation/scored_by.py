"""scored_by: an evaluation as a Runnable from samples to a Report."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import merge_configs, set_config_context
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.evaluation.api import aevaluate, evaluate
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric, SamplesSchema
from langchain_rageval.evaluation.options import EVALUATE_DEFAULTS, EvaluateOptions
from langchain_rageval.report.report import Report
from langchain_rageval.run.options import check_options, fill_defaults
from langchain_rageval.run.traced import Traced


class ScoredBy(Traced[Any, Report]):
    """Runnable that scores samples with metrics.

    Attributes:
        metrics: the metrics, without suites.
        options: options of `evaluate`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    metrics: Sequence[InstanceOf[Runnable[Any, Any]]]
    options: Mapping[str, Any]

    @property
    def InputType(self) -> Any:
        """Type of the samples, for schemas."""
        return SamplesSchema

    def _do(self, input: Any, config: RunnableConfig) -> Report:
        with set_config_context(config) as context:
            return context.run(evaluate, input, self.metrics, **self._options(config))

    async def _ado(self, input: Any, config: RunnableConfig) -> Report:
        with set_config_context(config) as context:
            return await asyncio.create_task(aevaluate(input, self.metrics, **self._options(config)), context=context)

    def _options(self, config: RunnableConfig) -> EvaluateOptions:
        """Return the options, with the callbacks of the config added to their own."""
        own: RunnableConfig = {"callbacks": self.options["callbacks"]}
        callbacks: Any = merge_configs(config, own).get("callbacks") if own["callbacks"] else config.get("callbacks")
        return EvaluateOptions(**{**self.options, "callbacks": callbacks})  # type: ignore[typeddict-item]


def scored_by(metrics: AnyMetric | Sequence[AnyMetric], **options: Unpack[EvaluateOptions]) -> Runnable[Any, Report]:
    """Return a Runnable that scores samples: from samples to a Report.

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
    checked = Evaluation.of(metrics, unstored)  # raises ConfigError before the journal is created
    return ScoredBy(name="scored_by", metrics=checked.metrics, options=chosen)
