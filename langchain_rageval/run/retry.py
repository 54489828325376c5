"""Retries of model calls: which errors are temporary, and how long to wait before the next try."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from json import JSONDecodeError
from socket import gaierror
from typing import Any

from langchain_rageval.errors import ConfigError, message_of

_TRANSIENT_STATUS = {408, 425, 429}
_OVERLOADED_STATUS = {503, 529}
_PERMANENT_STATUS = {401, 402, 403, 404}
_QUOTA = re.compile(r"insufficient[_ ]quota|exceeded your (?:current )?quota|credit balance|PerDay", re.IGNORECASE)
_SAYS_WHEN = re.compile(r"retry in \d|retryDelay|try again in \d", re.IGNORECASE)
_LIMIT_HEADERS = ("x-ratelimit-limit-{}", "anthropic-ratelimit-{}-limit")
_TRANSPORT = {"TransportError", "APIConnectionError", "APITimeoutError"}
_TIMEOUTS = {"TimeoutError", "TimeoutException", "APITimeoutError"}
_CONFIG_ERRORS = {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}  # in the address or the key
_TLS = re.compile(  # reasons of OpenSSL that another try does not change; an unexpected end of the data is none of them
    r"CERTIFICATE_VERIFY_FAILED|ALERT_(?:\w*CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE|PROTOCOL_VERSION)"
    "|WRONG_VERSION_NUMBER|UNSUPPORTED_PROTOCOL|UNRECOGNIZED_NAME"
)
_UNREACHABLE = (ConnectionRefusedError, gaierror)
_TRIES_IF_UNREACHABLE = 3
MAX_STALE_TRIES = 100  # idle connections that the clients of providers keep by default; each try discards one
_OTHER_LOOP = re.compile(r"event loop is closed|(?:different|another) (?:event )?loop", re.IGNORECASE)
_HTTP_ERRORS = range(400, 600)
_STATUS_OF_CLASS = {  # LangChain's classes, which say less than a status
    "ModelInvalidRequestError": 400,
    "ModelAuthenticationError": 401,
    "ModelPermissionDeniedError": 403,
    "ModelNotFoundError": 404,
}
_MOST_DOUBLINGS = 64  # beyond any wait, below what a float can hold


@dataclass(frozen=True)
class RetryPolicy:
    """Policy for retrying model calls after transport errors.

    A malformed reply is no transport error: the judge then repeats the question. A client's own retries (`max_retries`
    of ChatOpenAI, 2 by default) happen within one try of this policy, and the timeout of the try includes them. Models
    built by `load_judge` do not retry themselves.

    Args:
        attempts: maximum number of tries, including the first try. For a client with own retries, `attempts` is divided
            by its requests per try: with `max_retries=2`, ten attempts are three tries of up to three HTTP requests. At
            least one try is made.
        initial: seconds to wait before the second try; the wait doubles before each further try.
        max_wait: maximum number of seconds between two tries, even if the server requests more.
        jitter: True to wait a random 50 to 100% of the computed time, so that calls rejected together are not retried
            together. A wait that the server requests (Retry-After) is not shortened by it.

    Raises:
        ConfigError: if a number is out of range.
    """

    attempts: int = 10
    initial: float = 0.5
    max_wait: float = 60.0
    jitter: bool = True

    def __post_init__(self) -> None:
        """Raise ConfigError if a number of the policy is out of range."""
        if not (self.attempts >= 1 and self.initial >= 0 and self.max_wait >= 0):
            raise ConfigError(f"RetryPolicy needs attempts of at least 1 and waits of at least 0, got {self}")

    def wait(self, error: Exception, tried: int, own_tries: int = 1) -> float | None:
        """Return the seconds to wait after `tried` failed tries; None if the call must not be retried.

        If a call failed on a connection of a closed event loop, it is repeated at once, whatever the policy allows.

        Args:
            error: error of the last try.
            tried: number of failed tries.
            own_tries: number of HTTP requests that the client sends within one try, including the client's own retries.
        """
        if is_stale_connection(error):
            return 0.0 if tried < MAX_STALE_TRIES else None
        attempts = max(1, self.attempts // own_tries)
        allowed = min(attempts, _TRIES_IF_UNREACHABLE) if is_unreachable(error) else attempts
        if tried >= allowed or not is_transient(error):
            return None
        if (requested := retry_after(error)) is not None:
            return min(requested, self.max_wait)
        longest = min(self.initial * 2.0 ** min(tried - 1, _MOST_DOUBLINGS), self.max_wait)
        return longest * random.uniform(0.5, 1.0) if self.jitter else longest


def is_transient(error: Exception) -> bool:
    """Return True if the error is temporary: the same call may succeed later."""
    if (status := status_of(error)) is not None:
        return (status in _TRANSIENT_STATUS and not _is_quota_exhausted(error)) or status >= 500
    names = (base.__name__ for cause in _causes(error) for base in type(cause).__mro__)
    if is_permanent(error) or not _CONFIG_ERRORS.isdisjoint(names):
        return False
    if getattr(error, "is_retryable", False) or is_stale_connection(error):
        return True
    if isinstance(error, ConnectionError | TimeoutError | gaierror | JSONDecodeError):
        return True  # JSONDecodeError: a proxy's HTML page in place of a reply, seen through the OpenAI client
    return any(base.__name__ in _TRANSPORT for base in type(error).__mro__)


def _is_quota_exhausted(error: BaseException) -> bool:
    """Return True if a 429 means that the account has no credit left, or none today: waiting does not help.

    Gemini says the same of a limit per minute, and then how long to wait.
    """
    text = message_of(error)
    says_when = retry_after(error) is not None or _SAYS_WHEN.search(text)
    return getattr(error, "code", None) == "insufficient_quota" or bool(_QUOTA.search(text) and not says_when)


def is_permanent(error: Exception) -> bool:
    """Return True if every later call will fail too.

    The reason is a wrong key or model name, no access, no credit, or a certificate that one of both sides refuses.
    """
    if (status := status_of(error)) is None:
        return any(_TLS.search(message_of(cause)) for cause in _causes(error))
    return status in _PERMANENT_STATUS or (status == 429 and _is_quota_exhausted(error))


def limits_in(headers: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the limits of requests and of tokens per minute from HTTP headers; None for a limit that is not there."""

    def limit(what: str) -> float | None:
        return next(filter(None, (_number(headers.get(pattern.format(what))) for pattern in _LIMIT_HEADERS)), None)

    return limit("requests"), limit("tokens")


