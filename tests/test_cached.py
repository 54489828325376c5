"""cached_property: once for each instance, and nobody waits for anybody."""

import threading

import pytest

from langchain_rageval.cached import cached_property
from langchain_rageval.prompts.promptset import Prompt


class Slow:
    def __init__(self, begun=None, go_on=None):
        self.begun, self.go_on, self.computed = begun, go_on, 0

    @cached_property
    def value(self):
        """Documented."""
        self.computed += 1
        if self.begun:
            self.begun.set()
            assert self.go_on.wait(30)
        return [self.computed]


def test_a_value_is_computed_once_for_each_instance():
    first, second = Slow(), Slow()
    assert first.value is first.value
    assert first.value is not second.value
    assert (first.computed, second.computed) == (1, 1)
    assert Slow.value.__doc__ == "Documented."
    del first.value
    assert first.value == [2]


def test_one_instance_does_not_wait_for_another():
    slow, quick = Slow(threading.Event(), threading.Event()), Slow()
    thread = threading.Thread(target=lambda: slow.value, daemon=True)
    thread.start()
    assert slow.begun.wait(30)
    other = threading.Thread(target=lambda: quick.value, daemon=True)
    other.start()
    other.join(10)
    slow.go_on.set()
    thread.join(30)
    assert not other.is_alive()
    assert quick.computed == slow.computed == 1


def test_an_error_is_not_kept():
    class Failing:
        tries = 0

        @cached_property
        def value(self):
            self.tries += 1
            raise ValueError(self.tries)

    failing = Failing()
    for tried in (1, 2):
        with pytest.raises(ValueError, match=str(tried)):
            failing.value  # noqa: B018


def test_a_pydantic_model_takes_it_for_no_field():
    prompt = Prompt(instruction="Split.")
    assert set(Prompt.model_fields) == {"instruction", "examples"}
    assert prompt.fingerprint == Prompt(instruction="Split.").fingerprint
    assert prompt.model_dump() == {"instruction": "Split.", "examples": []}
