"""Stage, the base class of steps: a Runnable from state (a dict with the sample and the results so far) to state.

The method `work` of a stage is a generator without I/O. It yields requests, such as model calls, and receives the
replies. `invoke` and `ainvoke` run the generator and fulfil its requests.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from types import FunctionType
from typing import Any, ClassVar, Self, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.graph import Graph
from pydantic import ConfigDict

from langchain_rageval._internal.code_identity import is_users_class
from langchain_rageval._internal.description import Description, NotDescribable, describe
from langchain_rageval._internal.redaction import redact_exception
from langchain_rageval.errors import JudgeOutputError, record_step
from langchain_rageval.judge.judge import Judge
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.requests import InvokeChild, Operation, Shared
from langchain_rageval.run.run import Run, Traced

State = dict[str, Any]
"""State that the stages of a metric pass on: `sample`, and the results of earlier stages by name."""

TextSelector = Callable[[State], tuple[str, Sequence[str]]]
"""Function from the state to a text and the texts that it is compared with."""

S = TypeVar("S")
T = TypeVar("T")

_OPTION_TYPES = (str, int, float, frozenset, FunctionType, partial)
"""Types of options that describe themselves; `instrument` of a stage describes its models."""


class Driven(Traced[S, T]):
    """Runnable whose method `work` is a generator; `invoke` and `ainvoke` run it and fulfil its requests."""

    @abstractmethod
    def work(self, state: S) -> Operation[T]:
        """Yield requests, receive their replies, and return the output. This method does no I/O."""

    def _do(self, state: S, config: RunnableConfig) -> T:
        try:
            return drive(self.work(state), Run.of(config), config)
        except Exception as error:
            self._annotate(error)
            raise

    async def _ado(self, state: S, config: RunnableConfig) -> T:
        try:
            return await adrive(self.work(state), Run.of(config), config)
        except Exception as error:
            self._annotate(error)
            raise

    def _annotate(self, error: Exception) -> None:
        """Record the step in an exception, and remove the secrets of the models, which a server may repeat."""
        record_step(error, self.get_name())
        redact_exception(error, self)


class Stage(Driven[S, S]):
    """Runnable that adds results to the state (mapping of the sample and all results so far).

    `invoke` and `ainvoke` run the same generator, `work`. The class variable `reads_question` is False in a subclass
    that uses the question only to choose the language of the prompt.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, defer_build=True)

    def __repr__(self) -> str:
        """Return the name of the stage and its judges as text, without secrets."""
        return f"{self.get_name()}({', '.join(map(repr, self.judges))})"

    __str__ = __repr__

    reads_question: ClassVar[bool] = True
    """False if the question only determines the language of the prompt."""

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges that the stage asks."""
        return ()

    @property
    def models(self) -> Sequence[Any]:
        """Models that the stage calls: models of its judges, embeddings or a cross-encoder."""
        return [judge.model for judge in self.judges]

    @property
    def shows_question(self) -> bool:
        """True if a judge reads the sample's question; a question with history may then be rewritten beforehand."""
        return self.reads_question and bool(self.judges)

    @property
    def report_notes(self) -> Sequence[str]:
        """Notes to show in each report that contains results of this stage."""
        return ()

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judges detect again which features their endpoints support."""
        return self

    @property
    def is_replaceable(self) -> bool:
        """True if the class overrides `judged_by`: another judge can replace its judges or verifying cross-encoder."""
        return type(self).judged_by is not Stage.judged_by

    def judged_by(self, judge: Judge) -> Stage[S]:
        """Return a copy in which a judge replaces the stage's judges or verifying cross-encoder.

        Returns the stage itself if it has neither, or does not allow another judge (`is_replaceable` is False).
        """
        return self

    @property
    @abstractmethod
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its results, such as judge, prompts, schema and options.

        A mapping of JSON-like values. It is part of the hash of a metric's configuration, by which reports and journals
        identify the metric.

        Raises:
            NotDescribable: if a model or function of the stage cannot be identified.
        """

    @property
    def description(self) -> Mapping[str, Any]:
        """Configuration of the stage as data, by which reports and journals recognise the same stage.

        It has the entries of `instrument` (such as judge, prompts and schema). Further entries are the stage's options
        that are texts, numbers, sets or functions, and the code of the stage's class if a user wrote the class.

        Raises:
            NotDescribable: if a part cannot be identified.
        """
        kind = type(self)
        options = {name: getattr(self, name) for name in kind.model_fields if name != "name"}
        plain = {name: describe(value) for name, value in options.items() if isinstance(value, _OPTION_TYPES)}
        settings = Description(plain, **{str(name): describe(value) for name, value in self.instrument.items()})
        if not is_users_class(kind):
            return settings
        if any("instrument" in vars(part) for part in kind.__mro__ if is_users_class(part)):
            return Description(settings, **{"class": describe(kind)})
        return Description(settings, stage=describe(self))


