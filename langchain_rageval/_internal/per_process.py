"""PerProcess: what each process has for itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """Makes something anew in each process, and for each copy.

    A lock that another thread held when the process was forked is never let go in the child, and what is open to a
    database must not be carried over.

    Args:
        make: makes one; a function that can be pickled where its owner is to be.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: dict[int, T] = {}

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[Callable[[], T]]]:
        """A copy, or one in another process, has none yet."""
        return PerProcess, (self._make,)

    @property
    def own(self) -> T:
        """That of this process: the same one in all its threads."""
        process = os.getpid()
        return self._made[process] if process in self._made else self._made.setdefault(process, self._make())
