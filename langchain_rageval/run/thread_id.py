"""Id of the conversation (thread) that a run of a chain is a turn of, from the config of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.runnables.config import var_child_runnable_config

_NAMES = ("conversation", "conversation_id", "thread_id", "session_id")


def thread_id_in(values: Mapping[str, Any] | None) -> str | None:
    """Return the id of the conversation in the metadata or the configurable values of a run; None if there is none."""
    found = (values.get(name) for name in _NAMES) if values else ()
    return next((str(value) for value in found if value is not None and str(value).strip()), None)


def enclosing_thread_id() -> str | None:
    """Return the id of the conversation in the configurable values of the run around a step that is starting.

    LangChain passes configurable values, such as the `session_id` of a `RunnableWithMessageHistory`, to the steps of a
    run and not to its callback handlers.
    """
    config = var_child_runnable_config.get()
    return thread_id_in(config.get("configurable")) if config else None
