"""Batch: option of `evaluate` that sends the requests of a run through a provider's batch API."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from langchain_rageval.errors import ConfigError


@dataclass(frozen=True)
class Batch:
    """Option of `evaluate`: send requests through the batch API of the judge's provider, at half the price.

    All samples run to their next request; the requests of all samples form a wave, which is sent as one batch, or as
    several if the provider limits the size. OpenAI and Anthropic answer a batch within 24 hours.

    Args:
        poll: seconds between two questions whether a batch has ended.

    Raises:
        ConfigError: if `poll` is not a positive number.
    """

    poll: float = 30.0

    def __post_init__(self) -> None:
        """Validate the seconds."""
        if (
            isinstance(self.poll, bool)
            or not isinstance(self.poll, int | float)
            or not self.poll > 0
            or not isfinite(self.poll)
        ):
            raise ConfigError(f"poll must be a number of seconds above 0, got {self.poll!r}")
