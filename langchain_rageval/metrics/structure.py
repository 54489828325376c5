"""Functions that find the metrics, judges and steps in a Runnable, describe them, and score a sample."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from json import JSONDecodeError
from operator import or_
from typing import Any, Protocol

from langchain_core.language_models import BaseLanguageModel
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase

from langchain_rageval._internal.description import NotDescribable, describe
from langchain_rageval._internal.redaction import LONGEST_MESSAGE, cut_middle, redact_secrets
from langchain_rageval._version import __version__
from langchain_rageval.data.instrument import Instrument
from langchain_rageval.data.schema import Direction, Failure, Sample, Score, Usage
from langchain_rageval.errors import ConfigError, JudgeOutputError, SampleError, message_of, step_of
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.drivers import agather
from langchain_rageval.run.run import Run, Traced, ainvoke_child, invoke_child
from langchain_rageval.steps.stage import SharedSteps, Stage, State, describe_step


class Scorer(Protocol):
    """Interface of a single metric, implemented by `Metric`."""

    @property
    def name(self) -> str:
        """Key of the score."""

    @property
    def direction(self) -> Direction:
        """Direction of better values, "higher" or "lower"."""

    @property
    def steps(self) -> Runnable[State, State]:
        """Runnable that adds the judge's answers to the state."""

    def get_name(self) -> str:
        """Return the key of the score."""

    def read(self, input: Any, /) -> Sample:
        """Return `input` as a Sample, after a check that the sample has all fields that this metric reads.

        `input` is a Sample, or any object that `Sample.parse` can read, such as a mapping or a dataclass.

        Raises:
            SampleError: if `input` cannot be read as a sample, or lacks a field that this metric reads.
        """

    def invoke(self, input: Any, config: RunnableConfig | None = None, /) -> Score:
        """Score a sample through sync calls."""

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, /) -> Score:
        """Score a sample through async calls."""


class ScorerGroup(ABC):
    """Base class of `Metric` and `Suite`: an object that consists of one or more metrics."""

    @property
    @abstractmethod
    def _scorers(self) -> Sequence[Scorer]:
        """The metrics, in the order of their scores."""


AnyScorer = Runnable[Any, Any] | Scorer | ScorerGroup
"""A metric, a suite, or a Runnable around them."""


