"""Values that each process creates for itself."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class PerProcess(Generic[T]):
    """A value that each process creates on first use; forks, copies and unpickled objects create a new one.

    A lock that another thread holds during a fork is never released in the child process, and an open database
    connection must not be used there.

    Args:
        create: creates the value; must be picklable if the owner is pickled.
    """

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._values: dict[int, T] = {}

    def __reduce__(self) -> tuple[type[PerProcess[T]], tuple[Callable[[], T]]]:
        """Copy and pickle only the function that creates the value; the copy has no value yet."""
        return PerProcess, (self._create,)

    @property
    def value(self) -> T:
        """The value of this process, shared by its threads."""
        process = os.getpid()
        return self._values[process] if process in self._values else self._values.setdefault(process, self._create())
