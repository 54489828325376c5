"""Usage of the steps of a generation, counted by name."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from langchain_rageval.data.schema import Usage

EMBED = "embed"
"""Name of the step that embeds passages and questions."""


class StepUsage:
    """Counter of the usage of each step. Usable from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_step: dict[str, Usage] = {}

    def add(self, step: str, usage: Usage) -> None:
        """Add a usage to that of a step."""
        with self._lock:
            self._by_step[step] = self._by_step.get(step, Usage()) + usage

    def ordered(self, steps: Iterable[str]) -> dict[str, Usage]:
        """Return the usage of each step that cost something, in the order of `steps`, then of the other steps."""
        with self._lock:
            names = dict.fromkeys([*steps, *sorted(self._by_step)])
            usages = {name: self._by_step.get(name, Usage()) for name in names}
        return {
            name: usage for name, usage in usages.items() if usage != Usage(seconds=usage.seconds, money=usage.money)
        }
