"""Reading: the sample in a run, from the question that its root was asked to the answer that it gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import convert_to_messages

from langchain_rageval.callbacks.run_tree import Root
from langchain_rageval.data.schema import Sample


def sample_of(root: Root, inputs: Any, outputs: Any) -> Sample:
    """The sample of a run that has ended.

    Args:
        root: the run; contexts are what its retrievers gave, in the order in which they were asked; else what its
            inputs or outputs hold; else the last Documents that went from one step to another.
        inputs: give the question.
        outputs: give the answer.

    Raises:
        SampleError: if the question cannot be told.
    """
    given: dict[str, Any] = {
        "id": str(root.run_id),
        "inputs": with_messages(inputs),
        "outputs": with_messages(outputs),
        "metadata": root.metadata,
    }
    contexts = root.contexts
    sample = Sample.parse(given if contexts is None else given | {"contexts": contexts})
    if sample.contexts is None and root.documents:
        return Sample.parse(given | {"contexts": root.documents})
    return sample


def with_messages(value: Any) -> Any:
    """What goes in or out of a root, with messages in whatever form LangChain takes them as messages."""
    if hasattr(value, "to_messages"):  # a prompt
        return value.to_messages()
    if isinstance(value, Mapping) and value.get("messages"):
        return {**value, "messages": _messages(value["messages"])}
    return value


def _messages(value: Any) -> Any:
    given = value if isinstance(value, list | tuple) else [value]
    try:
        return convert_to_messages(given)
    except (ValueError, TypeError, NotImplementedError):  # no messages, only a key of that name
        return value
