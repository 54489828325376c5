import math
import socket
from json import JSONDecodeError

import httpx
import openai
from gigachat import exceptions as gigachat
from helpers.each import each, error_of
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.exceptions import (
    ModelAuthenticationError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)

from langchain_rageval.errors import ConfigError, message_of
from langchain_rageval.run.retry import (
    RetryPolicy,
    is_permanent,
    is_rate_limited,
    is_server_error,
    is_stale_connection,
    is_transient,
    is_unreachable,
    retry_after,
    status_of,
)

REQUEST = httpx.Request("POST", "http://judge/v1/chat/completions")
CALM = RetryPolicy(jitter=False)


def from_openai(status, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    response = httpx.Response(status, headers=named, request=REQUEST)
    kind = openai.RateLimitError if status == 429 else openai.APIStatusError
    return kind("refused", response=response, body=None)


def from_gigachat(status, **headers):
    named = httpx.Headers({name.replace("_", "-"): value for name, value in headers.items()})
    kind = gigachat.RateLimitError if status == 429 else gigachat.ResponseError
    return kind("http://judge", status, b"", named)


def caused(error, cause):
    error.__cause__ = cause
    return error


CLIENTS = each("refusal", [from_openai, from_gigachat], ids=["openai", "gigachat"])
REFUSED_CONNECTION = caused(openai.APIConnectionError(request=REQUEST), ConnectionRefusedError(111, "refused"))


def test_an_account_without_credit_is_not_retried_and_not_rate_limited():
    response = httpx.Response(429, request=REQUEST)
    empty = openai.RateLimitError("no money", response=response, body={"code": "insufficient_quota"})
    crowded = openai.RateLimitError("too fast", response=response, body={"code": "rate_limit_exceeded"})
    assert CALM.wait(empty, 1) is None
    assert CALM.wait(crowded, 1) is not None
    assert (is_rate_limited(empty), is_rate_limited(crowded)) == (False, True)


@CLIENTS
@each("status", [429, 503])
def test_retry_after_is_respected_up_to_the_maximum_wait_and_without_it_waits_grow(refusal, status):
    said = {"0": 0.0, "7.5": 7.5, "60": 60.0, "61": 60.0, "86400": 60.0}
    assert {text: RetryPolicy().wait(refusal(status, retry_after=text), 1) for text in said} == said
    assert RetryPolicy(max_wait=2.0).wait(refusal(status, retry_after="3"), 1) == 2.0
    unread = [refusal(status, retry_after=text) for text in ("", "soon", "-1", "nan", "Wed, 18 May 2033 03:33:20 GMT")]
    for error in (refusal(status), *unread):
        assert retry_after(error) is None
        assert [CALM.wait(error, tried) for tried in (1, 2, 3)] == [0.5, 1.0, 2.0]


def test_langchains_rate_limit_error_is_a_rate_limit_and_other_errors_are_not():
    assert is_rate_limited(ModelRateLimitError("slow down"))
    others = (TimeoutError(), ModelTimeoutError("late"), REFUSED_CONNECTION, ValueError("429"))
    assert not any(map(is_rate_limited, others))


@each(
    "error",
    [
        *(openai.APIConnectionError(request=REQUEST), openai.APITimeoutError(request=REQUEST)),
        *(httpx.ReadTimeout("slow"), httpx.RemoteProtocolError("cut off"), ConnectionResetError(), TimeoutError()),
        JSONDecodeError("a proxy's page", "<html>", 0),
    ],
)
def test_transport_errors_are_retried_and_errors_of_a_program_are_not(error):
    assert CALM.wait(error, 9) is not None
    assert CALM.wait(error, 10) is None
    assert all(CALM.wait(mistake, 1) is None for mistake in (ValueError("x"), KeyError("x"), NotImplementedError()))


@each(
    "error",
    [
        *(ConnectionRefusedError(), socket.gaierror("no such host"), REFUSED_CONNECTION),
        caused(httpx.ConnectError("[Errno 111] Connection refused"), None),
    ],
)
def test_an_unreachable_server_is_tried_three_times(error):
    assert is_unreachable(error)
    assert [CALM.wait(error, tried) is not None for tried in (1, 2, 3, 4)] == [True, True, False, False]


TLS = "CERTIFICATE_VERIFY_FAILED TLSV13_ALERT_CERTIFICATE_REQUIRED TLSV1_ALERT_UNKNOWN_CA WRONG_VERSION_NUMBER"


@each("reason", TLS.split())
def test_a_refused_certificate_is_permanent_and_a_connection_that_breaks_off_is_not(reason):
    error = httpx.ReadError(f"[SSL: {reason}] certificate (_ssl.c:2580)", request=REQUEST)
    for refused in (error, caused(openai.APIConnectionError(request=REQUEST), error)):
        assert is_permanent(refused)
        assert CALM.wait(refused, 1) is None
    assert str(REQUEST.url) in message_of(error)
    broken = httpx.ReadError("[SSL: UNEXPECTED_EOF_WHILE_READING] EOF occurred in violation of protocol")
    assert not is_permanent(broken)
    assert CALM.wait(broken, 1) is not None


def test_causes_in_a_circle_end():
    one, other = ValueError(), ValueError()
    one.__cause__, other.__cause__ = other, one
    assert not is_unreachable(one)


@given(
    st.floats(0.01, 1e6), st.floats(0, 1e6), st.integers(1, 10_000), st.sampled_from([from_openai(500), TimeoutError()])
)
def test_a_wait_is_50_to_100_percent_of_the_doubled_time(initial, max_wait, tried, error):
    calm = RetryPolicy(attempts=10_001, initial=initial, max_wait=max_wait, jitter=False).wait(error, tried)
    jittery = RetryPolicy(attempts=10_001, initial=initial, max_wait=max_wait).wait(error, tried)
    assert calm == min(initial * 2.0 ** min(tried - 1, 200), max_wait)
    assert calm / 2 <= jittery <= calm
    assert len({RetryPolicy().wait(TimeoutError(), 5) for _ in range(20)}) > 10


@each("wrong", [{"attempts": 0}, {"initial": -1.0}, {"max_wait": -1.0}, {"initial": math.nan}, {"max_wait": math.nan}])
def test_invalid_numbers_are_rejected(wrong):
    error = error_of(ConfigError, RetryPolicy, **wrong)
    options = {"attempts": 10, "initial": 0.5, "max_wait": 60.0, "jitter": True, **wrong}
    got = ", ".join(f"{name}={value!r}" for name, value in options.items())
    assert str(error) == f"RetryPolicy needs attempts of at least 1 and waits of at least 0, got RetryPolicy({got})"


@CLIENTS
def test_each_status_is_transient_limited_or_a_server_error(refusal):
    kinds = ("transient", "permanent", "limited", "limited with header", "server error", "server waits")
    told = {kind: [] for kind in kinds}
    for status in range(400, 610):
        plain, waits = refusal(status), refusal(status, retry_after="3")
        assert status_of(plain) == (status if status < 600 else None)
        assert (CALM.wait(plain, 1) is not None) == is_transient(plain)
        told["transient"] += [status] * is_transient(plain)
        told["permanent"] += [status] * is_permanent(plain)
        told["limited"] += [status] * is_rate_limited(plain)
        told["limited with header"] += [status] * is_rate_limited(waits)
        told["server error"] += [status] * is_server_error(plain)
        told["server waits"] += [status] * is_server_error(waits)
    assert told == {
        "transient": [408, 425, 429, *range(500, 600)],
        "permanent": [401, 402, 403, 404],
        "limited": [429],
        "limited with header": [429, 503, 529],
        "server error": [*range(500, 600)],
        "server waits": [status for status in range(500, 600) if status not in (503, 529)],
    }


def test_waits_double_up_to_the_longest():
    assert [CALM.wait(from_openai(500), tried) for tried in (1, 7, 8, 9, 10)] == [0.5, 32.0, 60.0, 60.0, None]
    assert RetryPolicy(attempts=5000, jitter=False, max_wait=1e30).wait(from_openai(500), 4000) == 0.5 * 2.0**64


@each(("own", "tries"), [(1, 10), (3, 3), (7, 1), (20, 1)])
def test_a_call_takes_at_most_ten_requests_with_those_of_its_client(own, tries):
    waits = [CALM.wait(from_openai(429), tried, own) for tried in range(1, 11)]
    assert waits.index(None) + 1 == tries


@each(
    ("message", "permanent"),
    [
        ("You exceeded your current quota, please check your plan and billing details.", True),
        ("Your credit balance is too low to access the API.", True),
        ("Quota exceeded for metric: GenerateRequestsPerDayPerProject", True),
        ("You exceeded your current quota. Please retry in 34.2s.", False),
        ("Rate limit reached for requests: try again in 20ms", False),
        ("Too many requests", False),
    ],
)
def test_a_spent_quota_is_permanent_unless_the_server_says_when_to_come_again(message, permanent):
    error = openai.RateLimitError(message, response=httpx.Response(429, request=REQUEST), body=None)
    assert is_permanent(error) == permanent
    assert (CALM.wait(error, 1) is None) == permanent
    assert is_rate_limited(error) != permanent
    named = from_openai(429, retry_after="5")
    assert not is_permanent(named)


# Connections that belong to another event loop


class APIConnectionError(Exception):
    """As clients of providers raise it."""


STALE = [
    RuntimeError("Event loop is closed"),
    RuntimeError("<asyncio.locks.Event object at 0x7f> is bound to a different event loop"),
    RuntimeError("Task <Task pending> got Future <Future pending> attached to a different loop"),
    caused(APIConnectionError("Connection error."), RuntimeError("Event loop is closed")),
]


@each("error", STALE)
def test_such_an_error_is_repeated_at_once_whatever_the_policy_allows(error):
    assert is_stale_connection(error)
    assert is_transient(error)
    for policy in (RetryPolicy(attempts=1, initial=30), RetryPolicy(attempts=200)):
        assert [policy.wait(error, tried) for tried in (1, 99, 100)] == [0.0, 0.0, None]


@each("error", [RuntimeError("loop"), ValueError("Event loop is closed"), TimeoutError()])
def test_other_errors_are_none(error):
    assert not is_stale_connection(error)


@each(
    ("kind", "status"),
    [
        *((ModelInvalidRequestError, 400), (ModelAuthenticationError, 401)),
        *((ModelPermissionDeniedError, 403), (ModelNotFoundError, 404), (ModelTimeoutError, None)),
    ],
)
def test_langchains_classes_have_a_status_unless_the_cause_has_one(kind, status):
    assert status_of(kind("no")) == status
    assert status_of(caused(kind("no"), from_openai(503))) == 503
    assert is_permanent(kind("no")) == (status in (401, 403, 404))
