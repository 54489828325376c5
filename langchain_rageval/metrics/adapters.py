"""The doors through which one object is used as it is: LangSmith, openevals' calling convention, LangGraph.

They record a judge's failure as a score without a value, where the Runnable methods raise it: one bad sample must not
take others with it. A sample that lacks a field is the user's mistake and raises, except in a LangSmith experiment,
where it stays on its row.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langsmith import tracing_context
from langsmith.evaluation.evaluator import EvaluationResult, EvaluationResults, RunEvaluator
from langsmith.run_helpers import get_tracing_context

from langchain_rageval.data.field_names import read_run
from langchain_rageval.data.schema import Sample, Score, Usage
from langchain_rageval.errors import SampleError
from langchain_rageval.metrics.outcome import aoutcome, failures, outcome
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.run import Run

if TYPE_CHECKING:
    from langsmith.schemas import Example
    from langsmith.schemas import Run as TracedRun

    from langchain_rageval.metrics.metric import Metric

Feedback = dict[str, Any]


class Adapters(RunEvaluator):
    """What a metric and a suite of them offer to the outside."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Metric]:
        """The metrics in this object."""

    @property
    def names(self) -> list[str]:
        """Keys of the scores that this object gives."""
        return [part.name for part in self.parts]

    @property
    def feedback_keys(self) -> list[str]:
        """The same, as LangSmith asks for them: with them a crash is recorded under its own name."""
        return self.names

    def outcomes(self, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
        """The scores by name, a failure for each that the judge could not give.

        Raises:
            SampleError: if the input lacks what a metric reads.
        """
        sample, run = self._admitted(input), Run.of(config or {}).for_sample()
        scores = run.threads.gather([partial(outcome, part, sample, run, config) for part in self.parts])
        return _flat(scores)

    async def aoutcomes(self, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
        """As `outcomes`, on the caller's loop."""
        sample, run = self._admitted(input), Run.of(config or {}).for_sample()
        return _flat(await agather(aoutcome(part, sample, run, config) for part in self.parts))

    def as_node(self, key: str | None = None) -> Runnable[Any, dict[str, Any]]:
        """A LangGraph node: from the graph's state to `{name: Score}`.

        A bare Score would be lost: LangGraph takes its fields for state updates.

        Args:
            key: where the score goes in the state, the metric's name by default; several scores go there as a mapping.
        """

        def update(scores: dict[str, Score]) -> dict[str, Any]:
            if key is None:
                return dict(scores)
            return {key: next(iter(scores.values())) if len(self.parts) == 1 else scores}

        def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return update(self.outcomes(state, config))

        async def anode(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return update(await self.aoutcomes(state, config))

        return RunnableLambda(node, anode, name="+".join(self.names))

    def __call__(
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        reference_outputs: Any = None,
        context: Any = None,
        **metadata: Any,
    ) -> Feedback | list[Feedback]:
        """Score in openevals' calling convention.

        Returns:
            `{"key", "score", "comment", "metadata"}`, a list of them from a suite; the score is None, with the cause in
            the comment, when the judge failed or no value applies.

        Raises:
            SampleError: if what a metric reads is not among the arguments.
        """
        given = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "context": context}
        sample = Sample.parse({**{name: value for name, value in given.items() if value is not None}, **metadata})
        feedback = [score.feedback(sample.id) for score in self.outcomes(sample).values()]
        return feedback[0] if len(self.parts) == 1 else feedback

    def evaluate_run(
        self, run: TracedRun, example: Example | None = None, evaluator_run_id: UUID | None = None
    ) -> EvaluationResult | EvaluationResults:
        """Score a run of a LangSmith experiment; contexts also come from its retriever runs."""
        try:
            sample = Sample.parse(read_run(run, example))
            with untraced():
                scores = self.outcomes(sample)
        except SampleError as error:
            return self._results(self._all_failed(error), None)
        return self._results(scores, sample.id)

    async def aevaluate_run(
        self, run: TracedRun, example: Example | None = None, evaluator_run_id: UUID | None = None
    ) -> EvaluationResult | EvaluationResults:
        """As `evaluate_run`, on the caller's loop."""
        try:
            sample = Sample.parse(read_run(run, example))
            with untraced():
                scores = await self.aoutcomes(sample)
        except SampleError as error:
            return self._results(self._all_failed(error), None)
        return self._results(scores, sample.id)

    def _admitted(self, input: Any) -> Sample:
        sample = Sample.parse(input)
        for part in self.parts:
            part.read(sample)
        return sample

    def _all_failed(self, error: Exception) -> dict[str, Score]:
        return _flat([failures(part, error, Usage()) for part in self.parts])

    def _results(self, scores: dict[str, Score], sample_id: str | None) -> EvaluationResult | EvaluationResults:
        results = [EvaluationResult(**score.feedback(sample_id)) for score in scores.values()]
        return results[0] if len(self.parts) == 1 else EvaluationResults(results=results)


def _flat(scores: Sequence[dict[str, Score]]) -> dict[str, Score]:
    return {name: score for part in scores for name, score in part.items()}


def untraced() -> AbstractContextManager[None]:
    """Keep the judge's calls off LangSmith unless the user traces this process.

    Inside an experiment LangSmith turns tracing on for whatever an evaluator calls, and uploads it even with
    `upload_results=False`.
    """
    wanted = any(os.environ.get(name, "").lower() == "true" for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"))
    local = get_tracing_context().get("enabled") == "local"
    return nullcontext() if wanted and not local else tracing_context(enabled=False)
