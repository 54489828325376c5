"""Structure of metrics: the parts of a Runnable, its names, judges and models, and the steps of each metric.

The adapters, the thresholds and the engine read metrics through these functions.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any, Protocol

from langchain_core.language_models import BaseLanguageModel
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from langchain_rageval.data.schema import Aspect, Direction, Sample, Score
from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.steps.shared_steps import SharedSteps
from langchain_rageval.steps.stage import Stage, State


class Scorer(Protocol):
    """Interface of a single metric, implemented by `Metric`."""

    @property
    def name(self) -> str:
        """Key of the score."""

    @property
    def aspect(self) -> Aspect:
        """Aspect of the sample that is scored."""

    @property
    def direction(self) -> Direction:
        """Direction that is better, "higher" or "lower"."""

    @property
    def steps(self) -> Runnable[State, State]:
        """Runnable that adds the judge's answers to the state."""

    @property
    def instrument(self) -> str:
        """Hash of the configuration that affects the scores; identifies the metric in reports and journals."""

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges of the steps, in order."""

    @property
    def models(self) -> Sequence[Any]:
        """Models that the steps call."""

    def get_name(self) -> str:
        """Return the key of the score."""

    def read(self, input: Any, /) -> Sample:
        """Return the sample in an input; raise SampleError if it lacks a field."""

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
    """Return what to do with an object that is not a metric, as the end of a message: "", or beginning with ": "."""
    if not callable(thing) or isinstance(thing, Runnable):
        return ""
    try:
        parameters = list(inspect.signature(thing).parameters)
    except (TypeError, ValueError):  # of C functions, which have no signature
        parameters = []
    own = str(getattr(thing, "__module__", "")).partition(".")[0] == __name__.partition(".")[0]
    if own or parameters[:1] in (["judge"], ["embeddings"], ["model"]):
        return "; call it with a judge"
    return ": decorate it with @metric(reads=...)"


def problem_of(metric: Runnable[Any, Any]) -> str | None:
    """Return why a Runnable cannot score a sample, with the remedy: it is a step, or begins as a chain of the user."""
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

    Looks into suites, bindings, retries and fallbacks, and at the last element of a chain.
    """
    if isinstance(metric, ScorerGroup):
        return list(metric._scorers)
    if isinstance(metric, RunnableSequence):
        return metrics_in(metric.last)
    inner = list(inner_models(metric))
    return [] if inner == [metric] else [part for runnable in inner for part in metrics_in(runnable)]


def names_of(metric: Runnable[Any, Any] | Scorer) -> list[str]:
    """Return the keys of the scores that a Runnable gives; its own name if it contains no `Metric`."""
    return list(dict.fromkeys(part.name for part in metrics_in(metric))) or [metric.get_name()]


def judges_of(metric: Runnable[Any, Any]) -> list[Judge]:
    """Return the judges of all metrics in a Runnable, with repetitions."""
    return [judge for part in metrics_in(metric) for judge in part.judges]


def called_models(metric: AnyScorer) -> list[Any]:
    """Return the models that the metrics in a Runnable call, without bindings, retries and fallbacks around them."""
    return [inner for part in metrics_in(metric) for model in part.models for inner in inner_models(model)]


def sequential_steps(metric: Scorer) -> Sequence[Runnable[State, State]]:
    """Return the steps of a metric that run one after the other."""
    return metric.steps.steps if isinstance(metric.steps, RunnableSequence) else [metric.steps]


def stages_of(metric: Scorer) -> Iterator[Stage[State]]:
    """Yield those steps of a metric that are stages, which know their judges, models and settings."""
    return (step for step in sequential_steps(metric) if isinstance(step, Stage))


def is_plannable(metric: Scorer) -> bool:
    """Return True if a dry run can intercept every request of the metric: all its steps are stages."""
    return all(isinstance(step, Stage) for step in sequential_steps(metric))


def shared_steps_key(metric: Scorer) -> Hashable:
    """Return a key that is equal for metrics which share steps of one sample, or None if the metric shares none."""
    return next((stage.key for stage in stages_of(metric) if isinstance(stage, SharedSteps)), None)


def steps_with_fresh_capabilities(metric: Scorer) -> Runnable[State, State]:
    """Return a copy of the metric's steps whose judges do not share endpoint capabilities with the original."""
    steps = [step.with_fresh_capabilities() if isinstance(step, Stage) else step for step in sequential_steps(metric)]
    return reduce(or_, steps)
