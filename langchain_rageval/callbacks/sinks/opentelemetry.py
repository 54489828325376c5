"""OpenTelemetrySink: scores as metrics of OpenTelemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_BOUNDS = [step / 10 for step in range(11)]


class OpenTelemetrySink:
    """Records scores with a meter; no text of a run leaves with them.

    Instruments, all with the attributes `metric`, `aspect` and `direction`: the histogram `rageval.score` with bounds
    at every tenth from 0 to 1, the counters `rageval.failures` (attribute `error`) and `rageval.unscored` (attribute
    `reason`), and the counters `rageval.judge.calls` and `rageval.judge.tokens`.

    Args:
        meter: of the OpenTelemetry API, such as `opentelemetry.metrics.get_meter("rag")`.

    Raises:
        ConfigError: if it is no meter.
    """

    def __init__(self, meter: Meter) -> None:
        if not callable(getattr(meter, "create_histogram", None)):
            came = f"OpenTelemetrySink takes a meter, got {type(meter).__name__}"
            raise ConfigError(f"{came}; opentelemetry.metrics.get_meter gives one")
        self._scores = meter.create_histogram(
            "rageval.score", description="Scores of runs", explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._failures = meter.create_counter("rageval.failures", description="Scores that the judge could not give")
        self._unscored = meter.create_counter("rageval.unscored", description="Runs to which a metric does not apply")
        self._calls = meter.create_counter("rageval.judge.calls", description="Model calls paid for")
        self._tokens = meter.create_counter("rageval.judge.tokens", description="Tokens read and written by the judge")

    def __repr__(self) -> str:
        """The class."""
        return "OpenTelemetrySink()"

    def __call__(self, row: Row) -> None:
        """Record the scores of a row."""
        for score in row.scores.values():
            about = {"metric": score.metric, "aspect": score.aspect, "direction": score.direction}
            if score.value is not None:
                self._scores.record(score.value, about)
            elif score.failure is not None:
                self._failures.add(1, {**about, "error": score.failure.error})
            else:
                self._unscored.add(1, {**about, "reason": score.unscored or ""})
            self._calls.add(score.usage.calls, about)
            self._tokens.add((score.usage.input_tokens or 0) + (score.usage.output_tokens or 0), about)
