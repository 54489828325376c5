"""Requests that an operation yields to its driver.

An operation is a generator without I/O: it yields a request and receives the reply, or the error is raised in it. The
drivers in `langchain_rageval.run.drivers` fulfil the requests, through a model's sync or async methods.
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
    """Call a chat model; the reply is its message. Transport errors are retried as the run's policy allows.

    Args:
        model: any Runnable from messages to a message or a text.
        messages: the messages to send.
        options: keyword arguments of the call.
        timeout_option: name of the keyword argument in which this client takes a timeout in seconds; None if it has
            none.
        client_enforces_timeout: True if the client ends the call after the timeout and does not retry; otherwise the
            run enforces it.
        sync_only: True if the model has no native async methods.
        first_error: transport error of a first try that the caller has already made; the driver then starts with the
            retries.
        rate_limiter: acquired before each try; the time spent waiting for it does not count as the model's.
        schema: JSON schema that the reply follows.
        gates: limits of the model's own, acquired before a slot of the run.
        retries_server_errors: False to raise a server error (HTTP 5xx) at once, for a caller that looks for its cause.
        own_tries: most requests that the client sends for one call, by its own retries.
        draw: number of the draw (repetition of the same request), from 0.
        endpoint: the object for which failures are counted; None for the model.
        offline: function that a dry run calls with the inputs for the reply; None for the answer of the offline judge.
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
    """Embed texts; the reply is a list of vectors, in order. Texts of several samples are sent in one batch."""

    embeddings: Embeddings
    texts: Sequence[str]


@dataclass(frozen=True, slots=True)
class Rate:
    """Score pairs of texts with a cross-encoder; the reply is a list of numbers, in order."""

    cross_encoder: BaseCrossEncoder
    pairs: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Invoke:
    """Invoke a chain of the user; the reply is its output, or None in a dry run.

    It is limited, retried and timed out like one model call; the model calls in it are counted by a callback handler.
    """

    chain: Runnable[Any, Any]
    input: Any


ModelRequest = Call | EmbedBatch | Rate | Invoke
"""Requests that are sent to a model, and retried after a transport error."""


@dataclass(frozen=True, slots=True)
class Gather:
    """Run independent operations; the reply is the list of their results, in order.

    On an event loop they run concurrently. In threads they run concurrently only while the limiter has as many idle
    slots, as it has for the last samples of a run; otherwise one after the other, since other samples use the slots
    and no thread has to be woken.
    """

    operations: Sequence[Operation[Any]]


@dataclass(frozen=True, slots=True)
class Shared:
    """Run an operation once per key (single-flight); the reply is its result.

    If the run is executing an operation of the same key, or still holds its result, that result is the reply.
    """

    key: Hashable
    operation: Operation[Any]


@dataclass(frozen=True, slots=True)
class Locked:
    """Run an operation while holding a lock (`gate`); the reply is its result."""

    gate: AdaptiveLimiter
    operation: Operation[Any]


@dataclass(frozen=True, slots=True)
class SendOnce:
    """Send a request to a model without retries; an error is raised in the operation."""

    request: ModelRequest


@dataclass(frozen=True, slots=True)
class InvokeChild:
    """Invoke a Runnable as a child run; the reply is its output.

    Args:
        runnable: Runnable to invoke, through its sync or async method.
        input: input of the Runnable.
        configurable: values added to `config["configurable"]`; values that the config has already take precedence.
    """

    runnable: Runnable[Any, Any]
    input: Any
    configurable: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Compute:
    """Call a function of the user, sync or async; the reply is its result, or None in a dry run.

    On an event loop a sync function runs in a thread. Without one, an async function runs on a new loop.
    """

    function: Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Count:
    """Count an event of the run, which a note of the report may mention."""

    event: Hashable


@dataclass(frozen=True, slots=True)
class ValidReply:
    """Record a valid reply of an endpoint."""

    endpoint: object


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait for some seconds without holding a slot of the concurrency limiter."""

    seconds: float


Request = (
    ModelRequest | Embed | Gather | Shared | Locked | SendOnce | Compute | InvokeChild | Count | ValidReply | Pause
)
"""Everything that an operation may yield."""

Operation = Generator[Request, Any, T]
"""A generator that yields requests, receives their replies and returns a result."""
