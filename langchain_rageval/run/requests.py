"""Requests that an operation yields to its driver.

An operation is a generator without I/O. It yields a request and receives the reply; an error is raised inside the
generator. The drivers in `langchain_rageval.run.drivers` fulfil the requests, through a model's sync or async methods.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.embeddings import Embeddings
from langchain_core.messages import BaseMessage
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import Runnable

from langchain_rageval.run.adaptive_limiter import AdaptiveLimiter
from langchain_rageval.run.embedding import EmbedBatch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """Request to call a chat model. The reply is the message of the model.

    Transport errors are retried as the retry policy of the run allows.

    Args:
        model: any Runnable from messages to a message or a text.
        messages: the messages to send.
        options: keyword arguments of the model call.
        timeout_option: name of the keyword argument that sets the client's timeout in seconds; None if the client has
            none.
        client_enforces_timeout: True if the client itself ends the call after the timeout and does not retry. False if
            the run must enforce the timeout.
        sync_only: True if the model has no native async methods.
        first_error: transport error of a first try that the caller has already made. The driver then starts with the
            retries.
        rate_limiter: rate limiter to acquire before each try. The time spent waiting does not count as time of the
            model.
        schema: JSON schema that the reply must follow.
        gates: concurrency limits of the model itself, acquired before a slot of the run's own concurrency limit.
        retries_server_errors: False to raise a server error (HTTP 5xx) at once, so that the caller can find its cause.
        own_tries: maximum number of HTTP requests that the client sends for one call, including the client's own
            retries.
        draw: number of the draw (repetition of the same request), from 0.
        endpoint: the object that failures are counted for; None for the model.
        offline: function that produces the reply in a dry run, from a mapping of the names of the inputs in `messages`
            to their values; None for the answer of the offline judge.
    """

    model: Runnable[Any, Any]
    messages: Sequence[BaseMessage]
    options: dict[str, Any] = field(default_factory=dict)
    timeout_option: str | None = None
    client_enforces_timeout: bool = False
    sync_only: bool = False
    first_error: Exception | None = None
    rate_limiter: BaseRateLimiter | None = None
    schema: Mapping[str, Any] = field(default_factory=dict)
    gates: Sequence[AdaptiveLimiter] = ()
    retries_server_errors: bool = True
    own_tries: int = 1
    draw: int = 0
    endpoint: object = None
    offline: Callable[[Mapping[str, Any]], Any] | None = None


@dataclass(frozen=True, slots=True)
class Embed:
    """Request to embed texts. The reply is a list of vectors, in the order of the texts.

    Texts of several samples are sent in one batch.
    """

    embeddings: Embeddings
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate:
    """Request to score pairs of texts with a cross-encoder. The reply is a list of numbers, in order."""

    cross_encoder: BaseCrossEncoder
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Invoke:
    """Request to invoke the user's chain. The reply is the chain's output, or None in a dry run.

    The concurrency limit, the retries and the timeout apply as to one model call. A callback handler counts the model
    calls inside the chain.
    """

    chain: Runnable[Any, Any]
    input: Any


ModelRequest = Call | EmbedBatch | Rate | Invoke
"""Requests that are sent to a model, and retried after a transport error."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Request to run independent operations. The reply is the list of their results, in order.

    On an event loop the operations run concurrently. In threads they run concurrently only if the concurrency limiter
    has an idle slot for each operation. This is so near the end of a run, when few samples are left. Otherwise the
    operations run one after the other in the calling thread, because the calls of other samples use the slots.
    """

    operations: Sequence[Operation[Any]]


@dataclass(frozen=True, slots=True)
class Shared:
    """Request to run an operation once per key (single-flight). The reply is the result of the operation.

    If the run is already executing an operation with this key, or still holds its result, the reply is that result.
    """

    key: Hashable
    operation: Operation[Any]


@dataclass(frozen=True, slots=True)
class Locked:
    """Request to run an operation while holding the lock `gate`. The reply is the result of the operation."""

    gate: AdaptiveLimiter
    operation: Operation[Any]


@dataclass(frozen=True, slots=True)
class SendOnce:
    """Request to send a model request only once, without retries. An error is raised inside the operation."""

    request: ModelRequest


@dataclass(frozen=True, slots=True)
class InvokeChild:
    """Request to invoke a Runnable as a child run. The reply is the output of the Runnable.

    Args:
        runnable: Runnable to invoke, through its sync or async method.
        input: input of the Runnable.
        configurable: values to add to `config["configurable"]`; values already in the config take precedence.
    """

    runnable: Runnable[Any, Any]
    input: Any
    configurable: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compute:
    """Request to call a function of the user, sync or async. The reply is its result, or None in a dry run.

    On an event loop a sync function runs in a thread. Without an event loop, an async function runs on a new loop.
    """

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Count:
    """Request to count an event in the run's usage meter, such as which judge of a cascade answered.

    The report has a note with the counts of a cascade.
    """

    event: Hashable


@dataclass(frozen=True, slots=True)
class ValidReply:
    """Request to record that an endpoint gave a valid reply."""

    endpoint: object


@dataclass(frozen=True, slots=True)
class Pause:
    """Request to wait for some seconds without holding a slot of the concurrency limiter."""

    seconds: float


Request = (
    ModelRequest | Embed | Gather | Shared | Locked | SendOnce | Compute | InvokeChild | Count | ValidReply | Pause
)
"""Everything that an operation may yield."""

Operation = Generator[Request, Any, T]
"""A generator that yields requests, receives their replies and returns a result."""
