"""Which transport errors are worth another try, and after what wait.

Clients raise a zoo of exceptions: LangChain's `ModelError` with `is_retryable`, SDK errors with `status_code`,
httpx errors, bare OS errors. They are told apart by what they carry, so that no client has to be imported.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from json import JSONDecodeError
from socket import gaierror

from langchain_rageval.errors import ConfigError

_PASSING_STATUS = {408, 425, 429}
_OVERLOADED_STATUS = {503, 529}
_TRANSPORT = {"TransportError", "APIConnectionError", "APITimeoutError"}
_MISTAKES = {"UnsupportedProtocol", "InvalidURL", "LocalProtocolError"}  # in the address, or in a key's characters
_NOBODY_THERE = (ConnectionRefusedError, gaierror)
_TRIES_WHEN_NOBODY_IS_THERE = 3
_MOST_DOUBLINGS = 64  # beyond any wait, below what a float can hold


@dataclass(frozen=True)
class RetryPolicy:
    """Retries of a model call that the transport lost; asking again for malformed output is the judge's own matter.

    A client's own retries (`max_retries` of ChatOpenAI, 2 by default) happen inside one of ours and count into its
    timeout; models made by `load_judge` have none.

    Args:
        attempts: tries in all, the first included.
        initial: seconds before the second try; doubled each time.
        max_wait: most seconds between two tries, also when the server asks for more.
        jitter: wait a random part of it, so that callers turned away together do not come back together.

    Raises:
        ConfigError: if a number is out of range.
    """

    attempts: int = 10
    initial: float = 0.5
    max_wait: float = 60.0
    jitter: bool = True

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be meant."""
        if not (self.attempts >= 1 and self.initial >= 0 and self.max_wait >= 0):
            raise ConfigError(f"RetryPolicy takes attempts >= 1 and waits >= 0, got {self}")

    def wait(self, error: Exception, tried: int) -> float | None:
        """Seconds to wait after `tried` tries; None when trying again is no use."""
        allowed = min(self.attempts, _TRIES_WHEN_NOBODY_IS_THERE) if is_unreachable(error) else self.attempts
        if tried >= allowed or not is_transient(error):
            return None
        asked = retry_after(error)
        if asked is not None:
            return min(asked, self.max_wait)
        longest = min(self.initial * 2.0 ** min(tried - 1, _MOST_DOUBLINGS), self.max_wait)
        return longest * random.uniform(0.5, 1.0) if self.jitter else longest


def is_transient(error: Exception) -> bool:
    """Whether the same call may go through later."""
    status = status_of(error)
    if status is not None:
        return (status in _PASSING_STATUS and not _account_empty(error)) or status >= 500
    if any(base.__name__ in _MISTAKES for cause in _causes(error) for base in type(cause).__mro__):
        return False
    if getattr(error, "is_retryable", False):
        return True
    if isinstance(error, ConnectionError | TimeoutError | gaierror | JSONDecodeError):
        return True  # JSONDecodeError: a proxy's HTML page in place of a reply, seen through the OpenAI client
    return any(base.__name__ in _TRANSPORT for base in type(error).__mro__)


def _account_empty(error: BaseException) -> bool:
    """Whether a 429 says that there is no money left, as OpenAI's does: no wait helps."""
    return getattr(error, "code", None) == "insufficient_quota"


def is_rate_limited(error: Exception) -> bool:
    """Whether the endpoint has too many calls at a time: a 429, or one that is overloaded and says how long to wait."""
    status = status_of(error)
    if status is None:
        return any(base.__name__ == "ModelRateLimitError" for base in type(error).__mro__)
    return (status == 429 and not _account_empty(error)) or (
        status in _OVERLOADED_STATUS and retry_after(error) is not None
    )


def is_unreachable(error: BaseException) -> bool:
    """Whether no server listens at that address: a wrong URL more often than a passing fault."""
    return any(isinstance(cause, _NOBODY_THERE) or "[Errno 111]" in str(cause) for cause in _causes(error))


def status_of(error: BaseException) -> int | None:
    """HTTP status that the error carries, if any."""
    response = getattr(error, "response", None)
    for status in (getattr(error, "status_code", None), getattr(response, "status_code", None)):
        if isinstance(status, int):
            return status
    return None


def retry_after(error: BaseException) -> float | None:
    """Seconds that the server asked to wait; None when it did not say, or gave a date."""
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None) or {}
    given = headers.get("retry-after") or getattr(error, "retry_after", None) or None  # GigaChat: 0.0 is not said
    try:
        seconds = float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
    return seconds if seconds >= 0 else None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
