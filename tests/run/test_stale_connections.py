"""Errors of connections that belong to another event loop."""

import asyncio

from helpers.each import each
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableLambda

from langchain_rageval import RetryPolicy
from langchain_rageval.run.drivers import adrive
from langchain_rageval.run.requests import Call
from langchain_rageval.run.retry import is_stale_connection, is_transient
from langchain_rageval.run.run import Run


class APIConnectionError(Exception):
    """As clients of providers raise it."""


def wrapped(message):
    error = APIConnectionError("Connection error.")
    error.__cause__ = RuntimeError(message)
    return error


STALE = [
    RuntimeError("Event loop is closed"),
    RuntimeError("<asyncio.locks.Event object at 0x7f> is bound to a different event loop"),
    RuntimeError("Task <Task pending> got Future <Future pending> attached to a different loop"),
    wrapped("Event loop is closed"),
]


@each("error", STALE)
def test_such_an_error_is_repeated_at_once_whatever_the_policy_allows(error):
    assert is_stale_connection(error)
    assert is_transient(error)
    assert RetryPolicy(attempts=1, initial=30).wait(error, 99) == 0.0
    assert RetryPolicy(attempts=200).wait(error, 100) is None


@each("error", [RuntimeError("loop"), ValueError("Event loop is closed"), TimeoutError()])
def test_other_errors_are_none(error):
    assert not is_stale_connection(error)


def test_as_many_of_them_as_a_client_keeps_connections_do_not_make_the_judge_unavailable():
    errors = [RuntimeError("Event loop is closed")] * 99

    async def answer(_messages):
        if errors:
            raise errors.pop()
        return "a"

    run = Run()
    call = Call(RunnableLambda(lambda _messages: "", answer), [HumanMessage("?")])
    assert asyncio.run(adrive(_one(call), run, {})).text == "a"
    assert run.meter.usage.calls == 100


def _one(request):
    return (yield request)
