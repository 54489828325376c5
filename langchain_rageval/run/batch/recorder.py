"""Recorder: answers a model's requests from stored replies, and collects unanswered requests for a batch API."""

from __future__ import annotations

import json
import sys
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import RunnableWithFallbacks
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval.errors import BudgetExceeded, ConfigError
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.usage import model_label, tokens_in

_BYTES_AROUND = 100  # a request in a batch
_RETRIES = 5  # of a request about a batch
_LASTING_REFUSALS = (400, 413, 422)  # the same request would be refused again; others the user may have resolved
_FREE_ATTEMPTS = 2  # waves that may lose a request before it is asked live
_HEADERS = ("anthropic-beta",)
_TOKEN_COUNTS = ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """HTTP request of a model's client, kept to be sent in a batch.

    Attributes:
        id: hash of the address, the body and the number of the draw (repetition of the same request); the custom id of
            the request in a batch.
        api: batch API of the client.
        path: path of the request, relative to the address of the API, such as "/chat/completions".
        body: JSON text.
        headers: the request headers that can change the reply.
        owner: sample and metric of the score that sent the request first.
    """

    id: str
    api: BatchApi
    path: str
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)
    owner: str = ""

    @property
    def size(self) -> int:
        """Number of bytes that the request takes up in a batch."""
        return len(self.body.encode()) + len(self.id) + len(self.path) + _BYTES_AROUND


@dataclass(frozen=True, slots=True)
class BatchState:
    """State of a batch, as its provider reports it.

    Attributes:
        has_ended: True if the provider will answer no further request of the batch.
        answered: number of requests with a reply.
        failed: number of requests that failed, expired or were cancelled.
        refusal: error message of the provider if it refused the whole batch.
    """

    has_ended: bool
    answered: int
    failed: int
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class StoredReply:
    """Reply to a model request, or the error that a batch returned for the request.

    Attributes:
        status: HTTP status; 500 if the request was not answered.
        body: JSON text of the reply or error.
        owner: sample and metric that are charged for the reply; None before a score has used the reply.
    """

    status: int
    body: str
    owner: str | None = None

    @property
    def is_final(self) -> bool:
        """True if the model answered or refused the request; False for a temporary error."""
        return self.status < 500 and self.status not in (408, 409, 425, 429)


