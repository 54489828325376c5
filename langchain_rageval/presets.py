"""Presets: lists of metrics for a first look, each of which scores the samples that have the fields it reads."""

from importlib import import_module
from inspect import Parameter, signature

from langchain_core.embeddings import Embeddings

from langchain_rageval.judge.judge import JudgeLike
from langchain_rageval.metrics import BUILDERS, PRESETS
from langchain_rageval.metrics.metric import Metric

__all__ = ["answer", "core", "retrieval"]


def core(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return faithfulness, answer relevance, context precision, context recall and answer correctness.

    A sample that lacks a field that a metric reads is unscored by this metric, and a note counts such samples.

    Args:
        judge: judge of all metrics.
        embeddings: embeddings of answer relevance and answer correctness, which are left out without them.
    """
    return _metrics_of("core", judge, embeddings)


def retrieval(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return context precision, recall, relevance and entity recall; see `core`."""
    return _metrics_of("retrieval", judge, embeddings)


def answer(judge: JudgeLike, embeddings: Embeddings | None = None) -> list[Metric]:
    """Return faithfulness, answer relevance, similarity and correctness, the last three with embeddings; see `core`."""
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
