"""LangfuseSink: post scores to the traces of Langfuse."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import NAMESPACE_OID, uuid5

from langchain_rageval.callbacks.trace_context import SPAN_ID, TRACE_ID, span_in
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langfuse import Langfuse


class LangfuseSink:
    """Posts each score to the Langfuse trace of its run; Langfuse must trace the chain.

    The trace is that of the span in which the chain is called, as in
    `with client.start_as_current_observation(name="answer"): chain.invoke(...)`. For synchronous calls, Langfuse's
    `CallbackHandler` in the same `callbacks` suffices. Otherwise give the id of the trace in the config of the call:
    `{"metadata": {"trace_id": "..."}}`.

    A score without a value is not posted, because Langfuse has no empty scores. A score that is posted again replaces
    the earlier one. The client sends scores in its own thread, logs its errors, and is flushed by `close`.

    Args:
        client: `langfuse.get_client()`.

    Raises:
        ConfigError: if `client` has no method `create_score`.
    """

    def __init__(self, client: Langfuse) -> None:
        if not callable(getattr(client, "create_score", None)):
            raise ConfigError(f"LangfuseSink takes langfuse.get_client(), got {type(client).__name__}")
        self._client = client

    def __repr__(self) -> str:
        """Return the sink as text: only the name of its class, because the client holds secrets."""
        return "LangfuseSink()"

    def __call__(self, row: Row) -> None:
        """Post the scores of a row to Langfuse.

        Raises:
            ConfigError: if the run belongs to no trace.
        """
        span = span_in(row.sample.metadata)
        if TRACE_ID not in span:
            raise ConfigError(
                f"run {row.sample.metadata.get('run_id')} belongs to no trace: call the chain in "
                '`with client.start_as_current_observation(name="answer")`, or add {"metadata": {"trace_id": "..."}} '
                "to its config"
            )
        for score in row.scores.values():
            if score.value is None:
                continue
            more = {"direction": score.direction, "aspect": score.aspect, "instrument": score.instrument, **row.tags}
            self._client.create_score(
                name=score.metric,
                value=score.value,
                trace_id=span[TRACE_ID],
                observation_id=span.get(SPAN_ID),
                score_id=str(uuid5(NAMESPACE_OID, f"{row.sample.metadata.get('run_id')} {score.metric}")),
                data_type="NUMERIC",
                comment=score.comment,
                metadata={name: value for name, value in more.items() if value is not None},
            )

    def close(self) -> None:
        """Wait until the client has sent the scores."""
        self._client.flush()