class BatchApi(ABC):
    """Batch API of a provider, called through the client of a model.

    Attributes:
        provider: name of the provider.
        endpoint: address of the API.
        credential: API key of the client; batches that were created with another key cannot be seen.
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
        """Create a batch and return its id.

        A failed call is never retried, because the provider may have created the batch before the error.

        Args:
            requests: requests to one model and one path.
            key: key of the batch that this package chose, so that `find` can find the batch.
        """

    @abstractmethod
    def find(self, key: str, count: int, since: float) -> str | None:
        """Return the id of a batch that was submitted just before the process ended; None if no batch was created.

        Args:
            key: key of the batch that was passed to `submit`.
            count: number of requests in the batch.
            since: Unix time just before the batch was submitted.
        """

    @abstractmethod
    def state(self, batch_id: str) -> BatchState:
        """Return the state of a batch."""

    @abstractmethod
    def replies(self, batch_id: str) -> Iterator[tuple[str, StoredReply]]:
        """Yield the custom id and the reply of each request of a finished batch, in any order."""


def groups_of(requests: Iterable[RecordedRequest]) -> list[list[RecordedRequest]]:
    """Return requests in groups that can each form one batch: equal API, path, model and headers."""
    groups: dict[tuple[object, ...], list[RecordedRequest]] = {}
    for request in requests:
        model = json.loads(request.body).get("model")
        key = (id(request.api), request.path, str(model), tuple(request.headers.items()))
        groups.setdefault(key, []).append(request)
    return list(groups.values())


class ReplyStore:
    """Store of model replies, by the id of the request. Safe to use from several threads.

    Args:
        journal: file for the replies; None keeps the replies in memory.
        keeps_refusals: True to keep all refusals (HTTP errors) in the journal. False to keep there only refusals of the
            request itself (HTTP 400, 413 and 422). The other refusals, such as of a wrong API key, which the user may
            resolve, are then kept in memory.
    """

    def __init__(self, journal: Journal | None, *, keeps_refusals: bool = False) -> None:
        self.journal = journal
        self._keeps_refusals = keeps_refusals
        self._memory: dict[str, StoredReply] = {}
        self._lock = threading.RLock()

    def get(self, request_id: str) -> StoredReply | None:
        """Return the stored reply to a request; None if there is no reply."""
        with self._lock:
            if self.journal is None or request_id in self._memory:
                return self._memory.get(request_id)
            entry = self.journal.get(f"reply:{request_id}")
            return StoredReply(**json.loads(entry)) if entry else None

    def put(self, request_id: str, reply: StoredReply) -> None:
        """Store a reply."""
        is_lasting = reply.status < 400 or reply.status in _LASTING_REFUSALS or self._keeps_refusals
        with self._lock:
            if self.journal is None or request_id in self._memory or not is_lasting:
                self._memory[request_id] = reply
            else:
                self.journal.put(f"reply:{request_id}", json.dumps(asdict(reply), ensure_ascii=False))

    def forget(self, request_id: str) -> None:
        """Remove a reply from the journal, and keep it in memory.

        This run continues to use the reply, and a later run sends the request again. Nothing changes if there is no
        journal or no reply.
        """
        with self._lock:
            if (reply := self.get(request_id)) is not None and self.journal is not None:
                self._memory[request_id] = reply
                self.journal.put(f"reply:{request_id}", "")

    def claim(self, request_id: str, owner: str) -> bool:
        """Charge a reply to `owner`, the score that uses it first; return False if another owner is charged already."""
        with self._lock:
            if (reply := self.get(request_id)) is not None and reply.owner is None:
                self.put(request_id, replace(reply, owner=owner))
                return True
            return reply is not None and reply.owner == owner


class Unanswered(BaseException):
    """Raised by a call whose reply is not known yet; error handlers do not treat it as a failure of the model."""


@dataclass
class CallAttempt:
    """State of one attempt at a model call, shared by all HTTP requests that the model's client sends in the attempt.

    Attributes:
        recording: all requests made for the score that this call is part of, with the recorder that answers them.
        draw: number of the draw (repetition of the same request).
        rate_limiter: rate limiter to acquire before a request is sent at once instead of in a batch.
        is_charged: True if the reply counts in the usage of this score; False if it counts in that of another score.
    """

    recording: Recording
    draw: int
    rate_limiter: BaseRateLimiter | None
    is_charged: bool = False


_ATTEMPT: ContextVar[CallAttempt] = ContextVar("rageval_attempt")

Substitute = Callable[[Any, "Recorder"], Any]
"""Returns a copy of a model whose client sends its requests to a recorder; None for a model of another class."""


class Recorder:
    """Stored replies of a run, and its unanswered requests.

    The unanswered requests are collected and sent in batches. One round of batches is called a wave.

    Args:
        store: replies to the requests of earlier waves.
        substitutes: functions that copy a model so that this recorder answers its requests; one function for each
            supported class.
        supported: list of the supported models, used as the end of an error message.
        live: True if some requests may be sent at once instead of in a batch: the first request of each model, which
            shows the accepted format, and requests that two waves left unanswered. False if there is no network.

    Attributes:
        wave: requests collected for the next batches, by id.
        spent: cost of the requests that this run has sent.
        sent_live: number of requests that were sent at once instead of in a batch.
        is_live: the value of `live`.
        losses: number of waves that left a request unanswered, by the id of the request.
        refused: error that each further request raises, because the next wave exceeds the budget; None while the budget
            suffices.
    """

    def __init__(self, store: ReplyStore, substitutes: list[Substitute], supported: str, *, live: bool = True) -> None:
        self.store = store
        self.wave: dict[str, RecordedRequest] = {}
        self.spent = Cost()
        self.sent_live = 0
        self.refused: BudgetExceeded | None = None
        self.apis: dict[tuple[str, str, str], BatchApi] = {}
        self.is_live = live
        self._substitutes, self._supported = substitutes, supported
        self._clients: dict[int, tuple[Any, Any]] = {}  # with the original, so that its id is not reused
        self._answered: set[tuple[str, str]] = set()  # endpoint and model
        self.losses = Counter[str]()
        self._probing = threading.Lock()
        self._lock = threading.Lock()

    def model_of(self, model: Any) -> Any:
        """Return a copy of a model whose requests this recorder answers.

        A model inside a binding, a retry or a fallback is copied together with its wrapper.

        Raises:
            ConfigError: if the class of the model is not supported.
        """
        if isinstance(model, RunnableBindingBase):
            return model.model_copy(update={"bound": self.model_of(model.bound)})
        if isinstance(model, RunnableWithFallbacks):
            fallbacks = [self.model_of(fallback) for fallback in model.fallbacks]
            return model.model_copy(update={"runnable": self.model_of(model.runnable), "fallbacks": fallbacks})
        for substitute in self._substitutes:
            if (copy := substitute(model, self)) is not None:
                return copy
        raise ConfigError(f"{model_label(model)} has no supported batch API: {self._supported}")

    def records(self, model: Any) -> bool:
        """Return True if this recorder can answer the requests of a model, judged by the model's class."""
        try:
            self.model_of(model)
        except ConfigError:
            return False
        return True

    def client_of(self, client: Any, kind: type[BatchApi]) -> Any:
        """Return a copy of a provider's client whose requests are answered by this recorder.

        Args:
            client: client of the original model. The recorder uses it to send batches, and requests outside a batch.
            kind: class of the provider's batch API, such as `OpenAIBatches`; clients with the same address and key
                share one API object.
        """
        with self._lock:
            if id(client) not in self._clients:
                api = kind(client)
                api = self.apis.setdefault((api.provider, api.endpoint, api.credential), api)
                transport = _Transport(self, api, client._client)
                http_client = transport.library.Client(transport=transport)
                self._clients[id(client)] = client, client.with_options(http_client=http_client)
            return self._clients[id(client)][1]

    def take_wave(self) -> list[RecordedRequest]:
        """Return the requests collected for the next batches, and start a new collection."""
        with self._lock:
            requests, self.wave = list(self.wave.values()), {}
            return requests

    def count_sent(self, cost: Cost) -> None:
        """Add a cost to the cost of the requests that this run has sent."""
        with self._lock:
            self.spent = self.spent.plus(cost)

    def reply_to(self, request: RecordedRequest, send: Callable[[], StoredReply]) -> StoredReply:
        """Return the stored reply to a request of a model's client; without one, send the request or collect it.

        With `live=True`, requests are sent at once until the model has answered one. Later, a request is sent at once
        only if two waves (rounds of batches) left it unanswered. All other requests are collected for a batch.

        Args:
            request: the request of the client.
            send: function that sends the request at once, through the model's own HTTP client.

        Raises:
            Unanswered: if the request was collected, so that the reply is not known before the next wave.
        """
        attempt = _ATTEMPT.get()
        attempt.recording.used.append(request.id)
        request = replace(request, owner=attempt.recording.owner)
        reply = self.store.get(request.id)
        model = request.api.endpoint, str(json.loads(request.body).get("model"))
        if reply is None and self.is_live and self.refused is None:
            if self.losses[request.id] >= _FREE_ATTEMPTS:
                return self._send(request, attempt, send)
            if model not in self._answered:
                with self._probing:
                    reply = self.store.get(request.id)
                    if reply is None and model not in self._answered:
                        reply = self._send(request, attempt, send)
                        if reply.status < 400:
                            self._answered.add(model)
                        return reply
        if reply is None:
            with self._lock:
                self.wave.setdefault(request.id, request)
            raise Unanswered
        if reply.status < 400:
            self._answered.add(model)
        attempt.is_charged = self.store.claim(request.id, request.owner)
        return reply

    def _send(self, request: RecordedRequest, attempt: CallAttempt, send: Callable[[], StoredReply]) -> StoredReply:
        """Send a request at once; store the reply unless it is an error that may pass."""
        if attempt.rate_limiter is not None:
            attempt.rate_limiter.acquire()
        attempt.is_charged = True
        with self._lock:
            self.sent_live += 1
        reply = replace(send(), owner=request.owner)
        self.count_sent(cost_of(request)._replace(tokens=reported_tokens(reply)))
        if reply.is_final:
            self.store.put(request.id, reply)
        return reply


