"""What is computed once: of an instance by whoever asks first, of a key by one thread while the others wait."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_rageval.per_process import PerProcess

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """Computes a property once for each instance, without a lock, as Python itself does from 3.12 on.

        In 3.11 one lock serves all instances: threads wait for each other's unrelated work, and a process that is
        forked at such a moment inherits a lock that nobody will release. Without it, two threads may compute a value at
        the same time: it is for what takes little time and does not depend on who computes it.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """The value; the property itself when a class is asked for it."""
            if instance is None:
                return self
            kept = instance.__dict__
            return kept[self.attrname] if self.attrname in kept else kept.setdefault(self.attrname, self.func(instance))


def made_once(make: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """Keep what a function makes of each key, and let one thread at a time make it.

    `functools.cache` lets all threads that come at once do the same work, and a run begins with all its threads at
    once. There is no limit: it is for few keys, and what takes milliseconds.
    """
    made: dict[Key, Value] = {}
    making = PerProcess(threading.RLock)  # the making of one may need another

    @functools.wraps(make)
    def get(key: Key) -> Value:
        if key not in made:
            with making.own:
                if key not in made:
                    made[key] = make(key)
        return made[key]

    return get


__all__ = ["cached_property", "made_once"]
