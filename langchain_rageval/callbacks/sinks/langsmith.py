"""LangSmithSink: post scores as feedback on LangSmith runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from langsmith.utils import get_tracer_project

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langsmith import Client

_TRIES = 1  # the callback retries and counts the errors


class LangSmithSink:
    """Posts each score as feedback on its run; LangSmith must trace the chain.

    A score without a value is posted as None, with the cause in the comment. Feedback that is posted again replaces the
    earlier one.

    Args:
        client: `langsmith.Client()`. It posts synchronously, and its errors are raised.
        project: name of the project that the chain is traced to; None reads LangSmith's settings at the first row.

    Raises:
        ConfigError: if `client` has no method `create_feedback`.
    """

    def __init__(self, client: Client, project: str | None = None) -> None:
        if not callable(getattr(client, "create_feedback", None)):
            raise ConfigError(f"LangSmithSink takes a langsmith.Client(), got {type(client).__name__}")
        self._client = client
        self._name = project

    def __repr__(self) -> str:
        """Return the sink as text: only the name of its class, because the client may hold secrets."""
        return "LangSmithSink()"

    def __call__(self, row: Row) -> None:
        """Post the scores of a row to LangSmith."""
        run_id = str(row.sample.metadata["run_id"])
        for score in row.scores.values():
            feedback = score.feedback(row.sample.id)
            known = {**feedback["metadata"], "tags": row.tags or None}
            self._client.create_feedback(
                run_id=run_id,
                key=feedback["key"],
                score=feedback["score"],
                comment=feedback["comment"],
                source_info={name: value for name, value in known.items() if value is not None},
                feedback_id=uuid5(NAMESPACE_OID, f"{run_id} {score.metric}"),
                stop_after_attempt=_TRIES,
                **self._project_argument,
            )

    @cached_property
    def _project_argument(self) -> dict[str, Any]:
        """Keyword argument with the id of the project, which exists after the first traced run."""
        if not hasattr(self._client, "read_project"):
            return {}
        name = self._name or get_tracer_project() or "default"
        return {"session_id": self._client.read_project(project_name=name).id}
