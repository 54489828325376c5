"""OpenTelemetrySink: record scores as OpenTelemetry metrics, and as events on the traces of the runs."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from time import time_ns
from typing import TYPE_CHECKING, Protocol
from weakref import WeakSet

from langchain_rageval._internal.per_process import PerProcess
from langchain_rageval.callbacks.trace_context import SPAN_ID, TRACE_ID, span_in
from langchain_rageval.data.schema import Row, Score
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry._logs import Logger, LogRecord
    from opentelemetry.metrics import CallbackOptions, Meter, Observation

_MOST_VALUES = 100
_HEXADECIMAL = re.compile(r"[0-9a-f]{16,32}")
_OPEN = ("pending", "running")
_OTHER = "other"
_BOUNDS = [step / 10 for step in range(11)]


class Watched(Protocol):
    """Source of counters: a `RagEvalCallback`."""

    def stats(self) -> dict[str, int]:
        """Return the counters by name."""


class OpenTelemetrySink:
    """Records scores with an OpenTelemetry meter, without any text of the run.

    The instruments have the attributes `metric`, `aspect` and `direction`: the histogram `rageval.score` with bucket
    boundaries 0, 0.1, ... 1, the counters `rageval.failures` (with attribute `error`) and `rageval.unscored` (with
    attribute `reason`), and the counters `rageval.judge.calls` and `rageval.judge.tokens`. The counters of
    `RagEvalCallback.stats()` are the counter `rageval.runs` with attribute `outcome`, and the gauge `rageval.runs.open`
    with attribute `state` (pending, running).

    With a logger, each score is also an event `gen_ai.evaluation.result` of OpenTelemetry's conventions for generative
    AI, on the span that was current when the run began or ended. The explanation in the event may quote the run.

    Args:
        meter: OpenTelemetry meter, such as `opentelemetry.metrics.get_meter("rag")`.
        tags: names of the row's tags that are attributes too. The first 100 values of each are kept, and further ones
            become "other", because each value makes a separate time series.
        logger: OpenTelemetry logger for the events, such as `opentelemetry._logs.get_logger("rag")`.

    Raises:
        ConfigError: if `meter` is not a meter, `tags` is not a list of names, or `logger` is not a logger.
    """

    def __init__(self, meter: Meter, tags: Sequence[str] = (), logger: Logger | None = None) -> None:
        if not callable(getattr(meter, "create_histogram", None)):
            problem = f"OpenTelemetrySink takes a meter, got {type(meter).__name__}"
            raise ConfigError(f"{problem}; opentelemetry.metrics.get_meter returns one")
        if isinstance(tags, str) or not all(isinstance(name, str) for name in tags):
            raise ConfigError(f'tags must be a list of names of tags, such as ["version"], got {tags!r}')
        if logger is not None and not callable(getattr(logger, "emit", None)):
            problem = f"logger must be a logger of OpenTelemetry, got {type(logger).__name__}"
            raise ConfigError(f"{problem}; opentelemetry._logs.get_logger returns one")
        self._logger = logger
        self._watched: WeakSet[Watched] = WeakSet()
        self._values: dict[str, set[str]] = {name: set() for name in tags}
        self._lock = PerProcess(threading.Lock)
        self._scores = meter.create_histogram(
            "rageval.score", description="Scores of runs", explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._failures = meter.create_counter("rageval.failures", description="Scores that failed")
        self._unscored = meter.create_counter("rageval.unscored", description="Runs to which a metric does not apply")
        self._calls = meter.create_counter("rageval.judge.calls", description="Model calls made")
        self._tokens = meter.create_counter("rageval.judge.tokens", description="Tokens read and written by the judge")
        meter.create_observable_counter("rageval.runs", [self._outcomes], description="Runs by outcome")
        meter.create_observable_gauge("rageval.runs.open", [self._open_runs], description="Runs without scores yet")

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
            if self._logger is not None:
                self._logger.emit(_event(score, row, tags))

    def watch(self, callback: Watched) -> None:
        """Include the counters of a callback in `rageval.runs`; `RagEvalCallback` calls this for its sinks."""
        self._watched.add(callback)

    def _outcomes(self, _: CallbackOptions) -> Iterator[Observation]:
        for name, count in self._counters().items():
            if name not in _OPEN:
                yield _observation(count, {"outcome": name})

    def _open_runs(self, _: CallbackOptions) -> Iterator[Observation]:
        for name, count in self._counters().items():
            if name in _OPEN:
                yield _observation(count, {"state": name})

    def _counters(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for callback in list(self._watched):
            total.update(callback.stats())
        return total

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


def _observation(count: int, attributes: dict[str, str]) -> Observation:
    from opentelemetry.metrics import Observation

    return Observation(count, attributes)


def _event(score: Score, row: Row, tags: dict[str, str]) -> LogRecord:
    """Return a score as the event `gen_ai.evaluation.result`, in the context of the run's span."""
    from opentelemetry._logs import LogRecord
    from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

    attributes = {
        "gen_ai.evaluation.name": score.metric,
        "gen_ai.evaluation.score.value": score.value,
        "gen_ai.evaluation.explanation": score.comment,
        "error.type": score.failure.error if score.failure is not None else None,
        **tags,
    }
    span = span_in(row.sample.metadata)
    digits = [span.get(TRACE_ID, ""), span.get(SPAN_ID, "")]
    trace_id, span_id = (int(text, 16) if _HEXADECIMAL.fullmatch(text) else 0 for text in digits)
    context = SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return LogRecord(
        timestamp=time_ns(),
        context=set_span_in_context(NonRecordingSpan(context)),
        event_name="gen_ai.evaluation.result",
        attributes={name: value for name, value in attributes.items() if value is not None},
    )
