"""answered_by: a RAG chain as a Runnable from samples to samples with answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.data.rag_chain import as_chain
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import SampleError
from langchain_rageval.evaluation.inputs import SamplesSchema, iterate_samples, prepare_samples
from langchain_rageval.run.answering import MAX_QUESTIONS, aanswer_samples, answer_samples
from langchain_rageval.run.options import check_options
from langchain_rageval.run.traced import Traced


class AnsweredBy(Traced[Any, list[Sample]]):
    """Runnable that asks a RAG chain the question of every sample.

    Attributes:
        chain: chain of the user.
        max_concurrency: maximum number of questions in flight.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    chain: InstanceOf[Runnable[Any, Any]]
    max_concurrency: int

    @property
    def InputType(self) -> Any:
        """Type of the samples, for schemas."""
        return SamplesSchema

    def _do(self, input: Any, config: RunnableConfig) -> list[Sample]:
        samples = _parse(prepare_samples(input, ()))
        return answer_samples(samples, self.chain, self.max_concurrency, config)

    async def _ado(self, input: Any, config: RunnableConfig) -> list[Sample]:
        samples = _parse([item async for item in iterate_samples(prepare_samples(input, ()))])
        return await aanswer_samples(samples, self.chain, self.max_concurrency, config)


def answered_by(
    chain: Runnable[Any, Any] | Callable[[Any], Any], *, max_concurrency: int = MAX_QUESTIONS
) -> Runnable[Any, list[Sample]]:
    """Return a Runnable that asks a RAG chain every question: from a Testset or samples to samples with answers.

    `generator | answered_by(rag_chain) | scored_by(metrics)` goes from documents to a Report.

    Args:
        chain: Runnable or function. It takes the question as a str, or a mapping with the keys `question` and `input`,
            and returns a str, a message, or a mapping in any vocabulary that `Sample.parse` reads.
        max_concurrency: maximum number of questions in flight.

    Returns:
        A Runnable whose input is a Testset or samples in any form that `evaluate` takes. Its output is the list of
        samples with new answers, and with new contexts if the chain returns any. If the chain failed, `answer` is None
        and `metadata["error"]` holds the error.

    Raises:
        ConfigError: if `chain` is neither a Runnable nor a function, or `max_concurrency` is invalid.
    """
    check_options({"max_concurrency": max_concurrency})
    return AnsweredBy(name="answered_by", chain=as_chain(chain), max_concurrency=max_concurrency)


def _parse(items: Iterable[Any]) -> list[Sample]:
    """Return items as samples with distinct ids; an item that could not be read raises its error."""
    read = list(items)
    for item in read:
        if isinstance(item, SampleError):
            raise item
    samples: list[Sample] = prepare_samples(read, ())
    return samples
