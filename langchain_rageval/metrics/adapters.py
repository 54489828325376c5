"""Adapters turn metrics into evaluators of LangSmith, openevals and MLflow, LangGraph nodes, filters and routers."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langsmith import tracing_context
from langsmith.evaluation.evaluator import EvaluationResult, EvaluationResults, RunEvaluator
from langsmith.run_helpers import get_tracing_context

from langchain_rageval.data.field_names import read_run
from langchain_rageval.data.schema import Direction, Sample, Score, Usage
from langchain_rageval.errors import BelowThreshold, ConfigError, SampleError
from langchain_rageval.metrics.structure import (
    Scorer,
    ScorerGroup,
    acollect_scores,
    collect_scores,
    failure_scores,
    merge_scores,
    metrics_in,
)

if TYPE_CHECKING:
    from langsmith.schemas import Example
    from langsmith.schemas import Run as TracedRun
    from mlflow.entities import Feedback as Assessment
    from mlflow.entities import Trace
    from mlflow.genai.scorers import Scorer as MlflowScorer


Feedback = dict[str, Any]


class Adapters(ScorerGroup, RunEvaluator):
    """Methods that let LangSmith, openevals, LangGraph and MLflow call a metric or a suite."""

    @property
    def feedback_keys(self) -> list[str]:
        """Names of the scores. If the evaluator raises an exception, LangSmith records it under each name."""
        return [scorer.name for scorer in self._scorers]

    def as_node(self, key: str | None = None) -> Runnable[Any, dict[str, Any]]:
        """Return a LangGraph node: a Runnable from the graph's state to a state update, such as `{name: Score}`.

        A node returns a mapping, because LangGraph would read the fields of a bare Score as state updates.

        Args:
            key: key of the score in the graph's state; by default the score's name. With a `key`, the scores of a suite
                are stored under it as one mapping of names to scores; without, each score is stored under its own name.
        """

        def update(scores: dict[str, Score]) -> dict[str, Any]:
            if key is None:
                return dict(scores)
            return {key: next(iter(scores.values())) if len(self._scorers) == 1 else scores}

        def node(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return update(collect_scores(self, state, config))

        async def anode(state: Any, config: RunnableConfig) -> dict[str, Any]:
            return update(await acollect_scores(self, state, config))

        return RunnableLambda(node, anode, name="+".join(self.feedback_keys))

    def as_mlflow(self) -> MlflowScorer:
        """Return a scorer for `mlflow.genai.evaluate(data, scorers=[metric.as_mlflow()])`.

        The question, the answer and the references are read from inputs, outputs and expectations. If these contain no
        contexts, the contexts are read from the retriever spans of the trace. Each score is an MLflow assessment, and
        its rationale is the score's comment. If the judge fails, the assessment holds an error.

        Raises:
            ConfigError: if MLflow is not installed.
        """
        return mlflow_scorer(self, "+".join(self.feedback_keys))

    def __call__(
        self,
        *,
        inputs: Any = None,
        outputs: Any = None,
        reference_outputs: Any = None,
        context: Any = None,
        **metadata: Any,
    ) -> Feedback | list[Feedback]:
        """Score by the calling convention of openevals.

        Returns:
            `{"key", "score", "comment", "metadata"}`, or a list of them from a suite. The score is None if the judge
            failed or no value applies; the comment then says why.

        Raises:
            SampleError: if the arguments lack a field that a metric reads.
        """
        arguments = {"inputs": inputs, "outputs": outputs, "reference_outputs": reference_outputs, "context": context}
        sample = Sample.parse({**{name: value for name, value in arguments.items() if value is not None}, **metadata})
        feedback = [score.feedback(sample.id) for score in collect_scores(self, sample).values()]
        return feedback[0] if len(self._scorers) == 1 else feedback

    def evaluate_run(
        self, run: TracedRun, example: Example | None = None, evaluator_run_id: UUID | None = None
    ) -> EvaluationResult | EvaluationResults:
        """Score a run of a LangSmith experiment, and return an EvaluationResult, or several from a suite.

        Contexts are read from the run's outputs; if these have none, from the retriever runs within that run. If a
        field is missing or the judge fails, no exception is raised: the score is None, and the comment says why.
        """
        try:
            sample = Sample.parse(read_run(run, example))
            with untraced():
                scores = collect_scores(self, sample)
        except SampleError as error:
            return self._results(self._all_failed(error), None)
        return self._results(scores, sample.id)

    async def aevaluate_run(
        self, run: TracedRun, example: Example | None = None, evaluator_run_id: UUID | None = None
    ) -> EvaluationResult | EvaluationResults:
        """Score a run of a LangSmith experiment by async calls, on the caller's event loop.

        Returns an EvaluationResult, or several from a suite. If a field is missing or the judge fails, no exception is
        raised: the score is None, and the comment says why.
        """
        try:
            sample = Sample.parse(read_run(run, example))
            with untraced():
                scores = await acollect_scores(self, sample)
        except SampleError as error:
            return self._results(self._all_failed(error), None)
        return self._results(scores, sample.id)

    def _all_failed(self, error: Exception) -> dict[str, Score]:
        return merge_scores([failure_scores(scorer, error, Usage()) for scorer in self._scorers])

    def _results(self, scores: dict[str, Score], sample_id: str | None) -> EvaluationResult | EvaluationResults:
        results = [EvaluationResult(**score.feedback(sample_id)) for score in scores.values()]
        return results[0] if len(self._scorers) == 1 else EvaluationResults(results=results)


def untraced() -> AbstractContextManager[None]:
    """Return a context manager that turns LangSmith's tracing of an evaluator off, unless the user wants the traces.

    Inside an experiment, LangSmith traces every call of an evaluator, and uploads the traces even with
    `upload_results=False`. In an experiment with `upload_results=False`, tracing is always turned off. Elsewhere, it
    stays unchanged if the environment variable `LANGSMITH_TRACING` or `LANGCHAIN_TRACING_V2` is "true", else it is
    turned off.
    """
    requested = any(
        os.environ.get(name, "").lower() == "true" for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2")
    )
    local = get_tracing_context().get("enabled") == "local"
    return nullcontext() if requested and not local else tracing_context(enabled=False)


OnMissing = Literal["raise", "pass"]
"""Treatment of a score without a value, unscored or failed."""


def reaches(value: float, threshold: float, direction: Direction) -> bool:
    """Return True if a value is at least the threshold; if lower is better, at most the threshold."""
    return value >= threshold if direction == "higher" else value <= threshold


def below_threshold(score: Score, threshold: float) -> BelowThreshold:
    """Return the exception for a score that is worse than the threshold or has no value."""
    limit = f"at least {threshold:g}" if score.direction == "higher" else f"at most {threshold:g}"
    if score.value is None:
        return BelowThreshold(f"{score.metric} has no value ({score.comment}), {limit} is required", score, threshold)
    return BelowThreshold(f"{score.metric} is {score.value:.3f}, {limit} is required: {score.reason}", score, threshold)


def threshold_runnable(
    metric: Scorer, threshold: float, missing: OnMissing, decide: Callable[[Any, bool, Score], Any], name: str
) -> Runnable[Any, Any]:
    """Return a Runnable that scores its input and returns `decide(input, passed, score)`.

    `passed` is True if the score reaches the threshold, else False. If the score has no value, `passed` is True for the
    option `missing="pass"`, and False for `missing="raise"`; `decide` can then raise an exception.
    """
    if missing not in ("raise", "pass"):
        raise ConfigError(f"missing must be 'raise' or 'pass', got {missing!r}")
    if not isinstance(threshold, int | float) or not math.isfinite(threshold):
        raise ConfigError(f"threshold must be a finite number, got {threshold!r}")

    def passes(score: Score) -> bool:
        if score.value is None:
            return missing == "pass"
        return reaches(score.value, threshold, metric.direction)

    key = metric.name  # LangChain finds the metric for the graph only where a function loads it without an attribute

    def run(input: Any, config: RunnableConfig) -> Any:
        score = collect_scores(metric, input, config)[key]
        return decide(input, passes(score), score)

    async def arun(input: Any, config: RunnableConfig) -> Any:
        score = (await acollect_scores(metric, input, config))[key]
        return decide(input, passes(score), score)

    return RunnableLambda(run, arun, name=name)


_RETRIEVER = "RETRIEVER"
_REFUSED = re.compile(r"[^\w.\- ]")
_LONGEST_NAME = 200  # MLflow takes 250 characters, a prefix and "/output_tokens" among them


def mlflow_scorer(metric: ScorerGroup, name: str) -> MlflowScorer:
    """Return a metric or suite as an MLflow scorer.

    Args:
        metric: metric or suite.
        name: name of the scorer.

    Raises:
        ConfigError: if MLflow is not installed.
    """
    try:
        from mlflow.genai.scorers import scorer
    except ImportError:
        raise ConfigError("MLflow is not installed: pip install mlflow") from None

    computed = {part.name for part in metrics_in(metric) if not part.models}

    def score(
        inputs: Any = None, outputs: Any = None, expectations: Any = None, trace: Trace | None = None
    ) -> list[Assessment]:
        sample = Sample.parse(_fields(inputs, outputs, expectations, trace))
        return [_feedback(one, one.metric in computed) for one in collect_scores(metric, sample).values()]

    return scorer(name=mlflow_key(name))(score)


def mlflow_key(name: str) -> str:
    """Return a metric's name as a valid MLflow key: "@" becomes "_at_", any other invalid character becomes "_"."""
    return _REFUSED.sub("_", name.replace("@", "_at_")).strip(". ")[:_LONGEST_NAME] or "_"


