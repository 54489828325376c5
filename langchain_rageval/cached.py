"""cached_property without a lock, as Python itself has it from 3.12 on.

In 3.11 one lock serves all instances while a value is computed: threads wait for each other's unrelated work, and a
process that is forked at such a moment inherits a lock that nobody will release. Without it, two threads may compute a
value at the same time: it is for what does not depend on who computes it.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """Computes a property once for each instance, into its `__dict__`."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            """The value; the property itself when a class is asked for it."""
            if instance is None:
                return self
            kept = instance.__dict__
            return kept[self.attrname] if self.attrname in kept else kept.setdefault(self.attrname, self.func(instance))


__all__ = ["cached_property"]