def describe_step(step: Runnable[Any, Any]) -> Any:
    """Return the configuration of a step as a mapping of JSON-like values.

    For a `Stage` it is the attribute `description`. For any other Runnable it has the keys "step" (the name) and
    "runnable" (the description of the Runnable).

    Raises:
        NotDescribable: if a part cannot be identified; the message names the step and the remedy.
    """
    try:
        return step.description if isinstance(step, Stage) else {"step": step.get_name(), "runnable": describe(step)}
    except NotDescribable as error:
        if "Judge(" in str(error):
            raise
        remedy = 'give its function a text attribute `version`, such as "1"'
        raise NotDescribable(f"the step {step.get_name()} cannot be identified ({error}): {remedy}") from None


def can_be_rejudged(stages: Iterable[Stage[Any]]) -> bool:
    """Return True if `Stage.judged_by` can give all stages that ask judges another judge, and there is such a stage."""
    stages = list(stages)
    return any(stage.is_replaceable for stage in stages) and all(
        stage.is_replaceable or not stage.judges for stage in stages
    )


class SharedSteps(Stage[State]):
    """Sequence of stages that runs once per sample of a run; later metrics reuse the results for the same sample.

    A `JudgeOutputError` is shared too: if the judge's reply was unreadable, the next metric does not ask again.

    Args:
        stages: stages that read `sample` and the results of earlier stages, nothing else.
        name: name of the step in traces.
        key: distinguishes these stages from other stages of the same name. Metrics with equal keys share the results.
    """

    stages: tuple[Stage[State], ...]
    key: Hashable

    def __init__(self, stages: Sequence[Stage[State]], *, name: str, key: Hashable) -> None:
        fields: dict[str, Any] = {"stages": tuple(stages), "key": key, "name": name}
        super().__init__(**fields)

    @property
    def judges(self) -> Sequence[Judge]:
        """Judges that the stages ask, in order of the stages."""
        return [judge for stage in self.stages for judge in stage.judges]

    @property
    def models(self) -> Sequence[Any]:
        """Models that the stages call."""
        return [model for stage in self.stages for model in stage.models]

    @property
    def shows_question(self) -> bool:
        """True if one of the stages shows the question to a judge."""
        return any(stage.shows_question for stage in self.stages)

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of the stages that affects their results: the `instrument` of each stage."""
        return {"stages": [stage.description for stage in self.stages]}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy of the steps whose judges detect again which features their endpoints support."""
        return self.model_copy(update={"stages": tuple(stage.with_fresh_capabilities() for stage in self.stages)})

    @property
    def is_replaceable(self) -> bool:
        """True if the judges of all stages can be replaced."""
        return can_be_rejudged(self.stages)

    def judged_by(self, judge: Judge) -> SharedSteps:
        """Return a copy whose stages ask another judge.

        Metrics with copies for the same Judge object share the results of the stages. Results of other judges, and of
        the original stages, are not reused.
        """
        stages = tuple(stage.judged_by(judge) for stage in self.stages)
        return self.model_copy(update={"stages": stages, "key": (self.key, id(judge))})

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the stages in sequence."""
        sequence: Runnable[State, State] = reduce(or_, self.stages)
        return sequence.get_graph(config)

    def work(self, state: State) -> Operation[State]:
        """Add the results of the stages for the sample; the stages run only if no metric has run them before.

        The id of the sample is safe as a key: the stored result keeps the sample alive, so the id is not reused.
        """
        key = "once", self.name, self.key, id(state["sample"])
        results: State | JudgeOutputError = yield Shared(key, self._run_stages({"sample": state["sample"]}))
        if isinstance(results, JudgeOutputError):
            raise results
        return state | results

    def _run_stages(self, state: State) -> Operation[State | JudgeOutputError]:
        """Return the state after all stages, or the error of a judge, which then is the result for all metrics."""
        try:
            for stage in self.stages:
                state = yield InvokeChild(stage, state)
        except JudgeOutputError as error:
            return error
        return state
