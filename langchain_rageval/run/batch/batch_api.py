"""Interface of a provider's batch API, and the requests, states and replies that it exchanges."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """Request as the model's client has serialized it.

    Attributes:
        id: hash of address, body and draw; the custom id of the request in a batch.
        api: batch API of the client.
        path: path of the request below the address of the API, such as "/chat/completions".
        body: JSON text.
        headers: headers that the reply depends on.
        owner: sample and metric that sent the request first.
    """

    id: str
    api: BatchApi
    path: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def size(self) -> int:
        """Length of the request in a batch, in bytes."""
        return len(self.body.encode()) + len(self.id) + len(self.path) + _BYTES_AROUND


_BYTES_AROUND = 100


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a batch at its provider.

    Attributes:
        has_ended: True if no further request of the batch will be answered.
        answered: number of requests with a reply.
        failed: number of requests that failed, expired or were cancelled.
        refusal: message of the provider if it refused the batch as a whole.
    """

    has_ended: bool
    answered: int
    failed: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class BatchReply:
    """Outcome of one request of a batch.

    Attributes:
        request_id: custom id of the request.
        status: HTTP status; 500 if the request was not answered.
        body: JSON text of the reply or error.
    """

    request_id: str
    status: int
    body: str


class BatchApi(ABC):
    """Batch API of a provider, called through the client of a model.

    Attributes:
        provider: name of the provider.
        endpoint: address of the API.
        credential: key of the client; batches of other keys are not visible to it.
    """

    provider: ClassVar[str]
    max_requests: ClassVar[int]
    max_bytes: ClassVar[int]

    def __init__(self, client: Any) -> None:
        self.client = client.with_options(max_retries=_RETRIES)
        self.endpoint = str(client.base_url).rstrip("/")
        self.credential = str(client.api_key)

    @abstractmethod
    def submit(self, requests: Sequence[RecordedRequest], key: str) -> str:
        """Create a batch and return its id; never retries, since the provider may have created one before an error.

        Args:
            requests: requests of one model and one path.
            key: own key of the batch, by which `find` finds it.
        """

    @abstractmethod
    def find(self, key: str, count: int, since: float) -> str | None:
        """Return the id of a batch that was submitted just before the process ended; None if it was not created.

        Args:
            key: own key of the batch.
            count: number of its requests.
            since: Unix time just before it was submitted.
        """

    @abstractmethod
    def state(self, batch_id: str) -> BatchState:
        """Return the state of a batch."""

    @abstractmethod
    def replies(self, batch_id: str) -> Iterator[BatchReply]:
        """Yield the outcomes of a batch that has ended, in any order."""


def groups_of(requests: Iterable[RecordedRequest]) -> list[list[RecordedRequest]]:
    """Return requests in groups that may form one batch: of one API, path and model, with equal headers."""
    groups: dict[tuple[object, ...], list[RecordedRequest]] = {}
    for request in requests:
        model = json.loads(request.body).get("model")
        key = (id(request.api), request.path, str(model), tuple(request.headers.items()))
        groups.setdefault(key, []).append(request)
    return list(groups.values())


_RETRIES = 5  # of a request about a batch
