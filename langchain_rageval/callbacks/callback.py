"""RagEvalCallback: a LangChain callback handler that has a share of a chain's runs scored behind its back."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial, wraps
from hashlib import blake2b
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack, cast
from uuid import UUID
from weakref import WeakSet

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.runnables.config import var_child_runnable_config

from langchain_rageval.callbacks.run_tree import Following, Root, grown
from langchain_rageval.callbacks.sample_reader import sample_of
from langchain_rageval.callbacks.scoring import OUTCOMES, Extract, Job, Redact, Scoring, ScoringOptions, Sink, judging
from langchain_rageval.callbacks.sinks.jsonl import JsonlSink
from langchain_rageval.errors import ConfigError
from langchain_rageval.evaluation.engine import Evaluation
from langchain_rageval.evaluation.inputs import AnyMetric
from langchain_rageval.evaluation.options import STREAM_DEFAULTS, StreamOptions
from langchain_rageval.metrics.structure import called_models
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.options import CALL_DEFAULTS, CallOptions, fill_defaults
from langchain_rageval.run.retry import RetryPolicy

Event = TypeVar("Event", bound=Callable[..., Any])
Passes = Callable[[Following, dict[str, Any]], bool]

_DEFAULTS: CallOptions = {**CALL_DEFAULTS, "max_concurrency": 4}
_COUNTS = ("seen", "sampled", *OUTCOMES, "sink_errors", "skipped", "broken_off", "lost")


def _guarded(passes: Passes) -> Callable[[Event], Event]:
    """Keep an error of ours from the chain, and go no further with an event that `passes`."""

    def guard(event: Event) -> Event:
        @wraps(event)
        def guarded(self: RagEvalCallback, *args: Any, **told: Any) -> None:
            try:
                if not passes(self._watch.following, told):
                    event(self, *args, **told)
            except Exception as error:
                with suppress(Exception):
                    self._watch.scoring.tell("an event could not be taken in", error)

        return cast(Event, guarded)

    return guard


def _never(following: Following, told: dict[str, Any]) -> bool:
    """An error is always looked at."""
    return False


class Watch:
    """What one process watches."""

    def __init__(self, plan: ScoringOptions) -> None:
        self.scoring = Scoring(plan)
        self.following = Following(lambda _: self.scoring.count(dropped=1))


class RagEvalCallback(BaseCallbackHandler):
    """Scores a share of a chain's runs behind its back: `chain.invoke(x, config={"callbacks": [callback]})`.

    The question is the input of the root run, the answer its output, the contexts what its retrievers gave; where no
    retriever ran, Documents that tools gave, that the root's output holds, or that went from step to step. Chains,
    agents and LangGraph graphs, called in any way. A run that raises, is cancelled, or is a stream left half-way is not
    scored; of a synchronous stream that is left half-way, this is seen by steps other than models that are still open.

    The chain waits for nothing and never sees an error. Scoring happens in daemon threads through the judge's sync
    methods, under no trace of the chain. Each process works for itself; one that forks while its very first run is
    being scored may leave its child a module half imported, and locked. At exit up to 5 s are spent on what is pending;
    `flush` or `close` before that to wait longer, or not at all.

    Args:
        metrics: as `evaluate` takes them. One whose fields a run does not have is left out for that run.
        sample_rate: share of the runs that are scored, from 0 to 1. The id of a run decides, the same everywhere.
        sinks: callables that take one Row for each scored run, `sample.metadata["run_id"]` in it, such as
            `JsonlSink(path)`. One that raises is tried again, with waits of 3 s in all; each has its own thread.
        max_pending: most runs that wait for their scores; further ones are dropped.
        max_per_minute: most runs taken within a minute; further ones are dropped.
        budget: what all scoring in this process may spend; what no longer fits is dropped.
        extract: reads the sample itself: from the tree of runs, `{"id", "name", "run_type", "inputs", "outputs",
            "error", "child_runs": [...]}` with chains, retrievers and tools, to what `Sample.parse` reads; None leaves
            the run out. The tree holds the chain's own objects. Called in a scoring thread.
        redact: is given each sample first and returns the one that judge, sinks and log may see; a run for which it
            raises goes nowhere.
        callbacks: LangChain callback handlers for the judge's own calls, which no other handler or trace sees.
        **options: of the judge calls, described in `CallOptions`: `max_concurrency=4`, `timeout=60.0`, and `retry`,
            three attempts by default.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option cannot be used.
    """

    run_inline = True  # in async chains: a hop to a thread costs more than all that is done here, and loses the order

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
        callbacks: list[BaseCallbackHandler] | None = None,
        **options: Unpack[CallOptions],
    ) -> None:
        options = fill_defaults(RagEvalCallback, options, _DEFAULTS)
        _check(sample_rate, sinks, max_pending, max_per_minute, {"extract": extract, "redact": redact}, callbacks)
        options["retry"] = RetryPolicy(attempts=3) if options["retry"] is None else options["retry"]
        settings: StreamOptions = {**STREAM_DEFAULTS, **options, "callbacks": callbacks, "budget": budget}
        make = partial(Evaluation.of, metrics, settings)
        models = [model for metric in make().metrics for model in called_models(metric)]
        for sink in sinks:
            if isinstance(sink, JsonlSink):
                sink.notes += dict.fromkeys(note for model in models if (note := getattr(model, "report_note", None)))
        self._plan = ScoringOptions(
            make, tuple(sinks), max_pending, max_per_minute, options["max_concurrency"], extract, redact
        )
        self._sampled_below = int(sample_rate * 2**64)
        self._closed = False
        self._begin()

    def __getstate__(self) -> dict[str, Any]:
        """All but what is being watched: a copy watches for itself."""
        return {name: value for name, value in vars(self).items() if name != "_watch"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As in a new one."""
        vars(self).update(state)
        self._begin()

    def __repr__(self) -> str:
        """What was counted, without secrets."""
        return f"RagEvalCallback({', '.join(f'{name}={count}' for name, count in self.stats().items())})"

    def __enter__(self) -> Self:
        """Watch while the block lasts."""
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Close."""
        self.close()

    def stats(self) -> dict[str, int]:
        """What was counted in this process.

        Returns:
            `seen` runs, of which `sampled`; of these `scored` (by one metric at least), `failed` (the run itself, or
            every score), `dropped` (no room, too many a minute, budget spent, closed), `unscorable` (no metric has its
            fields, or `extract` gave None), `pending` (waiting for scores or for a sink) and `running` still. Besides
            `broken_off`: of those failed, the ones whose chain raised or was left; `skipped`: scores left out for want
            of a field; `sink_errors`: tries that a sink failed; `lost`: rows that a sink did not take in the end.
        """
        watch = self._watch
        counted = watch.scoring.stats()
        return {name: counted.get(name, 0) for name in (*_COUNTS, "pending")} | {"running": watch.following.roots}

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all runs that have ended so far are scored and delivered.

        Args:
            timeout: seconds; None waits as long as it takes.

        Returns:
            Whether that came in time.
        """
        return self._watch.scoring.flush(timeout)

    def close(self, timeout: float | None = 30.0) -> bool:
        """Flush, then take nothing more, drop what is still waiting, and close the sinks that can be closed.

        Returns:
            Whether everything was scored and delivered in time.
        """
        self._closed = True
        in_time = self.flush(timeout)
        self._watch.scoring.close()
        for sink in self._plan.sinks:
            if in_time and callable(close := getattr(sink, "close", None)):
                try:
                    close()
                except Exception as error:
                    self._watch.scoring.tell("a sink could not be closed", error)
        return in_time

    @property
    def ignore_llm(self) -> bool:
        """Models say nothing that the chain does not say, and each token would be an event."""
        return True

    @property
    def ignore_chat_model(self) -> bool:
        """Likewise."""
        return True

    @property
    def ignore_retry(self) -> bool:
        """Not looked at."""
        return True

    @property
    def ignore_custom_event(self) -> bool:
        """Not looked at."""
        return True

    @_guarded(Following.passes)
    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A root, or a step within one."""
        watch, name = self._watch, kwargs.get("name")
        if watch.following.begin(run_id, parent_run_id or _around(), "chain", name, inputs) or watch.following.holds(
            run_id
        ):
            return
        if self._closed or judging.get():
            watch.following.plant(run_id, None)
        elif self._sampled(run_id):
            watch.scoring.count(seen=1, sampled=1)
            about = {**(metadata or {}), **({"tags": tags} if tags else {})}
            tree = grown(run_id, name, "chain", inputs) if self._plan.extract else None
            watch.following.plant(run_id, Root(run_id, name or "", inputs, about, tree))
        else:
            watch.scoring.count(seen=1)
            watch.following.plant(run_id, None)

    @_guarded(Following.passed)
    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **kwargs: Any) -> None:
        """A step, or the root: its sample is taken before the caller can change what it was given."""
        watch, inputs = self._watch, kwargs.get("inputs")
        root = watch.following.end(run_id, outputs, inputs)
        if root is None:
            return
        streamed = "inputs" in kwargs
        if outputs is None or (streamed and root.open):
            watch.scoring.count(failed=1, broken_off=1)
        else:
            _take(watch.scoring, root, inputs if streamed else root.inputs, outputs)

    @_guarded(_never)
    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """A step, or the root, which is then not scored."""
        watch = self._watch
        if watch.following.end(run_id, None, kwargs.get("inputs"), error) is not None:
            watch.scoring.count(failed=1, broken_off=1)

    @_guarded(Following.passes)
    def on_retriever_start(
        self,
        serialized: dict[str, Any],
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """A retriever is asked."""
        self._watch.following.begin(run_id, parent_run_id, "retriever", kwargs.get("name"), query)

    @_guarded(Following.passed)
    def on_retriever_end(self, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        """It has answered."""
        self._watch.following.end(run_id, documents)

    @_guarded(_never)
    def on_retriever_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It has not."""
        self._watch.following.end(run_id, None, error=error)

    @_guarded(Following.passes)
    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A tool is used: perhaps a search."""
        name = (serialized or {}).get("name")
        self._watch.following.begin(run_id, parent_run_id, "tool", name, inputs or input_str)

    @_guarded(Following.passed)
    def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """It has answered."""
        self._watch.following.end(run_id, output)

    @_guarded(_never)
    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """It has not."""
        self._watch.following.end(run_id, None, error=error)

    def _begin(self) -> None:
        """With nothing open and nothing pending."""
        self._watch = Watch(self._plan)
        _in_use.add(self)

    def _sampled(self, run_id: UUID) -> bool:
        """By a hash, for the first digits of an id are the time."""
        return int.from_bytes(blake2b(run_id.int.to_bytes(16), digest_size=8).digest()) < self._sampled_below


_in_use: WeakSet[RagEvalCallback] = WeakSet()


def _begin_anew() -> None:
    """Let nothing wait for the threads of the process that forked: they are not here."""
    for callback in list(_in_use):
        callback._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)


def _around() -> UUID | None:
    """The run in whose function a chain was called with callbacks of its own: LangChain tells no parent of it."""
    config = var_child_runnable_config.get()
    return getattr(config.get("callbacks"), "parent_run_id", None) if config else None


def _take(scoring: Scoring, root: Root, inputs: Any, outputs: Any) -> None:
    """Hand a run that has ended over, if there is room for it."""
    number = scoring.admit()
    if number is None:
        return
    about = {"run_id": str(root.run_id), "run_name": root.name, "seconds": round(time.monotonic() - root.started, 6)}
    try:
        if root.tree is None:
            job = Job(number, about, sample=sample_of(root, inputs, outputs))
        else:
            job = Job(number, about, tree=root.tree)
    except Exception as error:
        scoring.scored(number)
        scoring.finish(number, "failed")
        scoring.tell("a run could not be read; say how with extract=", error)
    else:
        scoring.put(job)


def _check(
    sample_rate: Any, sinks: Any, max_pending: Any, max_per_minute: Any, functions: dict[str, Any], callbacks: Any
) -> None:
    """Raise ConfigError if an option cannot be used."""
    number = isinstance(sample_rate, int | float) and not isinstance(sample_rate, bool)
    if not number or not 0 <= sample_rate <= 1:
        raise ConfigError(f"sample_rate is a share from 0 to 1, got {sample_rate!r}; 0.05 is one run in twenty")
    for name, most in (("max_pending", max_pending), ("max_per_minute", max_per_minute)):
        whole = isinstance(most, int) and not isinstance(most, bool) and most >= 1
        if not whole and not (most is None and name == "max_per_minute"):
            raise ConfigError(f"{name} takes a whole number from 1 on, got {most!r}")
    if callable(sinks) or isinstance(sinks, str) or not isinstance(sinks, Sequence):
        raise ConfigError(f"sinks takes a list of sinks, got {type(sinks).__name__}; write sinks=[JsonlSink(path)]")
    for sink in sinks:
        if not callable(sink):
            raise ConfigError(
                f"a sink is called with each Row, {sink!r} cannot be; write JsonlSink(path), or a function"
            )
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise ConfigError(f"{name} takes a function, got {type(function).__name__}")
    if isinstance(callbacks, list) and any(isinstance(handler, RagEvalCallback) for handler in callbacks):
        raise ConfigError("callbacks are for the judge's own calls; a RagEvalCallback among them would judge the judge")
