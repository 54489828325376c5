"""Sample reader: build the sample of a run from its inputs, outputs and retrieved Documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import convert_to_messages

from langchain_rageval.run.run_trees import RootRun
from langchain_rageval.data.schema import Sample


def read_sample(root: RootRun, inputs: Any, outputs: Any) -> Sample:
    """Return the sample of a run that has ended.

    Args:
        root: the run. Its retrieved Documents, in the order in which the retrievers started, are the contexts; else the
            contexts in its inputs or outputs; else the Documents that passed between steps last.
        inputs: inputs of the run, which hold the question.
        outputs: outputs of the run, which hold the answer.

    Raises:
        SampleError: if no question is found.
    """
    fields: dict[str, Any] = {
        "id": str(root.run_id),
        "inputs": _convert_messages(inputs),
        "outputs": _convert_messages(outputs),
        "metadata": root.metadata,
    }
    contexts = root.contexts
    sample = Sample.parse(fields if contexts is None else fields | {"contexts": contexts})
    if sample.contexts is None and root.documents:
        return Sample.parse(fields | {"contexts": root.documents})
    return sample


def _convert_messages(value: Any) -> Any:
    """Return inputs or outputs with messages in any form that LangChain accepts converted to message objects."""
    if hasattr(value, "to_messages"):  # a prompt value
        return value.to_messages()
    if isinstance(value, Mapping) and value.get("messages"):
        return {**value, "messages": _to_messages(value["messages"])}
    return value


def _to_messages(value: Any) -> Any:
    items = value if isinstance(value, list | tuple) else [value]
    try:
        return convert_to_messages(items)
    except (ValueError, TypeError, NotImplementedError):  # the key holds something else
        return value