def is_rate_limited(error: Exception) -> bool:
    """Return True if the endpoint rejected a call because of too many calls.

    These are the HTTP status 429, or an overload (503, 529) with a Retry-After header.
    """
    if (status := status_of(error)) is None:
        return any(base.__name__ == "ModelRateLimitError" for base in type(error).__mro__)
    is_overloaded = status in _OVERLOADED_STATUS and retry_after(error) is not None
    return is_overloaded or (status == 429 and not _is_quota_exhausted(error))


def is_server_error(error: Exception) -> bool:
    """Return True if the server failed (HTTP 5xx) without a Retry-After header."""
    status = status_of(error)
    return status is not None and status >= 500 and not is_rate_limited(error)


def is_unreachable(error: BaseException) -> bool:
    """Return True if no server listens at the address. The cause is more often a wrong URL than a temporary fault."""
    return any(isinstance(cause, _UNREACHABLE) or "[Errno 111]" in message_of(cause) for cause in _causes(error))


def is_timeout(error: BaseException) -> bool:
    """Return True for a timeout error of Python or of an HTTP client."""
    return any(base.__name__ in _TIMEOUTS for base in type(error).__mro__)


def is_stale_connection(error: BaseException) -> bool:
    """Return True if a client reused a connection that belongs to a closed event loop.

    Clients of providers share idle connections among all models of one address. After a second `asyncio.run`, these
    connections still belong to the closed loop of the first one. Each failure discards one such connection.
    """
    return any(isinstance(cause, RuntimeError) and _OTHER_LOOP.search(message_of(cause)) for cause in _causes(error))


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error, or of the error that caused it; None if there is no status.

    The status is read from `status_code`, from `code`, from the response of the error, or from the class of the
    LangChain error.
    """
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):  # of AWS
        response = response.get("ResponseMetadata")
    in_response = response.get("HTTPStatusCode") if isinstance(response, Mapping) else None
    in_response = getattr(response, "status_code", None) or in_response
    for status in (getattr(error, "status_code", None), in_response, getattr(error, "code", None)):
        if isinstance(status, int) and status in _HTTP_ERRORS:
            return int(status)
    if error.__cause__ is not None and (status := status_of(error.__cause__)) is not None:
        return status
    names = {base.__name__ for base in type(error).__mro__}
    return next((status for name, status in _STATUS_OF_CLASS.items() if name in names), None)


def retry_after(error: BaseException) -> float | None:
    """Return the seconds in the Retry-After header; None if the header is missing or holds a date."""
    own = getattr(error, "retry_after", None) or None  # GigaChat: 0.0 means no header
    return _number(headers_of(error).get("retry-after") or own)


def headers_of(error: BaseException) -> Mapping[str, Any]:
    """Return the headers of the HTTP response in an error; empty if the error has no response."""
    return getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None) or {}


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if number >= 0 else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
