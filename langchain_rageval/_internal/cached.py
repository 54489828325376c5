"""What is computed once: of an instance by whoever asks first, of a key by one thread while the others wait."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_rageval._internal.per_process import PerProcess

_MOST_KEPT = 256
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

    `functools.lru_cache` lets all threads that come at once do the same work, and a run begins with all its threads at
    once. It is for what takes milliseconds. Of more than 256 keys the first made is given up.
    """
    made: dict[Key, Value] = {}
    making = PerProcess(threading.RLock)  # the making of one may need another

    @functools.wraps(make)
    def get(key: Key) -> Value:
        try:
            return made[key]
        except KeyError:
            pass
        with making.own:
            if key not in made:
                value = make(key)
                if len(made) >= _MOST_KEPT:
                    del made[next(iter(made))]
                made[key] = value
            return made[key]

    return get


__all__ = ["cached_property", "made_once"]