def _fields(inputs: Any, outputs: Any, expectations: Any, trace: Trace | None) -> dict[str, Any]:
    """Return the arguments of a scorer as a record; contexts are also read from the retriever spans of the trace."""
    fields = {"inputs": inputs, "outputs": outputs, **_references(expectations)}
    fields = {name: value for name, value in fields.items() if value is not None}
    has_contexts = Sample.parse({"question": "", "answer": "", "references": []} | fields).contexts
    documents = [] if has_contexts or trace is None else list(_retrieved(trace))
    return fields | ({"contexts": documents} if documents else {})


def _references(expectations: Any) -> dict[str, Any]:
    """Return expectations as fields. MLflow's `expected_retrieved_context` lists documents by `doc_uri`."""
    if not isinstance(expectations, Mapping):
        return {"reference_outputs": expectations}
    rest = dict(expectations)
    expected = rest.pop("expected_retrieved_context", None)
    ids = [one["doc_uri"] for one in expected or () if isinstance(one, Mapping) and one.get("doc_uri")]
    texts = [one["content"] for one in expected or () if isinstance(one, Mapping) and one.get("content")]
    found = {"reference_context_ids": ids or None, "reference_contexts": texts or None}
    return {"reference_outputs": rest or None, **found}


def _retrieved(trace: Trace) -> Iterator[Any]:
    """Yield the documents of the retriever spans that are not inside another retriever span."""
    spans = {span.span_id: span for span in trace.data.spans}
    for span in spans.values():
        parent = spans.get(span.parent_id or "")
        while parent is not None and parent.span_type != _RETRIEVER:
            parent = spans.get(parent.parent_id or "")
        if span.span_type == _RETRIEVER and parent is None and isinstance(span.outputs, list):
            for document in span.outputs:
                uri = document.get("metadata", {}).get("doc_uri") if isinstance(document, Mapping) else None
                yield document if uri is None else {**document, "id": uri}  # by which MLflow's expectations name it


def _feedback(score: Score, is_computed: bool) -> Assessment:
    """Return a score as an assessment: the value with its rationale, or the error of the judge."""
    from mlflow.entities import AssessmentError, AssessmentSource, AssessmentSourceType, Feedback

    metadata = {"aspect": score.aspect, "direction": score.direction, "instrument": score.instrument}
    error = None
    if score.failure is not None:
        error = AssessmentError(error_code=score.failure.error, error_message=score.failure.message)
    kind = AssessmentSourceType.CODE if is_computed else AssessmentSourceType.LLM_JUDGE
    return Feedback(
        name=mlflow_key(score.metric),
        value=score.value,
        error=error,
        rationale=score.comment,
        source=AssessmentSource(source_type=kind, source_id="langchain-rageval"),
        metadata={name: value for name, value in metadata.items() if value},
    )
