"""Metric: a Runnable from a sample to a score, and a LangSmith evaluator, in one object."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict, PrivateAttr, ValidationError

from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Aspect, Direction, Sample, Score, Usage, without_surrogates
from langchain_rageval.errors import ConfigError, SampleError, config_error_of
from langchain_rageval.judge.judge import Judge
from langchain_rageval.metrics.adapters import Adapters
from langchain_rageval.metrics.structure import sequential_steps, stages_of
from langchain_rageval.metrics.threshold import OnMissing, require_threshold, route_by_threshold
from langchain_rageval.metrics.value import Value
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced
from langchain_rageval.steps.stage import State


class Metric(Traced[Any, Score], Adapters):
    """Scores a sample: the judge's steps state facts, the reducer makes the number.

    `invoke` and its kin take a Sample, or anything that `Sample.parse` reads. They raise SampleError, before any call,
    when it lacks what the metric reads, and JudgeOutputError, or what the model's client raises, when the judge fails;
    the doors to LangSmith, openevals and LangGraph record a failure instead.

    Args:
        name: key of the score.
        aspect: what the metric looks at.
        reads: fields of the sample that must be there.
        steps: Runnable from state to state, usually `Step | Step`.
        reduce: pure function from the last state to the Value.
        direction: whether "higher" or "lower" is better.
        options: what else the builder was given, for the instrument.
        state_from_findings: function of a sample and an earlier score of it. Returns the state that `reduce` reads, or
            None if the score's findings are not sufficient. If omitted, `Report.rescore` is not supported.

    Raises:
        ConfigError: if the name is empty, `reads` names what is no field of a sample, or another option is none there
            is.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: str
    aspect: Aspect
    reads: frozenset[str]
    steps: Runnable[State, State]
    reduce: Callable[[State], Value]
    direction: Direction = "higher"
    options: Mapping[str, Any] = {}
    state_from_findings: Callable[[Sample, Score], State | None] | None = None
    _instrument: str = PrivateAttr("")

    def __init__(
        self,
        name: str,
        *,
        aspect: Aspect,
        reads: set[str] | frozenset[str],
        steps: Runnable[State, State],
        reduce: Callable[[State], Value],
        direction: Direction = "higher",
        options: Mapping[str, Any] | None = None,
        state_from_findings: Callable[[Sample, Score], State | None] | None = None,
    ) -> None:
        name = without_surrogates(name)
        if not name:
            raise ConfigError("a metric needs a name; it is the key of its score")
        unknown = sorted(reads - Sample.model_fields.keys())
        if unknown:
            raise ConfigError(f"{name} reads {unknown}, which no sample has; use {', '.join(Sample.model_fields)}")
        try:
            super().__init__(
                name=name,
                aspect=aspect,
                reads=frozenset(reads),
                steps=steps,
                reduce=reduce,
                direction=direction,
                options=options or {},
                state_from_findings=state_from_findings,
            )
        except ValidationError as error:
            raise config_error_of(f"metric {name!r}", error) from None
        self._instrument = self._fingerprint()

    def __repr__(self) -> str:
        """Name and judges, without secrets."""
        return f"{self.name}({', '.join(dict.fromkeys(map(repr, self.judges)))})"

    __str__ = __repr__

    def __hash__(self) -> int:
        """By what decides its scores, so that a metric can be a key: `{metric: 0.8}`."""
        return hash((self.name, self.instrument))

    @property
    def _scorers(self) -> Sequence[Metric]:
        return [self]

    @property
    def judges(self) -> list[Judge]:
        """Who is asked, step by step."""
        return [judge for stage in stages_of(self) for judge in stage.judges]

    @property
    def models(self) -> list[Any]:
        """The models behind it: of the judges, embeddings, a cross-encoder."""
        return [model for stage in stages_of(self) for model in stage.models]

    @property
    def instrument(self) -> str:
        """Hash of all that could change a score except the sample."""
        return self._instrument

    def read(self, input: Any) -> Sample:
        """The sample in an input, complete for this metric.

        Raises:
            SampleError: if it is none, or lacks a field.
        """
        sample = Sample.parse(input)
        lacking = sorted(field for field in self.reads if _lacks(sample, field))
        if lacking:
            raise SampleError(
                f"{self.name} reads {sorted(self.reads)}; sample {sample.id!r} lacks {lacking}: "
                "fill it in or drop the metric",
                lacking[0],
            )
        return sample

    def rescore(self, sample: Sample, score: Score) -> Score | None:
        """The score anew from what was found for an earlier one, without a call; it keeps what that one cost.

        Args:
            sample: complete for this metric.
            score: of the sample, by this metric with other options, or another that found the same; not a failure.

        Returns:
            The score; None when the findings do not suffice.
        """
        told = bool(score.findings) or not score.value  # a value above 0 that nothing decided is not one of ours
        state = self.state_from_findings(sample, score) if self.state_from_findings and told else None
        return None if state is None else self._stamped(self.reduce(state), score.usage)

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """The steps, and the reducer that makes the number."""
        reducer = RunnableLambda(self.reduce, name=_named(self.reduce).rpartition(".")[2])
        return (self.steps | reducer).get_graph(config)

    def require(self, threshold: float, *, missing: OnMissing = "raise") -> Runnable[Any, Any]:
        """A Runnable that passes its input on when the score reaches the threshold.

        Args:
            threshold: least value, or the greatest when lower is better; reaching it passes.
            missing: whether an input without a value, unscored or failed, raises or passes.

        Raises:
            BelowThreshold: from the Runnable, when the score is worse.
        """
        return require_threshold(self, threshold, missing)

    def route(self, threshold: float, then: Any, otherwise: Any, *, missing: OnMissing = "raise") -> Runnable[Any, Any]:
        """A Runnable that gives its input to `then` when the score reaches the threshold, else to `otherwise`.

        Args:
            threshold: as in `require`.
            then: Runnable or function that takes the original input.
            otherwise: likewise.
            missing: whether an input without a value raises BelowThreshold or passes to `then`.
        """
        return route_by_threshold(self, threshold, then, otherwise, missing)

    def _do(self, input: Any, config: RunnableConfig) -> Score:
        state: State = {"sample": self.read(input)}
        run = Run.of(config).metered()
        inner = run.into_complete(config)
        for step in sequential_steps(self):
            state = step.invoke_child(state, inner) if isinstance(step, Traced) else step.invoke(state, inner)
        return self._stamped(self.reduce(state), run.meter.usage)

    async def _ado(self, input: Any, config: RunnableConfig) -> Score:
        state: State = {"sample": self.read(input)}
        run = Run.of(config).metered()
        inner = run.into_complete(config)
        for step in sequential_steps(self):
            state = await (step.ainvoke_child(state, inner) if isinstance(step, Traced) else step.ainvoke(state, inner))
        return self._stamped(self.reduce(state), run.meter.usage)

    def _stamped(self, value: Value, usage: Usage) -> Score:
        if not isinstance(value, Value):
            mend = "return Value(number, reason), or Value.without(why) when no number applies"
            raise ConfigError(f"reduce of {self.name} gave {type(value).__name__}, not a Value: {mend}")
        return Score(
            metric=self.name,
            aspect=self.aspect,
            direction=self.direction,
            value=value.number,
            reason=value.reason if value.number is not None else "",
            findings=list(value.findings),
            unscored=value.unscored,
            usage=usage,
            instrument=self.instrument,
        )

    def _fingerprint(self) -> str:
        parts = {
            "reduce": _named(self.reduce),
            "options": self.options,
            "steps": [stage.instrument for stage in stages_of(self)],
            "version": __version__,
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=repr).encode()).hexdigest()[:16]


def _named(function: Callable[..., Any]) -> str:
    """Module and name of a function, also of one with options bound, or of the class of what is called like one."""
    while isinstance(function, partial):
        function = function.func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _lacks(sample: Sample, field: str) -> bool:
    """Whether a field is missing. An empty list of references is; one of contexts says that nothing was found.

    Contexts of which there are none have no ids that could be missing.
    """
    value = getattr(sample, field)
    if field == "context_ids" and sample.contexts == []:
        return False
    return value is None or (field == "references" and not value)
