"""Dry run: score samples by word overlap, not by a model, to estimate cost, request length and number of batches."""

from __future__ import annotations

import json
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from langchain_core.messages import AIMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableSequence

from langchain_rageval.data.schema import Sample, Score
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.judge.endpoint import model_identity
from langchain_rageval.judge.ladder import bound_options, inner_models
from langchain_rageval.metrics.metric import Metric
from langchain_rageval.metrics.structure import (
    is_plannable,
    metrics_in,
    names_of,
    score_sample,
    steps_with_fresh_capabilities,
)
from langchain_rageval.metrics.supported import Value
from langchain_rageval.models.hashing_embeddings import HashingEmbeddings
from langchain_rageval.models.offline_judge import answer_request
from langchain_rageval.run.batch.recorder import Unanswered
from langchain_rageval.run.billing import request_texts
from langchain_rageval.run.embedding import EmbedBatch
from langchain_rageval.run.requests import Call, Invoke, ModelRequest
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage import PriceList, UsageMeter, tokens_in
from langchain_rageval.steps.step import models_in

_EMBEDDINGS = HashingEmbeddings()

Parts = Mapping[str, Metric]
"""The metrics to run in place of one metric, by name."""


def dry_run_context(*, prices: PriceList | None = None) -> Run:
    """Return a run that calls no model, and counts the calls and tokens that a real run would probably need.

    With `prices`, the run also counts the cost of these calls and tokens.
    """
    return Run(fake_reply=local_reply, meter=UsageMeter(prices=prices))


def plannable_parts(metric: AnyMetric) -> Parts:
    """Return the metrics inside a Runnable by name, prepared for a dry run; empty if some calls cannot be predicted.

    If several metrics have the same name, the first is returned. The returned metrics give scores without a value,
    because their reducers (functions that compute the value) are replaced: reducers make no calls, and a reducer of the
    user may fail on the answers of a dry run.
    """
    parts = [] if isinstance(metric, RunnableSequence) else metrics_in(metric)
    if not all(map(is_plannable, parts)):
        return {}
    return {
        part.name: part.model_copy(
            update={"steps": steps_with_fresh_capabilities(part), "reduce": lambda _: Value.without("dry run")}
        )
        for part in reversed(parts)
    }


def dry_run(parts: Parts, sample: Sample, run: Run) -> dict[str, Score]:
    """Return the scores of a dry run of metrics on a sample; only their usage and failures are meaningful.

    Args:
        parts: the metrics, as returned by `plannable_parts`.
        sample: a sample of the real run.
        run: a run from `dry_run_context`, or a run derived from it.
    """
    return {name: score_sample(part, sample, run, None)[name] for name, part in parts.items()}


def local_reply(call: ModelRequest) -> Any:
    """Return a placeholder for the reply to a model request, computed without a model, to estimate the cost.

    The answer of a judge is that of `OfflineJudge` (by word overlap), and embeddings are those of `HashingEmbeddings`.
    For a call of a user's chain, the reply is an empty message for each model in the chain, at least one. The score
    that a cross-encoder would give to a pair of texts is 0.5.
    """
    match call:
        case Call():
            human = next(message.text for message in call.messages if message.type == "human")
            reply = json.dumps(answer_request(call.schema, human, call.offline), ensure_ascii=False)
            return _message(reply, *request_texts(call))
        case EmbedBatch(texts=texts):
            return _EMBEDDINGS.embed_documents(list(texts))
        case Invoke(chain, chain_input):
            return [_message("", _prompt_of(chain, chain_input))] * max(1, sum(1 for _ in models_in(chain)))
        case _:
            return [0.5] * len(call.pairs)


def _message(reply: str, *texts: str) -> AIMessage:
    """Return a reply to texts as the message of a model, with the tokens of both."""
    read, written = tokens_in(*texts), tokens_in(reply)
    usage = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return AIMessage(reply, usage_metadata=usage)


def _prompt_of(chain: Runnable[Any, Any], chain_input: Any) -> str:
    """Return the prompt that a chain begins with, as a text; the input of a chain that begins otherwise."""
    first = chain.first if isinstance(chain, RunnableSequence) else chain
    return first.invoke(chain_input).to_string() if isinstance(first, BasePromptTemplate) else str(chain_input)


