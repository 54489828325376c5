"""Stage: base class of Runnables from state to state whose work is a generator without I/O."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Any, Self, TypeVar

from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict

from langchain_rageval._internal.code_identity import is_users_class
from langchain_rageval._internal.description import NotDescribable, describe
from langchain_rageval._internal.redaction import redact_exception
from langchain_rageval.errors import record_step
from langchain_rageval.judge.judge import Judge
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.requests import Operation
from langchain_rageval.run.run import Run, Traced

State = dict[str, Any]
"""State that the stages of a metric pass on: `sample`, and the results of earlier stages by name."""

TextSelector = Callable[[State], tuple[str, Sequence[str]]]
"""Function from the state to a text and the texts that it is compared with."""

S = TypeVar("S")

_OPTION_TYPES = (str, int, float, frozenset, FunctionType, partial)
"""Types of options that describe themselves; `instrument` of a stage describes its models."""


class Stage(Traced[S, S]):
    """Runnable that adds results to the state (mapping of the sample and all results so far).

    `invoke` and `ainvoke` run the same generator, `work`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    def __repr__(self) -> str:
        """Return the name of the stage and its judges as text, without secrets."""
        return f"{self.get_name()}({', '.join(map(repr, self.judges))})"

    __str__ = __repr__

    @abstractmethod
    def work(self, state: S) -> Operation[S]:
        """Yield requests, receive their replies, and return the new state. Does no I/O."""

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
        """True if a judge reads the question of the sample, which must then be understood without its history."""
        return bool(self.judges)

    @property
    def report_notes(self) -> Sequence[str]:
        """Notes for each report with results of this stage."""
        return ()

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judges do not share endpoint capabilities with the judges of this stage."""
        return self

    @property
    def is_replaceable(self) -> bool:
        """True if `judged_by` can put another judge in place of the judges or the verifier of this stage."""
        return False

    def judged_by(self, judge: Judge) -> Stage[S]:
        """Return the stage with its judges or its verifier replaced by a judge; this stage if it has none."""
        return self

    @property
    @abstractmethod
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this stage that affects its results, such as judge, prompts, schema and options.

        Consists of JSON-like values. The hash of a metric's configuration, by which reports and journals identify the
        metric, includes it.

        Raises:
            NotDescribable: if a model or function of the stage cannot be identified.
        """

    @property
    def description(self) -> Mapping[str, Any]:
        """The instrument and the plain options as data; of a stage class of the user together with its code.

        Raises:
            NotDescribable: if a part cannot be identified.
        """
        kind = type(self)
        options = {name: getattr(self, name) for name in kind.model_fields if name != "name"}
        plain = {name: describe(value) for name, value in options.items() if isinstance(value, _OPTION_TYPES)}
        settings = {**plain, **{str(name): describe(value) for name, value in self.instrument.items()}}
        if not is_users_class(kind):
            return settings
        if any("instrument" in vars(part) for part in kind.__mro__ if is_users_class(part)):
            return {**settings, "class": describe(kind)}
        return {**settings, "stage": describe(self)}

    def _do(self, state: S, config: RunnableConfig) -> S:
        try:
            return drive(self.work(state), Run.of(config), config)
        except Exception as error:
            self._annotate(error)
            raise

    async def _ado(self, state: S, config: RunnableConfig) -> S:
        try:
            return await adrive(self.work(state), Run.of(config), config)
        except Exception as error:
            self._annotate(error)
            raise

    def _annotate(self, error: Exception) -> None:
        """Record the step in an exception, and remove the secrets of the models, which a server may repeat."""
        record_step(error, self.get_name())
        redact_exception(error, self)


def describe_step(step: Runnable[Any, Any]) -> Any:
    """Return the description of a step of a metric, a stage or any other Runnable.

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
    """Return True if another judge can be put in place of every judge and verifier of some stages, and there is one."""
    stages = list(stages)
    return any(stage.is_replaceable for stage in stages) and all(
        stage.is_replaceable or not stage.judges for stage in stages
    )
