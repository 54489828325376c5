"""Dry run: score a sample with every model call answered locally by word overlap, to estimate what the score costs.

Requests are built exactly as for a real run, so special cases, windows and shared steps are the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.sample_scores import score_sample
from langchain_rageval.metrics.structure import is_plannable, metrics_in, steps_with_fresh_capabilities
from langchain_rageval.metrics.value import Value
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import answer_request
from langchain_rageval.run.billing import request_texts
from langchain_rageval.run.embedding import EmbedBatch
from langchain_rageval.run.prices import PriceList
from langchain_rageval.run.requests import Call, Invoke, ModelRequest
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import UsageMeter, tokens_in
from langchain_rageval.steps.chain_step import models_in
from langchain_rageval.steps.stage import State

_EMBEDDINGS = HashingEmbeddings()
_SIMILARITY = 0.5

Parts = Mapping[str, Metric]
"""The metrics to run in place of one metric, by name."""


def dry_run_context(observe: Callable[[ModelRequest], None] | None = None, *, prices: PriceList | None = None) -> Run:
    """Return a run in which no model is called.

    Args:
        observe: function that receives each request before it is answered locally.
        prices: prices of the models.
    """

    def reply(request: ModelRequest) -> Any:
        if observe:
            observe(request)
        return local_reply(request)

    return Run(fake_reply=reply, meter=UsageMeter(prices=prices))


def plannable_parts(metric: AnyMetric) -> Parts:
    """Return the metrics inside a Runnable by name, the first of each name; empty if some calls cannot be predicted."""
    parts = [] if isinstance(metric, RunnableSequence) else metrics_in(metric)
    if not all(map(is_plannable, parts)):
        return {}
    return {
        part.name: part.model_copy(update={"steps": steps_with_fresh_capabilities(part), "reduce": _reduce_nothing})
        for part in reversed(parts)
    }


def dry_run(parts: Parts, sample: Sample, run: Run) -> dict[str, Score]:
    """Return the scores of a dry run; only their usage and failures are meaningful.

    Args:
        parts: the metrics, as `plannable_parts` returns them.
        sample: a sample of the real run.
        run: a run from `dry_run_context`, or a part of one.
    """
    return {name: score_sample(part, sample, run, None)[name] for name, part in parts.items()}


def _reduce_nothing(_state: State) -> Value:
    """Return no value: reducers make no calls, and those of users need not bear the answers of a dry run."""
    return Value.without("dry run")


def local_reply(call: ModelRequest) -> Any:
    """Return a local reply to a model request."""
    match call:
        case Call():
            human = next(message.text for message in call.messages if message.type == "human")
            reply = json.dumps(answer_request(call.schema, human, call.offline), ensure_ascii=False)
            read, written = tokens_in(*request_texts(call)), tokens_in(reply)
            usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
            return AIMessage(reply, usage_metadata=usage)
        case EmbedBatch(texts=texts):
            return _EMBEDDINGS.embed_documents(list(texts))
        case Invoke(chain, chain_input):
            read = tokens_in(_prompt_of(chain, chain_input))
            usage = {"input_tokens": read, "output_tokens": 0, "total_tokens": read}
            return [AIMessage("", usage_metadata=usage)] * max(1, sum(1 for _ in models_in(chain)))
        case _:
            return [_SIMILARITY] * len(call.pairs)


def _prompt_of(chain: Runnable[Any, Any], chain_input: Any) -> str:
    """Return the prompt that a chain begins with, as a text; the input of a chain that begins otherwise."""
    first = chain.first if isinstance(chain, RunnableSequence) else chain
    return first.invoke(chain_input).to_string() if isinstance(first, BasePromptTemplate) else str(chain_input)
