"""OpenTelemetrySink: record scores as OpenTelemetry metrics."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.data.schema import Row
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

_MOST_VALUES = 100
_OTHER = "other"
_BOUNDS = [step / 10 for step in range(11)]


class OpenTelemetrySink:
    """Records scores with an OpenTelemetry meter, without any text of the run.

    The instruments have the attributes `metric`, `aspect` and `direction`: the histogram `rageval.score` with bucket
    boundaries 0, 0.1, ... 1, the counters `rageval.failures` (with attribute `error`) and `rageval.unscored` (with
    attribute `reason`), and the counters `rageval.judge.calls` and `rageval.judge.tokens`.

    Args:
        meter: OpenTelemetry meter, such as `opentelemetry.metrics.get_meter("rag")`.
        tags: names of the row's tags that are attributes too. The first 100 values of each are kept, and further ones
            become "other", because each value is a time series of its own.

    Raises:
        ConfigError: if `meter` is not a meter, or `tags` is not a list of names.
    """

    def __init__(self, meter: Meter, tags: Sequence[str] = ()) -> None:
        if not callable(getattr(meter, "create_histogram", None)):
            problem = f"OpenTelemetrySink takes a meter, got {type(meter).__name__}"
            raise ConfigError(f"{problem}; opentelemetry.metrics.get_meter returns one")
        if isinstance(tags, str) or not all(isinstance(name, str) for name in tags):
            raise ConfigError(f'tags must be a list of names of tags, such as ["version"], got {tags!r}')
        self._values: dict[str, set[str]] = {name: set() for name in tags}
        self._lock = PerProcess(threading.Lock)
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
        tags = self._tags_of(row)
        for score in row.scores.values():
            attributes = {**tags, "metric": score.metric, "aspect": score.aspect, "direction": score.direction}
            if score.value is not None:
                self._scores.record(score.value, attributes)
            elif score.failure is not None:
                self._failures.add(1, {**attributes, "error": score.failure.error})
            else:
                self._unscored.add(1, {**attributes, "reason": score.unscored or ""})
            self._calls.add(score.usage.calls, attributes)
            self._tokens.add((score.usage.input_tokens or 0) + (score.usage.output_tokens or 0), attributes)

    def _tags_of(self, row: Row) -> dict[str, str]:
        """Return the chosen tags of a row, with rare values replaced."""
        chosen = {}
        with self._lock.value:
            for name, values in self._values.items():
                if (value := row.tags.get(name)) is not None:
                    if len(values) < _MOST_VALUES:
                        values.add(value)
                    chosen[name] = value if value in values else _OTHER
        return chosen
