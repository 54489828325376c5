"""Loops over cases fail with every offender, also of async tests, of methods and of pairs."""

import asyncio
import inspect

import pytest
from helpers.each import each


def test_every_case_that_fails_is_named():
    @each("number", [1, 2, 3, 4])
    def is_odd(number):
        assert number % 2, "even"

    with pytest.raises(AssertionError, match=r"(?s)^2 of 4 cases failed\n2: AssertionError: even.*\n4: ") as failure:
        is_odd()
    assert isinstance(failure.value.__cause__, AssertionError)


def test_pairs_ids_fixtures_and_methods_work_in_an_async_test():
    seen = []

    class Cases:
        @each("letter, place", [("a", 0), ("b", 1)], ids=["first", "second"])
        @each("door", ["sync", "async"])
        async def run(self, fixture, letter, place, door):
            seen.append((fixture, letter, place, door))
            if (letter, door) == ("b", "async"):
                pytest.fail("closed")

    assert list(inspect.signature(Cases.run).parameters) == ["self", "fixture"]
    with pytest.raises(AssertionError, match=r"(?s)second: AssertionError: 1 of 2 cases failed\nasync: Failed: closed"):
        asyncio.run(Cases().run(fixture="f"))
    assert seen == [("f", *case) for case in (("a", 0, "sync"), ("a", 0, "async"), ("b", 1, "sync"), ("b", 1, "async"))]


def test_a_skip_ends_the_test_and_no_case_is_an_error():
    @each("case", ["absent", "never"])
    def skipped(case):
        pytest.skip(case)

    with pytest.raises(pytest.skip.Exception, match="absent"):
        skipped()
    with pytest.raises(AssertionError, match="no case for name"):
        each("name", [])
