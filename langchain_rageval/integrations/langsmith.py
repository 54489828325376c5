"""LangSmith: summary evaluators that give the mean of a metric over an experiment, with its interval.

Metrics and suites are evaluators of single runs: `client.evaluate(target, evaluators=[faithfulness(judge)])`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from langchain_rageval.data.field_names import read_run
from langchain_rageval.errors import ConfigError, SampleError
from langchain_rageval.evaluation.api import evaluate
from langchain_rageval.metrics.adapters import untraced
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.suite import Suite
from langchain_rageval.report.report import Report
from langchain_rageval.report.summary import MetricSummary

if TYPE_CHECKING:
    from langsmith.schemas import Example
    from langsmith.schemas import Run as TracedRun

_METADATA = ("low", "high", "scored", "unscored", "failed", "direction", "calls")
SummaryEvaluator = Callable[["Sequence[TracedRun]", "Sequence[Example]"], dict[str, Any]]


def summary_evaluator(metric: Metric | Suite, *, max_concurrency: int = 16) -> SummaryEvaluator:
    """Build an evaluator of a whole experiment, for the `summary_evaluators` of LangSmith's `client.evaluate`.

    The evaluator scores every run itself, because LangSmith does not pass on the results of single-run evaluators. If
    the metric is also among the `evaluators`, the model calls are paid twice, unless the judge's model has a cache.

    Args:
        metric: a metric; or a suite, which gives one feedback per metric.
        max_concurrency: maximum number of model calls at a time.

    Returns:
        A function that takes runs and examples and returns feedback. The score of the feedback is the mean over the
        scored runs, None if no run was scored. The comment gives the 95% interval and the numbers of scored, unscored
        and failed runs.

    Raises:
        ConfigError: if `metric` is neither a metric nor a suite.
    """
    if not isinstance(metric, Metric | Suite):
        raise ConfigError(f"summary_evaluator takes a metric or a suite, got {type(metric).__name__}")

    def summarize(runs: Sequence[TracedRun], examples: Sequence[Example]) -> dict[str, Any]:
        with untraced():
            report = evaluate(_samples(runs, examples), metric, max_concurrency=max_concurrency, progress=False)
        summary = report.summary()
        results = [_feedback(summary[name], report) for name in metric.feedback_keys if name in summary]
        return results[0] if len(results) == 1 else {"results": results}

    summarize.__name__ = f"mean_{'_'.join(metric.feedback_keys)}"
    return summarize


def _samples(runs: Sequence[TracedRun], examples: Sequence[Example]) -> Iterator[dict[str, Any]]:
    for run, example in zip(runs, examples, strict=True):
        try:
            yield read_run(run, example)
        except SampleError:
            yield {"inputs": example.inputs, "outputs": run.outputs}  # evaluate records the same error as a failure


def _feedback(metric: MetricSummary, report: Report) -> dict[str, Any]:
    counts = f"{metric.scored} scored, {metric.unscored} unscored, {metric.failed} failed"
    interval = f"95% interval {metric.interval}; " if metric.interval else ""
    causes = {score.comment for _, score in report.failures() if score.metric == metric.metric}
    comment = f"{interval}{counts}" + (f"; {min(causes)}" if causes else "")
    metadata = {name: getattr(metric, name) for name in _METADATA} | {"notes": report.notes}
    return {"key": metric.metric, "score": metric.mean, "comment": comment, "metadata": metadata}
