"""Rehearsal: a metric gone through with every request answered on the spot by word overlap; nothing is sent.

Requests are made just as they would be sent, so edges, windows and shared steps are those of the run.
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
from langchain_rageval.metrics.sample_scores import score_sample
from langchain_rageval.metrics.structure import is_plannable, metrics_in, steps_with_fresh_capabilities
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import answer_offline
from langchain_rageval.run.billing import request_texts
from langchain_rageval.run.embedding import Batch
from langchain_rageval.run.requests import Call, ModelRequest
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import tokens_in

_EMBEDDINGS = HashingEmbeddings()
_SIMILARITY = 0.5

Parts = Mapping[str, Metric]
"""The metrics to rehearse in place of one, by name."""


def dry_run_context() -> Run:
    """A run in which nothing is sent."""
    return Run(fake_reply=_answered)


def plannable_parts(metric: AnyMetric) -> Parts:
    """The metric itself, or the first of each name behind wrappers; none where something unknown would be called."""
    parts = [] if isinstance(metric, RunnableSequence) else metrics_in(metric)
    if not all(map(is_plannable, parts)):
        return {}
    return {
        part.name: part.model_copy(update={"steps": steps_with_fresh_capabilities(part)}) for part in reversed(parts)
    }


def dry_run(parts: Parts, sample: Sample, run: Run) -> dict[str, Score]:
    """The scores, of which only what they cost means anything.

    Args:
        parts: as `parts_to_rehearse` gives them.
        sample: of the real run.
        run: a rehearsal.
    """
    return {name: score_sample(part, sample, run, None)[name] for name, part in parts.items()}


def _answered(call: ModelRequest) -> Any:
    """What a call is taken to be answered."""
    match call:
        case Call():
            human = next(message.text for message in call.messages if message.type == "human")
            reply = json.dumps(answer_offline(call.schema, human), ensure_ascii=False)
            read, written = tokens_in(*request_texts(call)), tokens_in(reply)
            usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
            return AIMessage(reply, usage_metadata=usage)
        case Batch(texts=texts):
            return _EMBEDDINGS.embed_documents(list(texts))
        case _:
            return [_SIMILARITY] * len(call.pairs)