class _Transport:
    """HTTP transport of a client whose requests a recorder answers.

    Attributes:
        library: the HTTP library of the client: httpx, or httpx2 for newer versions of openai.
    """

    def __init__(self, recorder: Recorder, api: BatchApi, http_client: Any) -> None:
        self._recorder, self._api, self._http_client = recorder, api, http_client
        names = [base.__module__.partition(".")[0] for base in type(http_client).__mro__]
        self.library: Any = sys.modules[next(name for name in names if name.startswith("httpx"))]

    def handle_request(self, request: Any) -> Any:
        """Answer a request of the client."""
        body = request.read().decode()
        url = str(request.url)
        headers = {name: request.headers[name] for name in _HEADERS if name in request.headers}
        request_id = journal_key(url, json.loads(body), headers, _ATTEMPT.get().draw)
        path = url.partition("?")[0].removeprefix(self._api.endpoint)
        recorded = RecordedRequest(request_id, self._api, path, body, headers)
        raw = []

        def send() -> StoredReply:
            raw.append(self._http_client.send(request))
            return StoredReply(raw[0].status_code, raw[0].text)

        reply = self._recorder.reply_to(recorded, send)
        headers = {"content-type": "application/json"}
        if raw:
            headers |= {name: value for name, value in raw[0].headers.items() if name.lower() == "retry-after"}
        return self.library.Response(reply.status, headers=headers, content=reply.body.encode(), request=request)

    def close(self) -> None:
        """Close nothing: the model's own HTTP client belongs to the model."""


