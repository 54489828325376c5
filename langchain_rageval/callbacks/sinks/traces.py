"""Sinks that attach scores to the traces of the runs: Langfuse, LangSmith and OpenTelemetry."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from time import time_ns
from typing import TYPE_CHECKING, Any
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakSet

from langsmith.utils import get_tracer_project

from langchain_rageval._internal.cached import PerProcess, cached_property
from langchain_rageval.callbacks.scoring_pipeline import SPAN_ID, TRACE_ID, span_in
from langchain_rageval.data.schema import Row, Score
from langchain_rageval.errors import ConfigError

if TYPE_CHECKING:
    from langfuse import Langfuse
    from langsmith import Client
    from opentelemetry._logs import Logger, LogRecord
    from opentelemetry.metrics import CallbackOptions, Meter, Observation


class LangfuseSink:
    """Posts each score to the Langfuse trace of the scored run; Langfuse must trace the chain.

    Call the chain inside a Langfuse span, as in `with client.start_as_current_observation(name="answer"):
    chain.invoke(...)`. The score then goes to the trace of this span. If the chain is called synchronously,
    Langfuse's `CallbackHandler` in the same `callbacks` suffices. Otherwise put the id of the trace into the config of
    the call: `{"metadata": {"trace_id": "..."}}`.

    A score without a value is not posted, because Langfuse has no empty scores. A score that is posted again replaces
    the earlier score. The client sends scores in its own thread and logs its errors; `close` flushes the client.

    Args:
        client: a Langfuse client, such as `langfuse.get_client()`.

    Raises:
        ConfigError: if `client` has no method `create_score`.
    """

    def __init__(self, client: Langfuse) -> None:
        _check(client, "create_score", "LangfuseSink takes langfuse.get_client()")
        self._client = client

    def __repr__(self) -> str:
        """Return the sink as text: only the name of its class, because the client holds secrets."""
        return "LangfuseSink()"

    def __call__(self, row: Row) -> None:
        """Post the scores of a row to Langfuse.

        Raises:
            ConfigError: if the run belongs to no trace.
        """
        span = span_in(row.sample.metadata)
        if TRACE_ID not in span:
            raise ConfigError(
                f"run {row.sample.metadata.get('run_id')} belongs to no trace: call the chain in "
                '`with client.start_as_current_observation(name="answer")`, or add {"metadata": {"trace_id": "..."}} '
                "to its config"
            )
        for score in row.scores.values():
            if score.value is None:
                continue
            more = {"direction": score.direction, "aspect": score.aspect, "instrument": score.instrument, **row.tags}
            self._client.create_score(
                name=score.metric,
                value=score.value,
                trace_id=span[TRACE_ID],
                observation_id=span.get(SPAN_ID),
                score_id=str(uuid5(NAMESPACE_OID, f"{row.sample.metadata.get('run_id')} {score.metric}")),
                data_type="NUMERIC",
                comment=score.comment,
                metadata={name: value for name, value in more.items() if value is not None},
            )

    def close(self) -> None:
        """Wait until the client has sent the scores."""
        self._client.flush()


class LangSmithSink:
    """Posts each score as feedback on the LangSmith run that was scored; LangSmith must trace the chain.

    A score without a value is posted as None, with the cause in the comment. Feedback that is posted again replaces the
    earlier feedback.

    Args:
        client: a LangSmith client, such as `langsmith.Client()`. The sink posts synchronously and raises the errors of
            the client.
        project: name of the LangSmith project that holds the traces of the chain; None reads LangSmith's settings at
            the first row.

    Raises:
        ConfigError: if `client` has no method `create_feedback`.
    """

    def __init__(self, client: Client, project: str | None = None) -> None:
        _check(client, "create_feedback", "LangSmithSink takes a langsmith.Client()")
        self._client = client
        self._name = project

    def __repr__(self) -> str:
        """Return the sink as text: only the name of its class, because the client may hold secrets."""
        return "LangSmithSink()"

    def __call__(self, row: Row) -> None:
        """Post the scores of a row to LangSmith."""
        run_id = str(row.sample.metadata["run_id"])
        for score in row.scores.values():
            feedback = score.feedback(row.sample.id)
            known = {**feedback["metadata"], "tags": row.tags or None}
            self._client.create_feedback(
                run_id=run_id,
                key=feedback["key"],
                score=feedback["score"],
                comment=feedback["comment"],
                source_info={name: value for name, value in known.items() if value is not None},
                feedback_id=uuid5(NAMESPACE_OID, f"{run_id} {score.metric}"),
                stop_after_attempt=1,  # the callback retries and counts the errors
                **self._project_argument,
            )

    @cached_property
    def _project_argument(self) -> dict[str, Any]:
        """Keyword argument with the id of the project, which exists after the first traced run."""
        if not hasattr(self._client, "read_project"):
            return {}
        name = self._name or get_tracer_project() or "default"
        return {"session_id": self._client.read_project(project_name=name).id}


_MOST_VALUES = 100
_HEXADECIMAL = re.compile(r"[0-9a-f]{16,32}")
_BOUNDS = [step / 10 for step in range(11)]


class OpenTelemetrySink:
    """Records scores with an OpenTelemetry meter; the measurements contain no text of the run.

    These meter instruments have the attributes `metric`, `aspect` (what the metric evaluates, such as "answer") and
    `direction` ("higher" or "lower": which values are better): the histogram `rageval.score` with bucket boundaries 0,
    0.1, ... 1; the counters `rageval.failures` (with attribute `error`, the class of the error) and `rageval.unscored`
    (with attribute `reason`, the text of `Score.unscored`); and the counters `rageval.judge.calls` and
    `rageval.judge.tokens`. The counter `rageval.runs` with attribute `outcome` and the gauge `rageval.runs.open` with
    attribute `state` (pending, running) hold the counters of `RagEvalCallback.stats()`.

    With a logger, each score is also an event `gen_ai.evaluation.result` of OpenTelemetry's conventions for generative
    AI. The event belongs to the span that was current when the run began or ended. The explanation in the event may
    quote the run.

    Args:
        meter: OpenTelemetry meter, such as `opentelemetry.metrics.get_meter("rag")`.
        tags: names of tags of the row to record as attributes. The first 100 values of each tag are kept. Further
            values become "other", because each value makes a separate time series.
        logger: OpenTelemetry logger for the events, such as `opentelemetry._logs.get_logger("rag")`.

    Raises:
        ConfigError: if `meter` is not a meter, `tags` is not a list of names, or `logger` is not a logger.
    """

    def __init__(self, meter: Meter, tags: Sequence[str] = (), logger: Logger | None = None) -> None:
        hint = "; opentelemetry.metrics.get_meter returns one"
        _check(meter, "create_histogram", "OpenTelemetrySink takes a meter", hint)
        if isinstance(tags, str) or not all(isinstance(name, str) for name in tags):
            raise ConfigError(f'tags must be a list of names of tags, such as ["version"], got {tags!r}')
        if logger is not None:
            hint = "; opentelemetry._logs.get_logger returns one"
            _check(logger, "emit", "logger must be a logger of OpenTelemetry", hint)
        self._logger = logger
        self._watched: WeakSet[Any] = WeakSet()  # of `RagEvalCallback`
        self._values: dict[str, set[str]] = {name: set() for name in tags}
        self._lock = PerProcess(threading.Lock)
        self._scores = meter.create_histogram(
            "rageval.score", description="Scores of runs", explicit_bucket_boundaries_advisory=_BOUNDS
        )
        self._failures = meter.create_counter("rageval.failures", description="Scores that failed")
        self._unscored = meter.create_counter("rageval.unscored", description="Runs to which a metric does not apply")
        self._calls = meter.create_counter("rageval.judge.calls", description="Model calls made")
        self._tokens = meter.create_counter("rageval.judge.tokens", description="Tokens read and written by the judge")
        outcomes, states = partial(self._observe, "outcome"), partial(self._observe, "state")
        meter.create_observable_counter("rageval.runs", [outcomes], description="Runs by outcome")
        meter.create_observable_gauge("rageval.runs.open", [states], description="Runs without scores yet")

    def __repr__(self) -> str:
        """Return the sink as text: the name of its class."""
        return "OpenTelemetrySink()"

    def __call__(self, row: Row) -> None:
        """Record the scores of a row with the meter and, if there is one, the logger."""
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

    def watch(self, callback: Any) -> None:
        """Include the counters of a callback in the meter instruments `rageval.runs` and `rageval.runs.open`.

        `RagEvalCallback` calls this method of its sinks. OpenTelemetry then reads the current counters of the callback
        at each collection of measurements.
        """
        self._watched.add(callback)

    def _observe(self, attribute: str, _: CallbackOptions) -> Iterator[Observation]:
        """Yield the counters of all callbacks: of open runs as states, the others as outcomes."""
        from opentelemetry.metrics import Observation

        total: Counter[str] = Counter()
        for callback in list(self._watched):
            total.update(callback.stats())
        for name, count in total.items():
            if (name in ("pending", "running")) == (attribute == "state"):
                yield Observation(count, {attribute: name})

    def _tags_of(self, row: Row) -> dict[str, str]:
        """Return the chosen tags of a row, with rare values replaced."""
        chosen = {}
        with self._lock.value:
            for name, values in self._values.items():
                if (value := row.tags.get(name)) is not None:
                    if len(values) < _MOST_VALUES:
                        values.add(value)
                    chosen[name] = value if value in values else "other"
        return chosen


def _check(target: Any, method: str, expected: str, hint: str = "") -> None:
    """Raise ConfigError if the client of a sink lacks a method."""
    if not callable(getattr(target, method, None)):
        raise ConfigError(f"{expected}, got {type(target).__name__}{hint}")


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
