"""Calls to a user's RAG chain, and conversion of its output to a sample."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda

from langchain_rageval._internal.redaction import redact_message
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError, SampleError


def as_chain(chain: Any) -> Runnable[Any, Any]:
    """Return a Runnable unchanged, and a function wrapped into a RunnableLambda.

    Raises:
        ConfigError: if the argument is neither a Runnable nor a function.
    """
    if isinstance(chain, Runnable):
        return chain
    if not callable(chain):
        raise ConfigError(f"a chain must be a Runnable or a function of the question, got {type(chain).__name__}")
    return RunnableLambda(chain)


def takes_text(chain: Runnable[Any, Any]) -> bool:
    """Return True if the input schema of the chain is a string; False for any other or an unknown schema."""
    try:
        return bool(chain.get_input_jsonschema().get("type") == "string")
    except Exception:  # pydantic cannot describe the schema
        return False


def try_invoke(chain: Runnable[Any, Any], question: Any, config: RunnableConfig | None = None) -> Any:
    """Return the output of the chain, or the exception that it raised."""
    try:
        return chain.invoke(question, config)
    except Exception as error:
        return error


async def atry_invoke(chain: Runnable[Any, Any], question: Any, config: RunnableConfig | None = None) -> Any:
    """Like `try_invoke`, through the chain's async method."""
    try:
        return await chain.ainvoke(question, config)
    except Exception as error:
        return error


def with_output(sample: Sample, output: Any, chain: Any) -> Sample:
    """Return the sample with the answer and the contexts of a chain's output.

    Args:
        sample: the question; its answer is replaced.
        output: a text, a message, a mapping with any field names that `Sample.parse` reads, or the exception that the
            chain raised.
        chain: the chain, whose secrets are removed from the text of an error.

    Returns:
        A copy with the answer and, if the output has any, the contexts. If the output is an exception or cannot be
        read, the sample has no new answer and the error is in `metadata["error"]`.
    """
    if isinstance(output, Exception):
        return _with_error(sample, output, chain)
    if isinstance(output, BaseMessage):
        output = output.text
    if isinstance(output, str):
        return sample.model_copy(update={"answer": output})
    try:
        parsed = Sample.parse({"question": sample.question, **output})
    except (SampleError, TypeError) as error:
        return _with_error(sample, error, chain)
    update: dict[str, Any] = {"answer": parsed.answer}
    if parsed.contexts not in (None, sample.contexts):
        update |= {"contexts": parsed.contexts, "context_ids": parsed.context_ids}
    return sample.model_copy(update=update)


def _with_error(sample: Sample, error: Exception, chain: Any) -> Sample:
    message = f"{type(error).__name__}: {redact_message(error, chain)}"
    return sample.model_copy(update={"metadata": {**sample.metadata, "error": message}})
