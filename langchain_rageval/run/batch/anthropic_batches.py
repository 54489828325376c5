"""Anthropic's message batches, and the models whose requests they answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from langchain_rageval.errors import ConfigError
from langchain_rageval.run.batch.batch_api import BatchApi, BatchReply, BatchState, RecordedRequest
from langchain_rageval.run.batch.recorder import Recorder

_STATUS_OF_ERROR = {"invalid_request_error": 400, "request_too_large": 413}
_UNANSWERED = 500
_MOST_LISTED = 1000  # the newest batches
_SECONDS_TO_CREATE = 3600.0  # longest upload of a batch
_TESTED = "langchain-anthropic 1.7 with anthropic 2.12"


class AnthropicBatches(BatchApi):
    """Anthropic's message batches."""

    provider = "Anthropic"
    max_requests = 100_000
    max_bytes = 256_000_000

    def submit(self, requests: Sequence[RecordedRequest], key: str) -> str:
        """Create a batch."""
        items = [{"custom_id": request.id, "params": json.loads(request.body)} for request in requests]
        headers = dict(requests[0].headers)
        client = self.client.with_options(max_retries=0)
        return str(client.messages.batches.create(requests=items, extra_headers=headers).id)

    def find(self, key: str, count: int, since: float) -> str | None:
        """Return the id of the first batch of as many requests that was created after a time; batches have no key.

        If it is another one, none of its replies are used, and the requests are sent again.
        """
        created = None
        for batch in islice(self.client.messages.batches.list(limit=100), _MOST_LISTED):
            time = batch.created_at.timestamp()
            if time < since - 1:
                break
            if sum(_counts(batch).values()) == count and time < since + _SECONDS_TO_CREATE:
                created = str(batch.id)
        return created

    def state(self, batch_id: str) -> BatchState:
        """Return the state of a batch."""
        batch = self.client.messages.batches.retrieve(batch_id)
        counts = _counts(batch)
        failed = counts["errored"] + counts["canceled"] + counts["expired"]
        return BatchState(batch.processing_status == "ended", counts["succeeded"], failed)

    def replies(self, batch_id: str) -> Iterator[BatchReply]:
        """Yield the results of a batch."""
        for item in self.client.messages.batches.results(batch_id):
            yield _reply_of(item)


def recorded_anthropic(model: Any, recorder: Recorder) -> Any:
    """Return a copy of a ChatAnthropic whose requests a recorder answers; None for other models."""
    if "ChatAnthropic" not in [base.__name__ for base in type(model).__mro__]:
        return None
    client = getattr(model, "_client", None)
    if client is None or not hasattr(client, "_client") or not hasattr(client, "with_options"):
        raise ConfigError(
            f"{type(model).__name__} has no client of the package anthropic, through which batches are sent; tested: "
            f"{_TESTED}"
        )
    settings = {"cache": False, "callbacks": None, "rate_limiter": None, "streaming": False}
    copy = model.model_copy(update=settings)
    # `_client` is a cached property: its value is an entry of the instance's dictionary
    vars(copy)["_client"] = recorder.client_of(client, AnthropicBatches)
    return copy


def _counts(batch: Any) -> dict[str, int]:
    names = ("processing", "succeeded", "errored", "canceled", "expired")
    return {name: getattr(batch.request_counts, name) for name in names}


def _reply_of(item: Any) -> BatchReply:
    result = item.result
    if result.type == "succeeded":
        return BatchReply(item.custom_id, 200, result.message.to_json(indent=None))
    if result.type == "errored":
        error = result.error
        status = _STATUS_OF_ERROR.get(getattr(error.error, "type", ""), _UNANSWERED)
        return BatchReply(item.custom_id, status, error.to_json(indent=None))
    return BatchReply(item.custom_id, _UNANSWERED, json.dumps({"error": {"message": result.type}}))
