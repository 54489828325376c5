"""LangSmithSink: scores as feedback on the runs that LangSmith traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5

from langsmith.utils import get_tracer_project

from langchain_rageval._internal.cached import cached_property
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langsmith import Client

_TRIES = 1  # the callback tries again by itself, and counts


class LangSmithSink:
    """Posts each score as feedback on the run that it is of; LangSmith must trace the chain for there to be one.

    The score is None, with the cause in the comment, where there is no value. Feedback that is posted again takes its
    old place.

    Args:
        client: `langsmith.Client()`; it posts while this sink waits, and raises what goes wrong.
        project: name of the one that the chain is traced to; None takes LangSmith's own settings when the first row
            comes.

    Raises:
        ConfigError: if the client cannot create feedback.
    """

    def __init__(self, client: Client, project: str | None = None) -> None:
        if not callable(getattr(client, "create_feedback", None)):
            raise ConfigError(f"LangSmithSink takes a langsmith.Client(), got {type(client).__name__}")
        self._client = client
        self._name = project

    def __repr__(self) -> str:
        """The class; a client may hold secrets."""
        return "LangSmithSink()"

    def __call__(self, row: Row) -> None:
        """Post the scores of a row."""
        run_id = str(row.sample.metadata["run_id"])
        for score in row.scores.values():
            told = score.feedback(row.sample.id)
            self._client.create_feedback(
                run_id=run_id,
                key=told["key"],
                score=told["score"],
                comment=told["comment"],
                source_info={name: value for name, value in told["metadata"].items() if value is not None},
                feedback_id=uuid5(NAMESPACE_OID, f"{run_id} {score.metric}"),
                stop_after_attempt=_TRIES,
                **self._place,
            )

    @cached_property
    def _place(self) -> dict[str, Any]:
        """The id of the project, by which LangSmith finds a run; it is there when its first run has arrived."""
        if not hasattr(self._client, "read_project"):
            return {}
        name = self._name or get_tracer_project() or "default"
        return {"session_id": self._client.read_project(project_name=name).id}