def remedy_for(thing: object) -> str:
    """Return advice on an object that is no metric, for the end of an error message.

    The advice is "; call it with a judge" or "; call it to build the metric" for a function that builds a metric,
    ": decorate it with @metric(reads=...)" for another function or class, and "" for any other object.
    """
    if not callable(thing) or isinstance(thing, Runnable):
        return ""
    try:
        parameters = list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):  # of C functions, which have no signature
        parameters = []
    if parameters[:1] == ["judge"]:
        return "; call it with a judge"
    own = str(getattr(thing, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    if own or parameters[:1] in (["embeddings"], ["model"]):
        return "; call it to build the metric"
    return ": decorate it with @metric(reads=...)"


def problem_of(metric: Runnable[Any, Any]) -> str | None:
    """Return an error message if a Runnable, given as a metric, is of a kind that cannot be one; else None.

    A Runnable cannot be a metric if it is a step (`Stage`, which takes the state of a metric), or if it begins with a
    prompt or a model, which do not take a sample. The message says how to build a `Metric` from it.
    """
    first = metric.first if isinstance(metric, RunnableSequence) else metric
    if isinstance(first, Stage):
        problem = f"the step {first.get_name()} is not a metric"
        return f"{problem}: write Metric(name, aspect=..., reads=..., steps=step, reduce=...)"
    if isinstance(first, BasePromptTemplate | BaseLanguageModel):
        problem = f"a chain that begins with {type(first).__name__} is not a metric, which takes a sample"
        return f"{problem}: write Metric(..., steps=Step.from_chain(chain, key=..., reads=...), reduce=...)"
    return None


def metrics_in(metric: AnyScorer) -> list[Any]:
    """Return the `Metric` objects in a Runnable, or an empty list if it contains none.

    Searches suites, bindings, retries and fallbacks, and the last element of a chain.
    """
    if isinstance(metric, ScorerGroup):
        return list(metric._scorers)
    if isinstance(metric, RunnableSequence):
        return metrics_in(metric.last)
    inner = list(inner_models(metric))
    return [] if inner == [metric] else [part for runnable in inner for part in metrics_in(runnable)]


def names_of(metric: Runnable[Any, Any] | Scorer) -> list[str]:
    """Return the names of the scores that a Runnable produces; its own name if it contains no `Metric`."""
    return list(dict.fromkeys(part.name for part in metrics_in(metric))) or [metric.get_name()]


def judges_of(metric: Runnable[Any, Any]) -> list[Judge]:
    """Return the judges of all metrics in a Runnable. A judge may occur several times."""
    return [judge for part in metrics_in(metric) for judge in part.judges]


def called_models(metric: AnyScorer) -> list[Any]:
    """Return the models that are called by a metric, or by the metrics in a Runnable, without their wrappers.

    Wrappers are bindings, retries and fallbacks. A model with fallbacks gives several models: the first choice, then
    each fallback.
    """
    return [inner for part in metrics_in(metric) for model in part.models for inner in inner_models(model)]


def sequential_steps(metric: Scorer) -> Sequence[Runnable[State, State]]:
    """Return the steps of a metric in the order in which they run."""
    return metric.steps.steps if isinstance(metric.steps, RunnableSequence) else [metric.steps]


def stages_of(metric: Scorer) -> Iterator[Stage[State]]:
    """Yield the steps of a metric that are `Stage` objects, which report their judges, models and settings."""
    return (step for step in sequential_steps(metric) if isinstance(step, Stage))


def is_plannable(metric: Scorer) -> bool:
    """Return True if all steps of a metric are `Stage` objects, so that a dry run can intercept all its requests.

    A `Stage` yields its requests to models and does not send them itself. With any other Runnable among the steps,
    which may send requests itself, the result is False.
    """
    return all(isinstance(step, Stage) for step in sequential_steps(metric))


def shared_steps_key(metric: Scorer) -> Hashable:
    """Return a key that is equal for metrics with common steps, which are run once per sample for all these metrics.

    None if the metric has no steps that it could share (`SharedSteps`).
    """
    return next((stage.key for stage in stages_of(metric) if isinstance(stage, SharedSteps)), None)


def steps_with_fresh_capabilities(metric: Scorer) -> Runnable[State, State]:
    """Return a copy of the metric's steps whose judges detect again which features their endpoints support."""
    steps = [step.with_fresh_capabilities() if isinstance(step, Stage) else step for step in sequential_steps(metric)]
    return reduce(or_, steps)


_MAX_CAUSES = 10  # an exception may be its own cause
_LONGEST_REPLY = 10_000  # characters


def score_sample(
    metric: Runnable[Any, Any] | Scorer,
    sample: Sample,
    run: Run,
    config: RunnableConfig | None,
    *,
    untraced: bool = False,
) -> dict[str, Score]:
    """Score a sample through the metric's `invoke`; an exception becomes a failed score under each name of the metric.

    Args:
        metric: any Runnable that returns a Score or a mapping of names to Scores.
        sample: has all fields that the metric reads.
        run: state of the evaluation, such as limits and shared results; the same for all metrics of this sample.
        config: callbacks, tags and other settings of LangChain.
        untraced: True to skip LangChain's search for callback handlers, for speed. The caller must make sure that no
            handler is attached, and that `config` already contains LangChain's defaults, as `ensure_config` adds them.
    """
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return scores_by_name(invoke_child(metric, sample, own.into_complete(config or {})))
        return scores_by_name(metric.invoke(sample, own.into(config)))
    except Exception as error:
        return failure_scores(metric, error, own.meter.usage)


async def ascore_sample(
    metric: Runnable[Any, Any] | Scorer,
    sample: Sample,
    run: Run,
    config: RunnableConfig | None,
    *,
    untraced: bool = False,
) -> dict[str, Score]:
    """Score a sample through the metric's `ainvoke`; an exception becomes a failed score under each of its names.

    The arguments are those of `score_sample`, which calls `invoke` instead. Returns a mapping of names to scores.
    """
    own = run.metered()
    try:
        if untraced and isinstance(metric, Traced):
            return scores_by_name(await ainvoke_child(metric, sample, own.into_complete(config or {})))
        return scores_by_name(await metric.ainvoke(sample, own.into(config)))
    except Exception as error:
        return failure_scores(metric, error, own.meter.usage)


def collect_scores(metric: AnyScorer, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
    """Score an input by each metric of a suite, in parallel threads; steps that metrics share run once.

    Args:
        metric: a suite, or a single metric.
        input: anything that `Sample.parse` reads.
        config: callbacks, tags and other settings of LangChain.

    Returns:
        The scores by name. A metric that raised an exception has a failed score.

    Raises:
        SampleError: if the input lacks a field that a metric reads.
    """
    parts, run = metrics_in(metric), Run.of(config or {}).for_sample()
    sample = parse_complete_sample(parts, input)
    return merge_scores(run.threads.gather([partial(score_sample, part, sample, run, config) for part in parts]))


async def acollect_scores(metric: AnyScorer, input: Any, config: RunnableConfig | None = None) -> dict[str, Score]:
    """Score an input by each metric of a suite, concurrently on the caller's event loop.

    The arguments are those of `collect_scores`, which uses threads instead. Returns the scores by name; a metric that
    raised an exception has a failed score. Raises SampleError if the input lacks a field that a metric reads.
    """
    parts, run = metrics_in(metric), Run.of(config or {}).for_sample()
    sample = parse_complete_sample(parts, input)
    return merge_scores(await agather(ascore_sample(part, sample, run, config) for part in parts))


def parse_complete_sample(metrics: Sequence[Scorer], input: Any) -> Sample:
    """Return `input` as a Sample, after a check that the sample has all fields that the metrics read.

    `input` is a Sample, or any object that `Sample.parse` can read, such as a mapping or a dataclass.

    Raises:
        SampleError: if `input` cannot be read as a sample, or lacks a field that one of the metrics reads.
    """
    sample = Sample.parse(input)
    for metric in metrics:
        metric.read(sample)
    return sample


def merge_scores(parts: Sequence[Mapping[str, Score]]) -> dict[str, Score]:
    """Return the scores of several mappings as one mapping; if mappings share a name, the last one's score is kept."""
    return {name: score for part in parts for name, score in part.items()}


def scores_by_name(result: Any) -> dict[str, Score]:
    """Return the scores in the result of a metric, keyed by name.

    Raises:
        ConfigError: if the result is neither a Score nor a mapping of names to Scores.
    """
    if isinstance(result, Score):
        return {result.metric: result}
    if isinstance(result, Mapping) and all(isinstance(score, Score) for score in result.values()):
        return dict(result)
    raise ConfigError(
        f"a metric returns a Score or a mapping of names to Scores, got {type(result).__name__}: make a metric of a "
        "function with @metric(reads=...)"
    )


def failure_scores(metric: Runnable[Any, Any] | Scorer, error: Exception, usage: Usage) -> dict[str, Score]:
    """Return a failed score for each name of a metric; the first score holds the usage."""
    failure = Failure(
        error=type(error).__name__,
        message=cut_middle(redact_secrets(_error_message(error), metric), LONGEST_MESSAGE),
        step="sample" if isinstance(error, SampleError) else step_of(error),
        raw_output=cut_middle(redact_secrets(error.raw_output, metric), _LONGEST_REPLY)
        if isinstance(error, JudgeOutputError)
        else None,
    )
    parts = {part.name: part for part in reversed(metrics_in(metric))}
    return {
        name: Score(
            metric=name,
            aspect=getattr(parts.get(name), "aspect", "answer"),
            direction=getattr(parts.get(name), "direction", "higher"),
            failure=failure,
            usage=usage if number == 0 else Usage(),
            instrument=getattr(parts.get(name), "instrument", ""),
        )
        for number, name in enumerate(names_of(metric))
    }


def _error_message(error: BaseException) -> str:
    """Return the message of an error, followed by the message of its first cause if that adds something.

    A client's own message may be as short as "Connection error.".
    """
    message, first = message_of(error), error
    if step_of(error) is not None and isinstance(error, JSONDecodeError | UnicodeDecodeError):  # the page of a proxy
        return f"the reply of the model or its server is not JSON: check the address of the server ({message})"
    for _ in range(_MAX_CAUSES):
        first = first.__cause__ or first
    cause = message_of(first)
    return message if first is error or cause in message else f"{message} ({cause})"


def instruments_in(metric: Runnable[Any, Any] | Scorer) -> dict[str, Instrument]:
    """Return the configuration (`Instrument`, as hashes and as data) of each metric in a Runnable, by name.

    An instrument has two parts: how facts are found, and how the value is computed. Runnables before a metric in a
    chain belong to how facts are found. A Runnable that does not end with a `Metric` has one instrument, under its own
    name.
    """
    parts = {part.name: part.provenance for part in metrics_in(metric)}
    if not parts:
        try:
            whole = {"steps": [describe_step(metric)], "package": __version__}  # type: ignore[arg-type]
        except NotDescribable as error:
            return {names_of(metric)[0]: Instrument.of(None, None, str(error))}
        return {names_of(metric)[0]: Instrument.of(whole, whole)}
    in_front, chosen = list(runnables_in_front(metric)), _configurable(metric)
    return {name: _with_front(part, in_front, chosen) for name, part in parts.items()} if in_front or chosen else parts


def update_instruments(metrics: Iterable[Any]) -> None:
    """Compute the stored configuration of metrics and of their judges again, because models may have changed.

    A run calls this at its start. The results are in `provenance` and `instrument` of the metrics. Each judge is
    updated once.
    """
    metrics = list(metrics)
    for judge in {id(judge): judge for metric in metrics for judge in judges_of(metric)}.values():
        judge.update_instrument()
    for metric in metrics:
        for part in metrics_in(metric):
            part.update_provenance()


def _configurable(metric: Any) -> dict[str, Any]:
    """Return what `with_config(configurable=...)` around a metric chooses, such as an alternative of a model."""
    chosen: dict[str, Any] = {}
    while isinstance(metric, RunnableBindingBase | RunnableSequence):
        if isinstance(metric, RunnableSequence):
            metric = metric.last
        else:
            chosen = {**(metric.config.get("configurable") or {}), **chosen}
            metric = metric.bound
    return chosen


def with_instruments(
    scores: Mapping[str, Score], metric: AnyScorer, instruments: Mapping[str, Instrument]
) -> dict[str, Score]:
    """Return scores whose `instrument` (hashes of the configuration) covers the whole Runnable that made the scores.

    The Runnable `metric` may be a chain that ends with a metric: the steps before the metric are then covered too. If
    `metric` contains no `Metric`, a score with an instrument keeps it, and a score without one gets the instrument of
    the whole Runnable. `instruments` holds the configuration by score name, as `instruments_in(metric)` returns it. If
    `metric` is a metric or suite alone, not within a chain or `with_config(configurable=...)`, the scores are
    unchanged.
    """
    has_metric = bool(metrics_in(metric))
    if has_metric and not (any(runnables_in_front(metric)) or _configurable(metric)):
        return dict(scores)
    whole = next(iter(instruments.values()))
    digests = {name: instruments.get(name, whole).digests for name in scores}
    given = {} if has_metric else {name: score.instrument for name, score in scores.items() if score.instrument}
    return {name: score.model_copy(update={"instrument": (digests | given)[name]}) for name, score in scores.items()}


def runnables_in_front(metric: AnyScorer) -> Iterator[Runnable[Any, Any]]:
    """Yield the Runnables that precede the metrics in a chain and make the metrics' input from the chain's input.

    Yields nothing for a metric or suite alone.
    """
    if isinstance(metric, ScorerGroup):
        return
    if isinstance(metric, RunnableSequence):
        yield from metric.steps[:-1]
        yield from runnables_in_front(metric.last)
        return
    for inner in inner_models(metric):
        if inner is not metric:
            yield from runnables_in_front(inner)


def _with_front(instrument: Instrument, in_front: list[Runnable[Any, Any]], chosen: dict[str, Any]) -> Instrument:
    more: dict[str, Any] = {}
    try:
        if in_front:
            more["before"] = [describe_step(step) for step in in_front]
        if chosen:
            more["configurable"] = describe(chosen)
    except NotDescribable as error:
        reasons = "; ".join(filter(None, (str(error), instrument.unknown)))
        return Instrument.of(None, instrument.counted_by, reasons)
    found_by = instrument.found_by and {**instrument.found_by, **more}
    return replace(Instrument.of(found_by, instrument.counted_by), unknown=instrument.unknown)
