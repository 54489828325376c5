"""User step: a Runnable of the user as a step of the generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from langchain_core.runnables import Runnable, RunnableLambda, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase, coerce_to_runnable
from pydantic import Field, InstanceOf, ValidationError

from langchain_rageval._internal.description import describe
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.steps.stage import Stage
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep


class UserStep(CandidateStep):
    """Wrapper of a user's Runnable: rejected candidates do not reach it, and its output is checked.

    The wrapped Runnable has its own run in traces; the wrapper has none. Two wrappers are equal if they wrap equal
    Runnables in the same way.

    Attributes:
        step: Runnable of the user, from a candidate to a candidate.
        evolves: True for a part of an evolution, whose name is added to `Candidate.evolution`; False for a step that
            replaces one of the generator.
        services: models, docstore and filters of the generator, which the Runnable finds in `config["configurable"]`.
    """

    in_traces: ClassVar[bool] = False

    step: InstanceOf[Runnable[Any, Any]]
    evolves: bool = False
    services: Mapping[str, Any] = Field(default_factory=dict)

    def __hash__(self) -> int:
        """Return a hash of the name: the wrapped Runnable may have none."""
        return hash(self.get_name())

    def __repr__(self) -> str:
        """Return the name of the step."""
        return self.get_name()

    __str__ = __repr__

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Description of the wrapped Runnable and of the steps that it can call through the config."""
        own = self.step.description if isinstance(self.step, Stage) else describe(self.step)
        steps = [step.description for step in self.services.values() if isinstance(step, Stage)]
        return {"step": self.get_name(), "runnable": own, "calls": steps}

    def with_services(self, services: Mapping[str, Any]) -> UserStep:
        """Return a copy whose Runnable finds these models, docstore and filters in `config["configurable"]`."""
        return self.model_copy(update={"services": services})

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Invoke the wrapped Runnable, check its output, and record what it changed.

        A changed question gets a trial of the history, unless the Runnable added one.

        Raises:
            ConfigError: if the Runnable does not return a valid candidate.
        """
        result = self._check((yield InvokeChild(self.step, state, self.services)), state)
        if result.rejected:
            return result
        if result.question != state.question and len(result.history) == len(state.history):
            result = result.with_trial(self.get_name())
        if self.evolves and result.evolution == state.evolution:
            result = result.with_evolution(self.get_name())
        return result

    def _check(self, result: Any, state: Candidate) -> Candidate:
        name = self.get_name()
        if not isinstance(result, Candidate):
            raise ConfigError(
                f"{name} must return the Candidate or a changed copy, such as candidate.replace(question=...) or "
                f"candidate.reject(reason); it returned {type(result).__name__}"
            )
        try:
            checked: Candidate = type(result).model_validate(dict(result))
        except ValidationError as error:
            fields = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
            raise ConfigError(f"{name} returned an invalid Candidate: {fields}") from None
        if state.question.strip() and not checked.question.strip() and not checked.rejected:
            raise ConfigError(f"{name} returned a Candidate with a blank question; reject(reason) drops a question")
        return checked


def check_sync(step: Runnable[Any, Any]) -> None:
    """Raise ConfigError if a step, or a part of its chain, is an async function, which a sync method cannot call."""
    runnable = inner_runnable(step.step if isinstance(step, UserStep) else step)
    if isinstance(runnable, RunnableSequence):
        for part in runnable.steps:
            check_sync(part)
    elif isinstance(runnable, RunnableLambda) and not hasattr(runnable, "func"):
        raise ConfigError(
            f"{runnable.get_name()} is an async function: call an async method of the generator, such as agenerate or "
            "astream, or write a plain function"
        )


def user_step(step: Any, *, evolves: bool = False, option: str = "a step") -> UserStep:
    """Wrap a Runnable or a function of the user; a step that is wrapped already is returned.

    Args:
        step: Runnable or function from a candidate to a candidate.
        evolves: True for a part of an evolution.
        option: name of the step in an error.

    Raises:
        ConfigError: if the argument is neither a Runnable nor a function.
    """
    if isinstance(step, UserStep):
        return step
    if not isinstance(step, Runnable) and not callable(step):
        kind = type(step).__name__
        raise ConfigError(f"{option} must be a Runnable or a function from Candidate to Candidate, got {kind}")
    runnable = coerce_to_runnable(step)
    return UserStep(name=_name_of(runnable), step=runnable, evolves=evolves)


def inner_runnable(runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the Runnable inside of `with_config`, `with_retry`, `bind` and other bindings."""
    while isinstance(runnable, RunnableBindingBase):
        runnable = runnable.bound
    return runnable


def _name_of(runnable: Runnable[Any, Any]) -> str:
    """Return the name of a Runnable in traces: the `run_name` of its config, or its own name."""
    while isinstance(runnable, RunnableBindingBase):
        if run_name := runnable.config.get("run_name"):
            return str(run_name)
        runnable = runnable.bound
    return runnable.get_name()