@dataclass(frozen=True)
class Recording:
    """Requests of one score, which the recorder of the run answers.

    Args:
        recorder: the recorder of the run.
        owner: sample and metric that the score belongs to.

    Attributes:
        used: ids of the requests that the score has made.
    """

    recorder: Recorder
    owner: str = ""
    used: list[str] = field(default_factory=list)

    def forget_replies(self) -> None:
        """Remove the replies of a failed score from the journal, so that a later run sends the requests again."""
        if self.recorder.is_live:
            for request_id in self.used:
                self.recorder.store.forget(request_id)

    @contextmanager
    def attempt(self, draw: int = 0, rate_limiter: BaseRateLimiter | None = None) -> Iterator[CallAttempt]:
        """Return a context for one attempt at a model call, in which stored replies answer the model client's requests.

        A request without a stored reply is recorded for the next batch, and raises `Unanswered` inside the context; the
        score is computed again after that batch. `draw` (number of the repetition of a request, from 0) and
        `rate_limiter` become attributes of the `CallAttempt` that the context yields.

        Raises:
            BudgetExceeded: in the place of `Unanswered`, if the budget allows no further batch.
        """
        attempt = CallAttempt(self, draw, rate_limiter)
        token = _ATTEMPT.set(attempt)
        try:
            yield attempt
        except Unanswered:
            if self.recorder.refused is not None:
                raise self.recorder.refused from None
            raise
        finally:
            _ATTEMPT.reset(token)


def cost_of(request: RecordedRequest) -> Cost:
    """Return the expected cost of a request: an estimate of its tokens, without the tokens of the reply."""
    is_embedding = request.path.endswith("/embeddings")
    return Cost(embeddings=1) if is_embedding else Cost(calls=1, tokens=tokens_in(request.body))


def reported_tokens(reply: StoredReply) -> int:
    """Return the number of tokens that a reply reports; 0 if the reply reports none."""
    try:
        body = json.loads(reply.body)
    except ValueError:
        return 0
    usage = body.get("usage") if isinstance(body, Mapping) else None
    if not isinstance(usage, Mapping):
        return 0
    return sum(count for name in _TOKEN_COUNTS if isinstance(count := usage.get(name), int))
