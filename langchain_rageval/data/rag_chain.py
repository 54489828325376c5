"""A user's chain: what it takes, what it gives, and what becomes of a sample by it."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableLambda

from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError


def as_chain(given: Any) -> Runnable[Any, Any]:
    """A chain as it is, a function as the chain of it.

    Raises:
        ConfigError: if it is neither.
    """
    if isinstance(given, Runnable):
        return given
    if not callable(given):
        raise ConfigError(f"a chain is a Runnable or a function of the question, got {type(given).__name__}")
    return RunnableLambda(given)


def takes_text(chain: Runnable[Any, Any]) -> bool:
    """Whether it takes the question itself, no mapping, as far as it tells."""
    try:
        return bool(chain.get_input_jsonschema().get("type") == "string")
    except Exception:  # a schema that pydantic cannot describe tells nothing
        return False


def try_invoke(chain: Runnable[Any, Any], question: Any) -> Any:
    """What the chain gives, or what it raised."""
    try:
        return chain.invoke(question)
    except Exception as error:
        return error


def with_output(sample: Sample, output: Any) -> Sample:
    """The sample with the answer, and the contexts where there are some, that a chain gave for it.

    Args:
        sample: without an answer.
        output: a text, a message, or a mapping in any vocabulary that `Sample.parse` reads; or what the chain raised,
            which goes into `metadata["error"]`.
    """
    if isinstance(output, Exception):
        return _without(sample, output)
    if isinstance(output, BaseMessage):
        output = output.text
    if isinstance(output, str):
        return sample.model_copy(update={"answer": output})
    try:
        found = Sample.parse({"question": sample.question, **output})
    except (SampleError, TypeError) as error:
        return _without(sample, error)
    told: dict[str, Any] = {"answer": found.answer}
    if found.contexts not in (None, sample.contexts):
        told |= {"contexts": found.contexts, "context_ids": found.context_ids}
    return sample.model_copy(update=told)


def _without(sample: Sample, error: Exception) -> Sample:
    told = f"{type(error).__name__}: {error}"
    return sample.model_copy(update={"metadata": {**sample.metadata, "error": told}})
