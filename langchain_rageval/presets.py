"""Presets: ready-made lists of metrics. A metric scores the samples that have all fields that the metric reads."""

from importlib import import_module
from inspect import Parameter, signature

from langchain_core.embeddings import Embeddings

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics import BUILDERS, PRESETS
from langchain_rageval.metrics.metric import Metric

__all__ = ["answer", "core", "retrieval"]


def core(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return faithfulness, answer relevance, context precision, context recall and answer correctness.

    If a sample lacks a field that a metric reads, this metric leaves the sample unscored. A note in the report counts
    the unscored samples.

    Args:
        judge: judge of all metrics.
        embeddings: embeddings for answer relevance and answer correctness; with None, the list omits these two metrics.
    """
    return _metrics_of("core", judge, embeddings)


def retrieval(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return context precision, context recall, context relevance and context entity recall.

    Args:
        judge: judge of all metrics.
        embeddings: ignored, because no metric of this list reads embeddings.
    """
    return _metrics_of("retrieval", judge, embeddings)


def answer(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return faithfulness, answer relevance, answer similarity and answer correctness.

    Args:
        judge: judge of the metrics that ask a judge.
        embeddings: embeddings for all metrics but faithfulness; with None, the list holds faithfulness only.
    """
    return _metrics_of("answer", judge, embeddings)


def _metrics_of(preset: str, judge: JudgeLike, embeddings: Embeddings | None) -> list[Metric]:
    arguments = {"judge": judge, "embeddings": embeddings, "model": embeddings}
    metrics = []
    for name in PRESETS[preset]:
        builder = getattr(import_module(BUILDERS[name]), name)
        parameters = [*signature(builder).parameters.values()]
        given = {one.name: arguments[one.name] for one in parameters if one.name in arguments}
        if None not in given.values() and all(
            one.name in given or one.default is not Parameter.empty for one in parameters
        ):
            metrics.append(builder(**given).optional())
    return metrics
