"""Caches that are safe with threads and forks, and values that exist once per process."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process creates on first use. Forks, copies and unpickled objects create a new value.

    This is for locks and connections: a lock that another thread holds during a fork is never released in the child
    process, and an open database connection must not be used there.

    Args:
        create: function that creates the value; must be picklable if the owner is pickled.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._values: dict[int, T] = {}

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[Callable[[], T]]]:
        """Copy and pickle only the function that creates the value; the copy has no value yet."""
        return PerProcess, (self._create,)

    @property
    def value(self) -> T:
        """Value of this process; all threads of the process share it."""
        process = os.getpid()
        return self._values[process] if process in self._values else self._values.setdefault(process, self._create())


_MISSING = object()
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """Property that is computed once per instance, without a lock, as in the standard library from Python 3.12 on.

        In Python 3.11 one lock serves all instances: threads wait for unrelated computations, and a process forked at
        such a moment inherits a lock that is never released. Without the lock, two threads may compute a value at the
        same time, so the computation must be cheap and deterministic.
        """

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """Return the value, or the property itself if accessed on the class."""
            if instance is None:
                return self
            values = instance.__dict__
            value = values.get(self.attrname, _MISSING)  # one look-up: another thread may delete the value
            return values.setdefault(self.attrname, self.func(instance)) if value is _MISSING else value


def locked_cache(function: Callable[[Key], Value]) -> Callable[[Key], Value]:
    """Cache the result of a function per key; only one thread computes at a time, and the others wait.

    With `functools.lru_cache` alone, threads that call at the same time would all compute the result, and a run starts
    all its threads at once. The cache is meant for computations of milliseconds. It holds 256 keys; for more, the
    result that was not used for the longest time is dropped.
    """
    cached = functools.lru_cache(256)(function)
    lock = PerProcess(threading.RLock)  # reentrant: the computation of one key may need another

    def get(key: Key) -> Value:
        with lock.value:
            return cached(key)

    return functools.wraps(function)(functools.lru_cache(256)(get))  # a known result needs no lock


__all__ = ["cached_property", "locked_cache"]
