"""Batch APIs of OpenAI and Anthropic, and model copies whose requests a `Recorder` answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from langchain_rageval.errors import ConfigError, JudgeUnavailable
from langchain_rageval.run.batch.recorder import BatchApi, BatchState, RecordedRequest, Recorder, StoredReply

_KEY = "rageval"
_ENDED = ("failed", "completed", "expired", "cancelled")
_UNANSWERED = 500
_MOST_LISTED = 1000  # the newest batches
_TESTED_OPENAI = "langchain-openai 1.0 to 1.7 with openai 2.0 to 3.54"
_TESTED_ANTHROPIC = "langchain-anthropic 1.7 with anthropic 2.12"
_STATUS_OF_ERROR = {"invalid_request_error": 400, "request_too_large": 413}
_SECONDS_TO_CREATE = 3600.0  # longest upload of a batch
_SETTINGS = {"cache": False, "callbacks": None, "rate_limiter": None, "streaming": False}
"""Fields of a model that are reset in a copy whose requests are recorded."""


class OpenAIBatches(BatchApi):
    """Batch API of OpenAI, or of a server that is compatible with OpenAI's."""

    provider = "OpenAI"
    max_requests = 50_000
    max_bytes = 200_000_000

    def submit(self, requests: Sequence[RecordedRequest], key: str) -> str:
        """Upload the requests as a file, create a batch from the file, and return the id of the batch.

        `key` is stored in the metadata of the batch.
        """
        content = "".join(map(batch_line, requests)).encode()
        file = self.client.files.create(file=(f"{_KEY}-{key}.jsonl", content), purpose="batch")
        batch = self.client.with_options(max_retries=0).batches.create(
            input_file_id=file.id, endpoint=f"/v1{requests[0].path}", completion_window="24h", metadata={_KEY: key}
        )
        return str(batch.id)

    def find(self, key: str, count: int, since: float) -> str | None:
        """Return the id of the batch whose metadata contain `key`; None if there is no such batch.

        `count` and `since` are not used.
        """
        seen = set()
        for batch in islice(self.client.batches.list(limit=100), _MOST_LISTED):
            if (batch.metadata or {}).get(_KEY) == key:
                return str(batch.id)
            if batch.id in seen:  # a server that sends the same page again
                return None
            seen.add(batch.id)
        return None

    def state(self, batch_id: str) -> BatchState:
        """Return the state of a batch."""
        batch = self.client.batches.retrieve(batch_id)
        counts = batch.request_counts
        errors = (batch.errors.data if batch.errors else None) or []
        refusal = "; ".join(error.message or error.code or "" for error in errors[:3]) or "no reason given"
        answered, failed = (counts.completed, counts.failed) if counts else (0, 0)
        return BatchState(batch.status in _ENDED, answered, failed, refusal if batch.status == "failed" else "")

    def replies(self, batch_id: str) -> Iterator[tuple[str, StoredReply]]:
        """Yield the custom id and the reply of each request, from the output file and the error file of a batch."""
        batch = self.client.batches.retrieve(batch_id)
        for file_id in filter(None, (batch.output_file_id, batch.error_file_id)):
            yield from _replies_in(self.client.files.content(file_id).text, file_id)


def _replies_in(text: str, file_id: str) -> Iterator[tuple[str, StoredReply]]:
    """Yield the replies in an output file, whose lines end at line feeds only: a reply may hold any other separator.

    Raises:
        JudgeUnavailable: if a line is cut off or damaged.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield batch_reply(json.loads(line))
            except ValueError as error:
                raise JudgeUnavailable(
                    f"line {number} of the output file {file_id} is cut off or damaged ({error}): start the run again "
                    "with the same journal, which has the replies of the lines before it"
                ) from None


def batch_line(request: RecordedRequest) -> str:
    """Return a request as one JSON line in OpenAI's batch format, with the line break."""
    head = json.dumps({"custom_id": request.id, "method": "POST", "url": f"/v1{request.path}"})
    body = request.body if "\n" not in request.body else json.dumps(json.loads(request.body), ensure_ascii=False)
    return f'{head[:-1]}, "body": {body}}}\n'


