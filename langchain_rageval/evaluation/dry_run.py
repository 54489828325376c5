"""Dry run: score a sample with every model call answered locally by word overlap, to estimate what the score costs.

Requests are built exactly as for a real run, so special cases, windows and shared steps are the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableSequence

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.outcome import outcome, parts_of
from langchain_rageval.models.offline_judge import HashingEmbeddings, answer_offline
from langchain_rageval.run.embedding import Batch
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import tokens_in
from langchain_rageval.run.work import Call, ModelRequest, shown_to

_EMBEDDINGS = HashingEmbeddings()
_SIMILARITY = 0.5

Parts = Mapping[str, Metric]
"""The metrics to run in place of one metric, by name."""


def dry_run_context() -> Run:
    """Return a run in which no model is called."""
    return Run(fake_reply=_fake_reply)


def plannable_parts(metric: AnyMetric) -> Parts:
    """Return the metrics inside wrappers by name, the first of each name; empty if one makes unknown calls."""
    parts = [] if isinstance(metric, RunnableSequence) else parts_of(metric)
    known = all(isinstance(part, Metric) and part.is_plannable for part in parts)
    return {part.name: part.with_fresh_capabilities() for part in reversed(parts)} if known else {}


def dry_run(parts: Parts, sample: Sample, run: Run) -> dict[str, Score]:
    """Return the scores of a dry run; only their usage and failures are meaningful.

    Args:
        parts: the metrics, as `plannable_parts` returns them.
        sample: a sample of the real run.
        run: a run from `dry_run_context`, or a part of one.
    """
    return {name: outcome(part, sample, run, None)[name] for name, part in parts.items()}


def _fake_reply(call: ModelRequest) -> Any:
    """Return a local reply to a model request."""
    match call:
        case Call():
            human = next(message.text for message in call.messages if message.type == "human")
            reply = json.dumps(answer_offline(call.schema, human), ensure_ascii=False)
            read, written = tokens_in(*shown_to(call)), tokens_in(reply)
            usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
            return AIMessage(reply, usage_metadata=usage)
        case Batch(texts=texts):
            return _EMBEDDINGS.embed_documents(list(texts))
        case _:
            return [_SIMILARITY] * len(call.pairs)
