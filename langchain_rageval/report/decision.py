"""Decision: what a run that stopped early found out about the mean of a metric over all samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

Outcome = Literal["passed", "failed", "better", "no worse", "worse", "precise", "undecided"]


@dataclass(frozen=True)
class Decision:
    """Decision of a run with `until=` about one metric.

    The interval is for the mean over all samples of the run that have a score, or for the mean difference from the
    baseline. It holds whenever the run stops.

    Attributes:
        verdict: "passed" or "failed" for a gate; "better", "no worse" or "worse" than a baseline; "precise" if the
            interval became narrow enough; "undecided" if the samples or the budget ended first.
        low: lower end of the interval.
        high: upper end of the interval.
        samples: number of samples that the interval is computed from.
        error: probability that any interval of the run misses its mean at any time.
        required: what was to be decided, such as "at least 0.8".
    """

    verdict: Outcome
    low: float
    high: float
    samples: int
    error: float
    required: str = ""

    def __str__(self) -> str:
        """Return verdict, interval, requirement and number of samples as text."""
        required = f", {self.required}" if self.required else ""
        return f"{self.verdict} [{self.low:.3f}, {self.high:.3f}]{required}, after {self.samples} samples"

    def to_dict(self) -> dict[str, Any]:
        """Return the decision as data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the decision in the data of `to_dict`.

        Raises:
            ValueError: if a value is missing or invalid.
        """
        try:
            if data["verdict"] not in get_args(Outcome):
                raise ValueError(f"unknown verdict {data['verdict']!r}")
            numbers = {name: float(data[name]) for name in ("low", "high", "error")}
            return cls(data["verdict"], samples=int(data["samples"]), required=str(data.get("required", "")), **numbers)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a decision: {error}") from None
