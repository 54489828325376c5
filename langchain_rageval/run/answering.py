"""Answering: send the questions of samples to a user's RAG chain."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from langchain_rageval.data.rag_chain import atry_invoke, takes_text, try_invoke, with_output
from langchain_rageval.data.schema import Sample
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.threads import shared_threads

MAX_QUESTIONS = 8
"""Default number of questions in flight."""


def answer_samples(
    samples: Sequence[Sample],
    chain: Runnable[Any, Any],
    max_concurrency: int = MAX_QUESTIONS,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """Return samples with the answers and contexts of a chain, in order.

    Args:
        samples: samples whose questions are sent; their answers are replaced.
        chain: Runnable that takes the question as a str, or a mapping with the keys `question` and `input`.
        max_concurrency: maximum number of questions in flight.
        config: LangChain config of the calls.

    Returns:
        Copies of the samples. If the chain failed, `answer` is None and `metadata["error"]` holds the error.
    """
    # `batch` is not used: behind `with_retry` it returns the answer to one question for another one.
    calls = [partial(try_invoke, chain, value, config) for value in _inputs(samples, chain)]
    return _with_outputs(samples, shared_threads().spread(calls, max_concurrency), chain)


async def aanswer_samples(
    samples: Sequence[Sample],
    chain: Runnable[Any, Any],
    max_concurrency: int = MAX_QUESTIONS,
    config: RunnableConfig | None = None,
) -> list[Sample]:
    """Like `answer_samples`, through the chain's async method on the caller's event loop."""
    slots = asyncio.Semaphore(max_concurrency)

    async def ask(value: Any) -> Any:
        async with slots:
            return await atry_invoke(chain, value, config)

    return _with_outputs(samples, await agather(map(ask, _inputs(samples, chain))), chain)


def _inputs(samples: Sequence[Sample], chain: Runnable[Any, Any]) -> list[Any]:
    questions = [sample.question for sample in samples]
    return questions if takes_text(chain) else [{"question": text, "input": text} for text in questions]


def _with_outputs(samples: Sequence[Sample], outputs: Sequence[Any], chain: Runnable[Any, Any]) -> list[Sample]:
    return [with_output(_unanswered(sample), output, chain) for sample, output in zip(samples, outputs, strict=True)]


def _unanswered(sample: Sample) -> Sample:
    """Return the sample without the answer or the error of an earlier chain."""
    metadata = {name: value for name, value in sample.metadata.items() if name != "error"}
    return sample.model_copy(update={"answer": None, "metadata": metadata})
