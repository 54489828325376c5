"""OpenTelemetrySink: record scores as OpenTelemetry metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_BOUNDS = [step / 10 for step in range(11)]


class OpenTelemetrySink:
    """Records scores with an OpenTelemetry meter, without any text of the run.

    The instruments have the attributes `metric`, `aspect` and `direction`: the histogram `rageval.score` with bucket
    boundaries 0, 0.1, ... 1, the counters `rageval.failures` (with attribute `error`) and `rageval.unscored` (with
    attribute `reason`), and the counters `rageval.judge.calls` and `rageval.judge.tokens`.

    Args:
        meter: OpenTelemetry meter, such as `opentelemetry.metrics.get_meter("rag")`.

    Raises:
        ConfigError: if `meter` is not a meter.
    """

    def __init__(self, meter: Meter) -> None:
        if not callable(getattr(meter, "create_histogram", None)):
            problem = f"OpenTelemetrySink takes a meter, got {type(meter).__name__}"
            raise ConfigError(f"{problem}; opentelemetry.metrics.get_meter returns one")
        self._scores = meter.create_histogram(
            "rageval.score", description="Scores of runs", explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._failures = meter.create_counter("rageval.failures", description="Scores that failed")
        self._unscored = meter.create_counter("rageval.unscored", description="Runs to which a metric does not apply")
        self._calls = meter.create_counter("rageval.judge.calls", description="Model calls made")
        self._tokens = meter.create_counter("rageval.judge.tokens", description="Tokens read and written by the judge")

    def __repr__(self) -> str:
        """Return the sink as text: the name of its class."""
        return "OpenTelemetrySink()"

    def __call__(self, row: Row) -> None:
        """Record the scores of a row."""
        for score in row.scores.values():
            attributes = {"metric": score.metric, "aspect": score.aspect, "direction": score.direction}
            if score.value is not None:
                self._scores.record(score.value, attributes)
            elif score.failure is not None:
                self._failures.add(1, {**attributes, "error": score.failure.error})
            else:
                self._unscored.add(1, {**attributes, "reason": score.unscored or ""})
            self._calls.add(score.usage.calls, attributes)
            self._tokens.add((score.usage.input_tokens or 0) + (score.usage.output_tokens or 0), attributes)