def batch_reply(line: Any) -> tuple[str, StoredReply]:
    """Return the custom id and the reply from a parsed line of an output file in OpenAI's batch format.

    Raises:
        ValueError: if the line has another format.
    """
    if not isinstance(line, dict) or not isinstance(line.get("custom_id"), str):
        raise ValueError("the key custom_id is missing")
    response, error = line.get("response"), line.get("error")
    if response is None and error is None:
        raise ValueError("the keys response and error are both missing")
    body = response.get("body") if isinstance(response, dict) else None
    if not isinstance(response, dict) or body is None:
        return line["custom_id"], StoredReply(_UNANSWERED, json.dumps({"error": error}, ensure_ascii=False))
    status = response.get("status_code") or (_UNANSWERED if error else 200)
    return line["custom_id"], StoredReply(int(status), json.dumps(body, ensure_ascii=False))


def recorded_openai(model: Any, recorder: Recorder) -> Any:
    """Return a copy of a ChatOpenAI or OpenAIEmbeddings whose requests `recorder` answers; None for other models."""
    names = [base.__name__ for base in type(model).__mro__]
    if any(name.startswith("Azure") for name in names):
        return None
    if "BaseChatOpenAI" in names:
        new = recorder.client_of(_sync_client(model, model.root_client, "openai", _TESTED_OPENAI), OpenAIBatches)
        return model.model_copy(update={"root_client": new, "client": new.chat.completions, **_SETTINGS})
    if "OpenAIEmbeddings" in names:
        root = _sync_client(model, getattr(model.client, "_client", None), "openai", _TESTED_OPENAI)
        return model.model_copy(update={"client": recorder.client_of(root, OpenAIBatches).embeddings})
    return None


def _sync_client(model: Any, client: Any, package: str, tested: str) -> Any:
    if client is None or not hasattr(client, "_client") or not hasattr(client, "with_options"):
        problem = f"{type(model).__name__} has no sync client of the package {package}, through which batches are sent"
        raise ConfigError(f"{problem}: install versions that have one, such as {tested}")
    return client


class AnthropicBatches(BatchApi):
    """Batch API of Anthropic (message batches)."""

    provider = "Anthropic"
    max_requests = 100_000
    max_bytes = 256_000_000

    def submit(self, requests: Sequence[RecordedRequest], key: str) -> str:
        """Create a batch and return its id; `key` is not used, because Anthropic's batches have no key."""
        items = [{"custom_id": request.id, "params": json.loads(request.body)} for request in requests]
        headers = dict(requests[0].headers)
        client = self.client.with_options(max_retries=0)
        return str(client.messages.batches.create(requests=items, extra_headers=headers).id)

    def find(self, key: str, count: int, since: float) -> str | None:
        """Return the id of the first batch that was created after `since` and has `count` requests.

        Anthropic's batches have no key, so the batch may belong to another run. Its replies are then not used, and the
        requests are sent again.
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

    def replies(self, batch_id: str) -> Iterator[tuple[str, StoredReply]]:
        """Yield the custom id and the reply of each request of a batch."""
        for item in self.client.messages.batches.results(batch_id):
            yield item.custom_id, _outcome_of(item.result)


def recorded_anthropic(model: Any, recorder: Recorder) -> Any:
    """Return a copy of a ChatAnthropic whose requests `recorder` answers; None for other models."""
    if "ChatAnthropic" not in [base.__name__ for base in type(model).__mro__]:
        return None
    client = _sync_client(model, getattr(model, "_client", None), "anthropic", _TESTED_ANTHROPIC)
    copy = model.model_copy(update=_SETTINGS)
    # `_client` is a cached property: its value is an entry of the instance's dictionary
    vars(copy)["_client"] = recorder.client_of(client, AnthropicBatches)
    return copy


def _counts(batch: Any) -> dict[str, int]:
    names = ("processing", "succeeded", "errored", "canceled", "expired")
    return {name: getattr(batch.request_counts, name) for name in names}


def _outcome_of(result: Any) -> StoredReply:
    if result.type == "succeeded":
        return StoredReply(200, result.message.to_json(indent=None))
    if result.type == "errored":
        status = _STATUS_OF_ERROR.get(getattr(result.error.error, "type", ""), _UNANSWERED)
        return StoredReply(status, result.error.to_json(indent=None))
    return StoredReply(_UNANSWERED, json.dumps({"error": {"message": result.type}}))