def request_depth(parts: Iterable[Parts], sample: Sample) -> int:
    """Return the number of batches that must follow one another to score a sample with some metrics.

    As in a run through a batch API, the metrics are run repeatedly from the beginning until they make no new request.

    Args:
        parts: the result of `plannable_parts` for each metric.
        sample: sample to score; a metric that cannot read the sample is left out.
    """
    answered, waves, asked = set[Hashable](), -1, set[Hashable]([None])

    def reply(request: ModelRequest) -> Any:
        match request:
            case Call():
                key: Hashable = (*request_texts(request), request.draw)
            case EmbedBatch(texts=texts):
                key = tuple(texts)
            case Invoke(chain, chain_input):
                key = id(chain), repr(chain_input)
            case _:
                return local_reply(request)
        if key not in answered:
            asked.add(key)
            raise Unanswered
        return local_reply(request)

    while asked:
        waves, answered, asked = waves + 1, answered | asked, set[Hashable]()
        run = Run(fake_reply=reply).for_sample()
        for part in (part for by_name in parts for part in by_name.values()):
            with suppress(Unanswered):
                score_sample(part, sample, run, None)
    return waves


_OTHER_CHARACTERS_PER_TOKEN = 2.5  # of Russian text in the encoding cl100k_base; newer ones need fewer tokens
_ASCII_CHARACTERS_PER_TOKEN = 4
_LONGEST_INSTRUCTIONS = 6_000  # tokens of a request without the texts of the sample, in any layout


def warn_of_long_requests(samples: Any, metrics: Sequence[AnyMetric]) -> None:
    """Warn if a request about the longest sample exceeds the known context window of its model.

    Only samples in a list are checked, because other sources are not read in advance. Metrics whose calls cannot be
    predicted are not checked.

    Args:
        samples: the samples of the run, as returned by `prepare_samples`.
        metrics: the metrics of the run.

    Warns:
        UserWarning: once for each metric with a request that is too long.
    """
    readable = [sample for sample in samples if isinstance(sample, Sample)] if isinstance(samples, Sequence) else []
    if not readable:
        return
    longest = max(readable, key=lambda sample: sum(map(len, texts_of(sample))))
    needed = 2 * estimated_tokens(*texts_of(longest)) + _LONGEST_INSTRUCTIONS
    for metric in metrics:
        known = [context_window(model) for part in metrics_in(metric) for model in part.models]
        smallest = min(filter(None, known), default=needed)
        excess = _largest_excess(metric, longest) if needed > smallest else None
        if excess:
            tokens, window, model = excess
            warnings.warn(
                f"{', '.join(names_of(metric))}: a request about sample {longest.id!r} has about {tokens:,} "
                f"tokens, more than the context window of {window:,} tokens of {model}: use "
                'Judge(model, max_context_tokens=...), layout="contexts_first" or a model with a larger window',
                stacklevel=5,  # the caller of `evaluate`
            )


def context_window(model: Any) -> int | None:
    """Return the number of tokens that a model accepts; None if it is unknown.

    For a Runnable with several models, this is the smallest number.
    """
    bound = bound_options(model)
    windows = []
    for inner in inner_models(model):
        profile = getattr(inner, "profile", None)
        found = profile.get("max_input_tokens") if isinstance(profile, Mapping) else None
        windows += [bound.get("num_ctx"), getattr(inner, "num_ctx", None), found]
    return min((window for window in windows if isinstance(window, int) and window > 0), default=None)


def estimated_tokens(*texts: str) -> int:
    """Estimate the number of tokens of texts: one token for 4 ASCII characters, or for 2.5 other characters."""
    ascii_characters = sum(len(text.encode("ascii", "ignore")) for text in texts)
    others = sum(map(len, texts)) - ascii_characters
    return round(ascii_characters / _ASCII_CHARACTERS_PER_TOKEN + others / _OTHER_CHARACTERS_PER_TOKEN)


def _largest_excess(metric: AnyMetric, sample: Sample) -> tuple[int, int, str] | None:
    """Return tokens of the largest request about a sample that exceeds the window of its model, window and model."""
    found: list[tuple[int, int, str]] = []

    def reply(request: ModelRequest) -> Any:
        if isinstance(request, Call) and (window := context_window(request.model)):
            tokens = estimated_tokens(*request_texts(request))
            if tokens > window:
                found.append((tokens, window, model_identity(request.model)))
        return local_reply(request)

    dry_run(plannable_parts(metric), sample, Run(fake_reply=reply))
    return max(found, default=None)


def texts_of(sample: Sample) -> list[str]:
    """Return the texts of a sample that a judge may read."""
    return [sample.question, sample.answer or "", *(sample.contexts or []), *sample.references]
