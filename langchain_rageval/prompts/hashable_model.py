"""HashableModel: base class of prompts and criteria."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from langchain_rageval._internal.cached import cached_property


class HashableModel(BaseModel):
    """Frozen pydantic model that refuses unknown fields and is hashed by its content."""

    model_config = ConfigDict(frozen=True, extra="forbid", ignored_types=(cached_property,))

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the whole content of the model."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    def __hash__(self) -> int:
        """Return the hash of the fingerprint, because pydantic's own hash fails on lists and dicts."""
        return hash(self.fingerprint)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy without the cached fingerprint, which an update may change."""
        copied = super().model_copy(update=update, deep=deep)
        copied.__dict__.pop("fingerprint", None)
        return copied
