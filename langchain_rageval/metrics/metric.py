"""Metric: a Runnable from a sample to a score. It is also a LangSmith evaluator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from math import isfinite
from numbers import Real
from operator import or_
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.runnables.base import coerce_to_runnable
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict, PrivateAttr, ValidationError

from langchain_rageval._internal.code_identity import qualified_name
from langchain_rageval._internal.description import NotDescribable, describe
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Instrument, join_digests, split_digests
from langchain_rageval.data.messages import CONTEXT_NOTES, NO_CONTEXTS
from langchain_rageval.data.schema import Aspect, Direction, Sample, Score, Usage, without_surrogates
from langchain_rageval.errors import ConfigError, SampleError, config_error_of, list_choices, record_step
from langchain_rageval.judge.judge import Judge, JudgeLike, with_probabilities
from langchain_rageval.judge.panels import map_members
from langchain_rageval.metrics.adapters import Adapters, OnMissing, below_threshold, threshold_runnable
from langchain_rageval.metrics.structure import sequential_steps, stages_of
from langchain_rageval.metrics.supported import (
    LACKS_FIELD,
    Value,
    extraction_findings,
    rewriting_of,
    split_extraction,
    with_extraction,
)
from langchain_rageval.run.run import Run, Traced, ainvoke_child, invoke_child
from langchain_rageval.steps.stage import Stage, State, can_be_rejudged, describe_step
from langchain_rageval.steps.step import ChainStep, keep_answers, own_names, restore_answers
from langchain_rageval.steps.votes import AGREEMENT, CUT, NO_MAJORITY, UNDECIDED

_TOLERANCE = 1e-9  # by which rounding may move a value out of the range


class Metric(Traced[Any, Score], Adapters):
    """Runnable that scores a sample: its steps find facts, mostly by a judge, and a pure function computes the value.

    `invoke`, `batch` and the other Runnable methods take a Sample, or any input that `Sample.parse` accepts. If the
    sample lacks a field that the metric reads, they raise SampleError before any call. If the judge fails, they raise
    JudgeOutputError or the error of the model's client. A step of this package (a `Stage`) removes the secrets of its
    models from the error, such as an API key that the server repeated; any other Runnable in `steps` raises the error
    unchanged. Errors of this package, and failures in scores, reports and logs, contain no secrets. The adapters to
    LangSmith, openevals and LangGraph record a failure instead of an exception.

    Args:
        name: key of the score.
        aspect: aspect of the sample that is scored: "context", "answer", "grounding", "ranking" or any other word.
        reads: fields that a sample must have.
        steps: Runnable from state to state, usually `Step | Step`. The state is a mapping of the sample and all
            results.
        reduce: pure function from the last state to a Value.
        direction: whether "higher" or "lower" is better.
        options: further options of the function that builds the metric; they are part of the attribute `instrument`
            (hashes of the configuration, by which reports identify the metric).
        version: text, such as "1", that identifies `reduce` instead of its code; change it when `reduce` changes.
        state_from_findings: function of a sample and an earlier score of it. Returns the state that `reduce` reads, or
            None if the score's findings are not sufficient. If omitted, `Report.rescore` uses `Score.answers`: the
            answers of the steps that you defined yourself (`Step`).
        range: lowest and highest possible value; -inf or inf if there is none. A value outside the range is an error,
            not a score. The range cannot change a value, so it is not part of `instrument`.

    Raises:
        ConfigError: if the name is empty, `reads` contains a name that is not a field of Sample, or any other option is
            invalid; when scoring, if `reduce` returns a value that is outside the range, infinite or NaN.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    name: str
    aspect: Aspect
    reads: frozenset[str]
    steps: Runnable[State, State]
    reduce: Callable[[State], Value]
    direction: Direction = "higher"
    options: Mapping[str, Any] = {}
    version: str | None = None
    state_from_findings: Callable[[Sample, Score], State | None] | None = None
    range: tuple[float, float] = (0.0, 1.0)
    _provenance: Instrument = PrivateAttr(Instrument(""))
    _is_optional: bool = PrivateAttr(False)

    def __init__(
        self,
        name: str,
        *,
        aspect: Aspect,
        reads: Iterable[str],
        steps: Runnable[State, State],
        reduce: Callable[[State], Value],
        direction: Direction = "higher",
        options: Mapping[str, Any] | None = None,
        version: str | None = None,
        state_from_findings: Callable[[Sample, Score], State | None] | None = None,
        range: tuple[float, float] = (0.0, 1.0),
    ) -> None:
        name, aspect = without_surrogates(name), without_surrogates(aspect)
        if not name:
            raise ConfigError(f"a metric needs a name, the key of its score, such as 'politeness'; got {name!r}")
        if not isinstance(aspect, str) or not aspect.strip():
            raise ConfigError(f"aspect of {name} is a word for what it scores, such as 'answer', got {aspect!r}")
        if isinstance(reads, str):
            raise ConfigError(f"reads of {name} is a set of fields: write reads={{{reads!r}}}")
        reads = frozenset(reads)
        if callable(steps) and not isinstance(steps, Runnable):
            raise ConfigError(f"steps of {name} is a Runnable, got {steps!r}: call a Step with a judge, as rate(judge)")
        unknown = sorted(reads - Sample.model_fields.keys())
        if unknown:
            raise ConfigError(
                f"{name} reads {unknown}, which no sample has; use {list_choices(unknown[0], Sample.model_fields)}"
            )
        ends = range if isinstance(range, tuple | list) else ()
        if len(ends) != 2 or not all(isinstance(end, Real) for end in ends) or not ends[0] < ends[1]:
            raise ConfigError(f"range of {name} is its lowest and its highest value, such as (0, 1), got {range!r}")
        try:
            super().__init__(
                name=name,
                aspect=aspect,
                reads=reads,
                steps=steps,
                reduce=reduce,
                direction=direction,
                options=options or {},
                version=version,
                state_from_findings=state_from_findings,
                range=range,
            )
        except ValidationError as error:
            raise config_error_of(f"metric {name!r}", error) from None
        if foreign := [
            part for part in sequential_steps(self) if isinstance(part, BasePromptTemplate | BaseLanguageModel)
        ]:
            raise ConfigError(
                f"steps of {name} contains a {type(foreign[0]).__name__}, which takes no state: "
                "write steps=Step.from_chain(chain, key=..., reads=...)"
            )
        _check_own_steps(name, stages_of(self))
        Metric.update_provenance(self)  # not an override, which may read what a subclass sets after this method

    def __repr__(self) -> str:
        """Return the metric as text: its name and its judges, without secrets."""
        return f"{self.name}({', '.join(dict.fromkeys(map(repr, self.judges)))})"

    __str__ = __repr__

    def __hash__(self) -> int:
        """Return the hash of name and instrument, so that a metric can be a key: `{metric: 0.8}`."""
        return hash((self.name, self.instrument))

    @property
    def _scorers(self) -> Sequence[Metric]:
        return [self]

    @property
    def judges(self) -> list[Judge]:
        """Judges of the steps, in step order."""
        return [judge for stage in stages_of(self) for judge in stage.judges]

    @property
    def models(self) -> list[Any]:
        """Models that the steps call: models of the judges, embeddings, a cross-encoder."""
        return [model for stage in stages_of(self) for model in stage.models]

    @property
    def instrument(self) -> str:
        """Hashes of the configuration that affects the scores, as "<found_by>.<counted_by>".

        `found_by` is the hash of the steps that find facts; `counted_by` is the hash of the part that computes the
        value. Each has 16 hexadecimal digits, or is "unknown" if the part cannot be identified. Reports and journals
        identify the metric by these hashes.
        """
        return self._provenance.digests

    @property
    def provenance(self) -> Instrument:
        """Configuration of the metric as data, in two parts: `found_by` and `counted_by`.

        `found_by` describes the steps that find facts, with their judges; `counted_by` describes the computation of the
        value. `instrument` holds the hashes of the two parts. If one of the hashes is "unknown", the attribute
        `unknown` of the result gives the cause and the remedy.
        """
        return self._provenance

    def update_provenance(self) -> None:
        """Compute `provenance` (the configuration as data) and `instrument` (its hashes) again.

        An evaluation calls this method at its start, because models, functions and data may have changed. Before that,
        the evaluation calls `Judge.update_instrument` for each judge; without this earlier call, a change of the judge
        is not noticed. The constructor does not call an override of this method; a subclass calls it itself.
        """
        parts: list[dict[str, Any] | None] = []
        problems = []
        for part in (self._finding, self._counting):
            try:
                parts.append({**part(), "package": __version__})
            except NotDescribable as error:
                parts.append(None)
                problems.append(str(error))
        found_by, counted_by = parts
        self._provenance = Instrument.of(found_by, counted_by, "; ".join(problems))

    @property
    def can_be_judged_by_another(self) -> bool:
        """True if `judged_by` can replace all judges and verifiers of the steps by another judge."""
        return can_be_rejudged(stages_of(self))

    def judged_by(self, judge: JudgeLike) -> Metric:
        """Return a copy of this metric in which one judge replaces all judges, and the verifier if there is one.

        The copy keeps the embeddings and all options. The prompt set and the language are those of the new judge. Steps
        that you defined yourself (`Step`) keep their prompts, unless the new prompt set has prompts for these steps. If
        the judges of this metric request probabilities, the new judge requests them too.

        Raises:
            ConfigError: if no step asks a judge that can be replaced.
        """
        if not self.can_be_judged_by_another:
            raise ConfigError(f"{self.name} asks no judge that can be replaced")
        other = Judge.of(judge)
        if any(own.probabilities for own in self.judges):
            other = map_members(other, with_probabilities)
        steps = [step.judged_by(other) if isinstance(step, Stage) else step for step in sequential_steps(self)]
        judged = self.model_copy(update={"steps": reduce(or_, steps)})
        judged.update_provenance()
        return judged

    def optional(self) -> Metric:
        """Return a copy that leaves a sample without a required field unscored instead of raising an error.

        The metrics of presets are optional. The copy has the same `instrument`.
        """
        optional = self.model_copy()
        optional._is_optional = True
        return optional

    @property
    def is_optional(self) -> bool:
        """True if a sample without a required field is unscored instead of an error; see `optional`."""
        return self._is_optional

    def read(self, input: Any) -> Sample:
        """Return `input` as a Sample, after a check that the sample has all fields that this metric reads.

        `input` is a Sample, or any object that `Sample.parse` can read, such as a mapping or a dataclass. An `optional`
        metric accepts a sample without these fields.

        Raises:
            SampleError: if `input` cannot be read as a sample, or lacks a field that this metric reads.
        """
        sample = Sample.parse(input)
        if lacking := self._lacking(sample):
            reason = sample.metadata.get(NO_CONTEXTS) if "contexts" in lacking else None
            others = sorted(sample.metadata.keys() - {*CONTEXT_NOTES})
            mapped = f", or map one of {others} with fields={{...}} or --fields" if others else ""
            raise SampleError(
                f"{self.name} reads {sorted(self.reads)}; sample {sample.id!r} lacks {lacking}: "
                f"{reason or 'fill it in or drop the metric' + mapped}",
                lacking[0],
            )
        return sample

    def _lacking(self, sample: Sample) -> list[str]:
        """Return the fields that this metric reads and the sample lacks, sorted; none of an optional metric."""
        return [] if self._is_optional else self.missing_fields(sample)

    def missing_fields(self, sample: Sample) -> list[str]:
        """Return the fields that this metric reads and the sample does not have, sorted."""
        return sorted(field for field in self.reads if _is_missing(sample, field))

    def rescore(self, sample: Sample, score: Score) -> Score | None:
        """Compute the score from the findings of an earlier score, without a call of a model.

        The new score keeps the usage (calls, tokens and time) of the earlier score and its `found_by`, the hash of the
        configuration that found the facts. If the metric is a function of the sample, the function is called again.

        Args:
            sample: has all fields that this metric reads.
            score: an earlier score of the sample, by this metric with other options, or by a metric with the same
                findings; not a failure.

        Returns:
            The score, or None if the findings do not suffice.
        """
        follows_chain = any(isinstance(stage, ChainStep) for stage in stages_of(self))  # models may not be in its graph
        if self.state_from_findings is None and not self.models and not follows_chain:
            return self.invoke(sample).model_copy(update={"usage": score.usage})
        if score.unscored == NO_MAJORITY:
            return None
        items, extraction = split_extraction(score.findings)
        if self.state_from_findings is None:
            state = restore_answers(sequential_steps(self), score.answers)
            if state is not None:
                state |= {"sample": sample, AGREEMENT: [item for item in items if item.kind == "agreement"]}
        else:
            usable = bool(items) or not score.value  # our metrics give no value above 0 without findings about items
            state = self.state_from_findings(sample, score.model_copy(update={"findings": items})) if usable else None
        if state is None:
            return None
        update = {
            "instrument": join_digests(score.found_by, split_digests(self.instrument)[1]),
            "answers": score.answers,
        }
        rescored = self._score(self._reduced(state), score.usage).model_copy(update=update)
        return with_extraction(rescored, extraction)

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the steps and the reducer (function that computes the value)."""
        reducer = RunnableLambda(self.reduce, name=_qualified_name(self.reduce).rpartition(".")[2])
        return (self.steps | reducer).get_graph(config)

    def require(self, threshold: float, *, missing: OnMissing = "raise") -> Runnable[Any, Any]:
        """Return a Runnable that returns its input if the score reaches the threshold, else raises BelowThreshold.

        Args:
            threshold: lowest value that passes; if lower is better, the highest value that passes.
            missing: treatment of an input whose score has no value (unscored or failed): "raise" raises BelowThreshold,
                "pass" returns the input.

        Raises:
            ConfigError: if an option is invalid.
        """

        def decide(input: Any, passed: bool, score: Score) -> Any:
            if not passed:
                raise below_threshold(score, threshold)
            return input

        return threshold_runnable(self, threshold, missing, decide, f"require_{self.name}")

    def route(self, threshold: float, then: Any, otherwise: Any, *, missing: OnMissing = "raise") -> Runnable[Any, Any]:
        """Return a Runnable that runs `then` on its input if the score reaches the threshold, else `otherwise`.

        Args:
            threshold: lowest value that goes to `then`; if lower is better, the highest value.
            then: Runnable or function of the original input.
            otherwise: Runnable or function of the original input.
            missing: treatment of an input whose score has no value: "raise" raises BelowThreshold, "pass" runs `then`.

        Raises:
            ConfigError: if an option is invalid.
        """
        branches = {True: coerce_to_runnable(then), False: coerce_to_runnable(otherwise)}

        def decide(_input: Any, passed: bool, score: Score) -> Any:
            if score.value is None and not passed:
                raise below_threshold(score, threshold)
            return branches[passed]  # RunnableLambda runs the Runnable that it returns, on the same input

        return threshold_runnable(self, threshold, missing, decide, f"route_{self.name}")

    def _do(self, input: Any, config: RunnableConfig) -> Score:
        sample, run = self.read(input), Run.of(config).metered()
        state, inner = {"sample": sample}, run.into_complete(config)
        for step in self._steps_for(sample):
            state = invoke_child(step, state, inner)
        return self._finished(state, sample, run.meter.usage)

    async def _ado(self, input: Any, config: RunnableConfig) -> Score:
        sample, run = self.read(input), Run.of(config).metered()
        state, inner = {"sample": sample}, run.into_complete(config)
        for step in self._steps_for(sample):
            state = await ainvoke_child(step, state, inner)
        return self._finished(state, sample, run.meter.usage)

    def _steps_for(self, sample: Sample) -> Sequence[Runnable[State, State]]:
        """Return the steps, after one that makes the question of a conversation understandable on its own.

        There are none for a sample that lacks a field of an optional metric.
        """
        if self._is_optional and self.missing_fields(sample):
            return []
        rewriting = rewriting_of(sample, self.reads, stages_of(self)) if sample.history else None
        steps = sequential_steps(self)
        return steps if rewriting is None else [rewriting, *steps]

    def _finished(self, state: State, sample: Sample, usage: Usage) -> Score:
        """Return the score of a state; the reducer gets the sample with its own question."""
        if self._is_optional and self.missing_fields(sample):
            return self._score(Value.without(LACKS_FIELD), usage)
        found = [*extraction_findings(state), *state.get("question_findings", ()), *state.get(CUT, ())]
        if undecided := state.get(UNDECIDED):
            value = Value.without(NO_MAJORITY, undecided)
        else:
            value = self._reduced({**state, "sample": sample} if sample.history else state)
        score = self._score(value, usage)
        if answers := keep_answers(sequential_steps(self), state) if self.state_from_findings is None else {}:
            score = score.model_copy(update={"answers": answers})
        return with_extraction(score, found)

    def _reduced(self, state: State) -> Value:
        """Return what the reducer gives for a state, and the agreement; an error names the reducer as its step."""
        try:
            value = self.reduce(_ReadState(state, self.name))
        except Exception as error:
            record_step(error, f"reduce of {self.name}")
            raise
        remedy = "return Value(number, reason), or Value.without(why) if no number applies"
        if not isinstance(value, Value):
            raise ConfigError(f"reduce of {self.name} gave {type(value).__name__}, not a Value: {remedy}")
        if not isinstance(value.number, Real) and (value.number is not None or value.unscored is None):
            raise ConfigError(f"reduce of {self.name} gave Value({value.number!r}), not a number: {remedy}")
        if value.number is not None and value.unscored is not None:
            raise ConfigError(f"reduce of {self.name} gave both a number and a cause why there is none: {remedy}")
        return replace(value, findings=[*value.findings, *state.get(AGREEMENT, ())])

    def _score(self, value: Value, usage: Usage) -> Score:
        number = None if value.number is None else self._in_range(value.number)
        low, high = (float(end) if isfinite(end) else None for end in self.range)
        try:
            return Score(
                metric=self.name,
                aspect=self.aspect,
                direction=self.direction,
                value=number,
                reason=value.reason if number is not None else "",
                findings=list(value.findings),
                unscored=value.unscored,
                usage=usage,
                instrument=self.instrument,
                range=None if (low, high) == (0, 1) else (low, high),
            )
        except ValidationError as error:
            raise config_error_of(f"reduce of {self.name} gave an invalid Value", error) from None

    def _in_range(self, number: float) -> float:
        """Return a value, without a rounding error beyond the range.

        Raises:
            ConfigError: if it lies outside the range, or is NaN or infinite.
        """
        low, high = self.range
        if not (isfinite(number) and low - _TOLERANCE <= number <= high + _TOLERANCE):
            raise ConfigError(
                f"{self.name} gave {number:g}, not a finite number from {low:g} to {high:g}: correct its function, or "
                "declare its range with range=(lowest, highest)"
            )
        return min(max(number, low), high)

    def _finding(self) -> dict[str, Any]:
        return {"steps": [describe_step(step) for step in sequential_steps(self)]}

    def _counting(self) -> dict[str, Any]:
        name = _qualified_name(self.reduce)
        if self.version is not None:
            return {"reduce": {"function": name, "version": self.version}, "options": _described_options(self.options)}
        try:
            reduce = describe(_without_stages(self.reduce))
            restore = self.state_from_findings and describe(_without_stages(self.state_from_findings))
        except NotDescribable as error:
            short = name.rpartition(".")[2]
            remedy = 'pass version="1" to the metric, and change it with the function'
            raise NotDescribable(f"its reduce function {short} cannot be identified ({error}): {remedy}") from None
        return {"reduce": reduce, "state_from_findings": restore, "options": _described_options(self.options)}


class _ReadState(dict[str, Any]):
    """State as a reducer reads it; a missing key is an error that names the keys."""

    def __init__(self, state: State, metric: str) -> None:
        super().__init__(state)
        self._metric = metric

    def __missing__(self, key: str) -> Any:
        present = ", ".join(map(repr, self))
        raise ConfigError(f"reduce of {self._metric} reads {key!r}, which no step adds: the state has {present}")


def _described_options(options: Mapping[str, Any]) -> Any:
    try:
        return describe(dict(options))
    except NotDescribable as error:
        remedy = "use options that are plain data, or give functions a text attribute `version`"
        raise NotDescribable(f"its options cannot be identified ({error}): {remedy}") from None


def _check_own_steps(metric: str, stages: Iterable[Stage[Any]]) -> None:
    """Raise ConfigError if two different steps of a user write under one key, or have one name of their prompts."""
    taken: dict[tuple[str, str], Any] = {}
    for stage in stages:
        for what, name, step in own_names(stage):
            if taken.setdefault((what, name), step) is not step:
                raise ConfigError(f"two steps of {metric} have the {what} {name!r}: give each its own name= and key=")


def _without_stages(function: Any) -> Any:
    """Return a function whose bound stages are replaced by what it reads of them: they belong to what was found."""
    if not isinstance(function, partial):
        return function
    keywords = {name: _counting_part(part) for name, part in function.keywords.items()}
    return partial(_without_stages(function.func), *map(_counting_part, function.args), **keywords)


def _counting_part(part: Any) -> Any:
    if not isinstance(part, Stage):
        return part
    settings = {name: getattr(part, name, None) for name in ("lowest", "threshold", "meaning")}
    return {"class": type(part), **settings}


def _qualified_name(function: Callable[..., Any]) -> str:
    """Return module and name of a function, without bound options; of the class for another callable object."""
    while isinstance(function, partial):
        function = function.func
    definition = function if hasattr(function, "__qualname__") else type(function)
    return qualified_name(definition)


_INSTEAD_OF_RETRIEVED = {"retrieved": "contexts", "retrieved_ids": "context_ids"}


def _is_missing(sample: Sample, field: str) -> bool:
    """Return True if a sample lacks a field.

    An empty list of references counts as missing. An empty list of contexts does not: the retriever found nothing, and
    no ids are missing then. What the retrievers returned is missing only if the contexts are, too.
    """
    if field in _INSTEAD_OF_RETRIEVED and sample.retrieved is None and sample.retrieved_ids is None:
        field = _INSTEAD_OF_RETRIEVED[field]
    value = getattr(sample, field)
    if field == "context_ids" and sample.contexts == []:
        return False
    if field == "retrieved_ids" and sample.retrieved == []:
        return False
    return value is None or (field == "references" and not value)
