"""RagEvalCallback: a LangChain callback handler that scores a sample of a chain's runs in the background."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Self, Unpack
from uuid import UUID
from weakref import WeakSet

from langchain_core.callbacks import BaseCallbackHandler

from langchain_rageval.callbacks.scoring_pipeline import (
    OUTCOMES,
    Extract,
    Redact,
    ScoringPipeline,
    Sink,
    current_span,
    in_worker,
    span_in,
)
from langchain_rageval.callbacks.sinks.files import JsonlSink
from langchain_rageval.callbacks.sinks.traces import OpenTelemetrySink
from langchain_rageval.chains.events import ChainEvents
from langchain_rageval.chains.run_trees import RootRun, RunRecord, RunTrees, RunType, new_record
from langchain_rageval.chains.sample_reader import enclosing_thread_id, read_chain_run, snapshot, thread_id_in
from langchain_rageval.data.conversations import CONVERSATION
from langchain_rageval.data.schema import Sample, without_surrogates
from langchain_rageval.errors import ConfigError, check_number
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.options import STREAM_DEFAULTS, StreamOptions
from langchain_rageval.metrics.structure import called_models
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import CALL_DEFAULTS, CallOptions, fill_defaults

_DEFAULTS: CallOptions = {**CALL_DEFAULTS, "max_concurrency": 4}
_ALL = 2**64
_COUNTERS = ("seen", "sampled", *OUTCOMES, "sink_errors", "skipped", "broken_off", "lost")


class RagEvalCallback(ChainEvents):
    """Callback handler that scores a fraction of a chain's runs in the background.

    Pass it to a chain: `chain.invoke(x, config={"callbacks": [callback]})`.

    The question is the input of the root run, and the answer is the output of the root run. The contexts come from the
    first of these sources that has any: (1) the chunks in the prompt of the model call that wrote the answer, and in
    the prompts of earlier calls whose outputs this prompt holds; (2) the contexts in the output of the root run; (3)
    the Documents of retrievers, or of tools in which no retriever ran; (4) the Documents in the inputs of the root run
    or passed between steps. `metadata["contexts_from"]` names the source. Documents that a conversation keeps from
    earlier turns are left out unless the prompt holds them.

    A run is a turn of a conversation if its config has a `thread_id`, `session_id`, `conversation_id` or
    `conversation`, in the metadata or in the configurable values. A conversation is scored as a whole or not at all.
    The sample of a turn has the id of the conversation in `metadata.conversation`, and the number of the turn in
    `metadata.turn`. It has the earlier turns in `history`, as far as the messages of the run show them. The sinks get
    the turns in order. If a run has no steps, the callback sees only the metadata, not the configurable values.

    Chains, agents, LangGraph graphs and retrievers work, with sync, async, batch and streaming calls. A run is not
    scored if it raises, if it is cancelled, or if its stream is abandoned. A synchronous stream counts as abandoned if
    it ends without output, or before a step that is not a model has ended. Otherwise its output is scored.

    The chain never waits for scoring and never sees its errors. Scoring runs in daemon threads through the judge's sync
    methods, outside the chain's traces. Each process scores its own runs. A process should not fork while its very
    first run is being scored: a module that is half imported stays locked in the child. At exit the callback waits up
    to 5 s for pending runs. To wait longer or not at all, call `flush` or `close` before exit.

    Args:
        metrics: metrics, as for `evaluate`. If a run lacks a field that a metric reads, the run is not scored by this
            metric.
        sample_rate: fraction of the runs to score, from 0 to 1. A hash of the conversation's id selects all turns of a
            conversation together. For other runs, a hash of the run id decides. Every process decides alike.
        sinks: callables that take a Row for each scored run, such as `JsonlSink(path)`; `sample.metadata["run_id"]`
            holds the id of the run. Each sink has its own thread. A row that a sink rejects is tried again, with delays
            of 3 s in total.
        max_pending: maximum number of runs that wait for scores; further runs are dropped.
        max_per_minute: maximum number of runs scored per minute; further runs are dropped. None sets no limit.
        budget: limit on the cost of all scoring in this process; runs that exceed the budget are dropped.
        extract: function that reads the sample from the tree of runs, in place of the rules above. Its argument is the
            root run, `{"id", "name", "run_type", "inputs", "outputs", "error", "child_runs": [...]}`. The child runs
            are chains, retrievers and tools. The function returns anything that `Sample.parse` reads, or None to leave
            the run out. The tree holds the chain's own objects, not copies. The function is called in a scoring thread.
        redact: function that takes the sample and returns the sample that judge, sinks and log may see. Texts of chunks
            are in `contexts`, and in `retrieved` as they were before a reranker. The function runs before judge, sinks
            and log see the sample. If the function raises, the run is not scored.
        tags: names and values that are added to every row, such as {"version": "1.4", "tenant": "acme"}. Sinks store
            the tags, and reports can be sliced by a tag.
        callbacks: LangChain callback handlers for the judge's calls. No other handler or trace sees these calls.
        seed: seed of the sampling; a different seed selects different conversations and runs.
        **options: options of the judge calls, see `CallOptions`. The defaults are `max_concurrency=4`, `timeout=60.0`,
            and a `retry` with three attempts.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option is invalid.
    """

    def __init__(
        self,
        metrics: AnyMetric | Sequence[AnyMetric],
        sample_rate: float = 0.05,
        sinks: Sequence[Sink] = (),
        max_pending: int = 1000,
        max_per_minute: int | None = None,
        budget: Budget | None = None,
        extract: Extract | None = None,
        redact: Redact | None = None,
        *,
        tags: Mapping[str, str] | None = None,
        callbacks: list[BaseCallbackHandler] | None = None,
        seed: int = 0,
        **options: Unpack[CallOptions],
    ) -> None:
        options = fill_defaults(RagEvalCallback, options, _DEFAULTS)
        _check(sample_rate, sinks, max_pending, max_per_minute, {"extract": extract, "redact": redact}, callbacks)
        check_number("seed must be a whole number", seed, whole=True)
        options["retry"] = RetryPolicy(attempts=3) if options["retry"] is None else options["retry"]
        settings: StreamOptions = {**STREAM_DEFAULTS, **options, "callbacks": callbacks, "budget": budget}
        build = partial(Evaluation, metrics, settings)
        models = [model for metric in build().metrics for model in called_models(metric)]
        for sink in sinks:
            if isinstance(sink, JsonlSink):
                sink.notes += dict.fromkeys(note for model in models if (note := getattr(model, "report_note", None)))
        self._new_pipeline = partial(
            ScoringPipeline,
            build,
            tuple(sinks),
            max_pending,
            max_per_minute,
            options["max_concurrency"],
            extract,
            redact,
            _checked_tags(tags),
        )
        self._sampled_below = int(sample_rate * _ALL)
        self._salt = blake2b(str(seed).encode(), digest_size=16).digest() if seed else b""  # that of 0 is empty
        self._closed = False
        self._reset()
        for sink in sinks:
            if isinstance(sink, OpenTelemetrySink):
                sink.watch(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without open runs and queues: a copy starts empty."""
        return {name: value for name, value in vars(self).items() if name not in ("_pipeline", "_open")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the options, with no open runs and empty queues."""
        vars(self).update(state)
        self._reset()

    def __repr__(self) -> str:
        """Return the callback as text: its counters, without secrets."""
        return f"RagEvalCallback({', '.join(f'{name}={count}' for name, count in self.stats().items())})"

    def __enter__(self) -> Self:
        """Return the callback; leaving the block closes it."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close the callback."""
        self.close()

    def stats(self) -> dict[str, int]:
        """Return how many runs were seen, sampled, scored, failed and dropped in this process.

        Returns:
            Mapping of counter names to numbers. `seen`: all runs. `sampled`: runs selected for scoring. Each sampled
            run counts once as `scored` (by at least one metric), `failed` (the run itself or every score failed),
            `dropped` (queue full, rate or budget exceeded, callback closed), `unscorable` (the run lacks fields of
            every metric, or `extract` returned None), `pending` (waiting for scores or sinks) or `running`.
            `broken_off`: failed runs whose chain raised, was cancelled or abandoned. `skipped`: scores left out because
            a field is missing. `sink_errors`: failed calls of sinks. `lost`: rows that a sink never accepted.
        """
        counts = self._pipeline.stats()
        return {name: counts.get(name, 0) for name in (*_COUNTERS, "pending")} | {"running": self._open.n_sampled}

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all runs that have ended so far are scored and delivered to the sinks.

        Args:
            timeout: seconds; None waits without limit.

        Returns:
            True if all these runs were scored and delivered in time.
        """
        return self._pipeline.flush(timeout)

    def close(self, timeout: float | None = 10.0) -> bool:
        """Stop the callback: wait until all ended runs are scored and delivered, then close the sinks.

        After a timeout, the runs whose scoring has not begun are dropped instead.

        Args:
            timeout: seconds to wait; None waits without limit. After a timeout the sinks are not
                closed. A warning in the log then gives the number of runs that were dropped (`dropped` in `stats`), and
                the number of runs that are still being scored or delivered (`pending`).

        Returns:
            True if all runs were scored and delivered in time.
        """
        self._closed = True
        in_time = self.flush(timeout)
        self._pipeline.close()
        for sink in self._pipeline.sinks:
            if in_time and callable(close := getattr(sink, "close", None)):
                try:
                    close()
                except Exception as error:
                    self._pipeline.log_once("a sink could not be closed", error)
        return in_time

    def _begin_tree(self, run_type: RunType, run_id: UUID, inputs: Any, event: Mapping[str, Any]) -> None:
        """Decide whether a new tree is sampled. A model by itself is no chain."""
        if run_type == "model":
            return
        if self._closed or in_worker.get():
            self._open.start_tree(run_id, None)
            return
        self._pipeline.count(seen=1)
        metadata, tags, name = event.get("metadata") or {}, event.get("tags"), event.get("name")
        thread_id = thread_id_in(metadata) or enclosing_thread_id()
        awaits_thread = thread_id is None and run_type == "chain"
        is_undecided = awaits_thread and 0 < self._sampled_below < _ALL
        if not is_undecided and not self._is_sampled(run_id, thread_id):
            self._open.start_tree(run_id, None)
            return
        self._pipeline.count(sampled=int(not is_undecided))
        run_metadata = {**current_span(), **metadata, **({"tags": tags} if tags else {})}
        record = new_record(run_id, name, run_type, inputs) if self._pipeline.extract else None
        root = RootRun(run_id, name or "", inputs, run_metadata, record, thread_id=thread_id)
        root.awaits_thread, root.is_undecided = awaits_thread, is_undecided
        self._open.start_tree(run_id, root, run_type)

    def _start(self, run_type: RunType, run_id: UUID, inputs: Any, event: Mapping[str, Any]) -> None:
        """Start a run; the first step of a tree may show the id of the conversation, which decides on the tree."""
        if (root := self._open.root_that_awaits_thread(event.get("parent_run_id"))) is not None:
            root.awaits_thread = False
            root.thread_id = thread_id_in(event.get("metadata")) or enclosing_thread_id()
            if root.is_undecided and not self._decide(root):
                self._open.drop_tree(root)
        super()._start(run_type, run_id, inputs, event)

    def _decide(self, root: RootRun) -> bool:
        """Return True if an undecided tree is sampled, now that the id of its conversation is known if it has one."""
        root.is_undecided = False
        is_sampled = self._is_sampled(root.run_id, root.thread_id)
        self._pipeline.count(sampled=int(is_sampled))
        return is_sampled

    def _end_tree(self, root: RootRun, inputs: Any, outputs: Any, *, is_complete: bool) -> None:
        """Submit a run that has ended for scoring, if there is room; copy its outputs, which may change."""
        if root.is_undecided and not self._decide(root):
            return
        if not is_complete:
            self._pipeline.count(failed=1, broken_off=1)
            return
        seconds, span = round(time.monotonic() - root.started, 6), span_in(root.metadata) or current_span()
        metadata = {"run_id": str(root.run_id), "run_name": root.name, "seconds": seconds, **span}
        if root.thread_id is not None:
            metadata[CONVERSATION] = root.thread_id

        def prepare() -> Callable[[], Sample | None]:
            if self._pipeline.extract is not None and root.record is not None:
                return partial(_extract, self._pipeline.extract, root.record)
            return partial(read_chain_run, root, snapshot(inputs), snapshot(outputs))

        self._pipeline.submit(metadata, prepare)

    def _log_event_error(self, error: Exception) -> None:
        self._pipeline.log_once("an event could not be handled", error)

    def _reset(self) -> None:
        """Discard all open runs and queues."""
        pipeline = self._pipeline = self._new_pipeline()
        self._open = RunTrees(lambda _: pipeline.count(dropped=1))
        _instances.add(self)

    def _is_sampled(self, run_id: UUID, thread_id: str | None) -> bool:
        """Return True if the conversation, or else the run, is sampled. Ids are hashed: they may begin with a time."""
        key = run_id.int.to_bytes(16) if thread_id is None else thread_id.encode(errors="replace")
        return int.from_bytes(blake2b(key, digest_size=8, salt=self._salt).digest()) < self._sampled_below


_instances: WeakSet[RagEvalCallback] = WeakSet()


if hasattr(os, "register_at_fork"):  # a forked child has none of the parent's threads
    os.register_at_fork(after_in_child=lambda: [*map(RagEvalCallback._reset, list(_instances))])


def _extract(extract: Extract, record: RunRecord) -> Sample | None:
    """Return the sample that a function of the user reads from the record of a run; None if there is none."""
    if (fields := extract(record)) is None:
        return None
    sample = Sample.parse(fields)
    has_id = isinstance(fields, Sample) or "id" in fields
    return sample if has_id else sample.model_copy(update={"id": record["id"]})


def _checked_tags(tags: Any) -> dict[str, str]:
    """Return the tags as a dict, without lone surrogates, which no file could hold.

    Raises:
        ConfigError: if they are not texts.
    """
    if tags is None:
        return {}
    if not isinstance(tags, Mapping) or not all(isinstance(part, str) for pair in tags.items() for part in pair):
        raise ConfigError(f'tags must map names to texts, such as {{"version": "1.4"}}, got {tags!r}')
    return dict(without_surrogates(tags))


def _check(
    sample_rate: Any, sinks: Any, max_pending: Any, max_per_minute: Any, functions: dict[str, Any], callbacks: Any
) -> None:
    """Raise ConfigError if an option cannot be used."""
    check_number("sample_rate is a share from 0 to 1", sample_rate, lambda rate: 0 <= rate <= 1)
    limits = {"max_pending": max_pending, "max_per_minute": 1 if max_per_minute is None else max_per_minute}
    for name, most in limits.items():
        check_number(f"{name} must be a whole number of at least 1", most, lambda number: number >= 1, whole=True)
    if callable(sinks) or isinstance(sinks, str) or not isinstance(sinks, Sequence):
        raise ConfigError(f"sinks must be a list of sinks, got {type(sinks).__name__}; write sinks=[JsonlSink(path)]")
    for sink in sinks:
        if not callable(sink) or isinstance(sink, type):
            raise ConfigError(f"a sink must be callable with a Row, got {sink!r}; pass JsonlSink(path) or a function")
        if iscoroutinefunction(sink) or iscoroutinefunction(getattr(sink, "__call__", None)):  # noqa: B004
            raise ConfigError(f"a sink must not be async, got {sink!r}; pass a plain function: it has its own thread")
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ConfigError(f"{name} must be a function, got {type(function).__name__}")
    if isinstance(callbacks, list) and any(isinstance(handler, RagEvalCallback) for handler in callbacks):
        raise ConfigError("callbacks must not contain a RagEvalCallback: it would score the judge's calls; remove it")
