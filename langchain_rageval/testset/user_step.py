"""Steps around steps: a Runnable of the user as a step, and a step whose results are kept in a journal."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, ClassVar

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase, coerce_to_runnable
from pydantic import BaseModel, Field, InstanceOf, ValidationError

from langchain_rageval._internal.description import NotDescribable, describe
from langchain_rageval._internal.redaction import redact_message
from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import ConfigError, JournalError
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.run.run import Run, Traced
from langchain_rageval.run.usage import UsageMeter
from langchain_rageval.steps.stage import Stage, describe_step
from langchain_rageval.testset.candidate import FAILED, Candidate, CandidateStep, StepUsage


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


_LOG = logging.getLogger("langchain_rageval")


class _Entry(BaseModel):
    """Entry of the journal: the result of a step, and what it cost."""

    candidate: Candidate
    usage: Usage


class JournaledStep(Traced[Candidate, Candidate]):
    """Wrapper of a step that counts its usage and takes its result from the journal, or runs it and stores the result.

    The wrapper does not appear in traces.

    Attributes:
        step: wrapped step.
        journal: journal of the run; None stores nothing, as for a step that cannot be identified.
        fingerprint: hash of the settings of the step.
        unknown: why the step cannot be identified; "" if it can.
        counter: receives the usage of the step, also that of a stored result.
    """

    in_traces: ClassVar[bool] = False

    step: CandidateStep
    journal: InstanceOf[Journal] | None
    fingerprint: str
    unknown: str = ""
    counter: InstanceOf[StepUsage]

    @classmethod
    def of(cls, step: CandidateStep, journal: Journal | None, counter: StepUsage) -> JournaledStep:
        """Wrap a step for use with a journal; the hash of its settings is computed now."""
        for judge in step.judges:
            judge.update_instrument()
        try:
            fingerprint, unknown = journal_key(describe_step(step), __version__), ""
        except NotDescribable as error:
            journal, fingerprint, unknown = None, "", str(error)
        settings = {"journal": journal, "fingerprint": fingerprint, "unknown": unknown, "counter": counter}
        return cls(step=step, **settings, name=step.get_name())

    def has_result(self, candidate: Candidate) -> bool:
        """Return True if the journal holds the result of this step for a candidate.

        Raises:
            JournalError: if the journal cannot be read.
        """
        return self.journal is not None and self.journal.get(self._key(candidate)) is not None

    def _do(self, input: Candidate, config: RunnableConfig) -> Candidate:
        run = Run.of(config).metered()
        return drive(self._work(input, run.meter), run, run.into(config))

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        run = Run.of(config).metered()
        return await adrive(self._work(input, run.meter), run, run.into(config))

    def _work(self, candidate: Candidate, meter: UsageMeter) -> Operation[Candidate]:
        """Return the stored result, or run the step and store its result; an error rejects the candidate."""
        if candidate.rejected:
            return candidate
        if self.journal and (entry := self.journal.get(self._key(candidate))):
            try:
                stored = _Entry.model_validate_json(entry)
            except ValidationError as error:
                problem = f"{self.journal} holds an entry that is not a candidate: {error}"
                raise JournalError(f"{problem}; choose another journal file") from error
            self.counter.add(self.get_name(), stored.usage)
            return stored.candidate
        try:
            result: Candidate = yield InvokeChild(self.step, candidate)
            if self.journal is not None:
                new = _Entry(candidate=result, usage=meter.usage)
                self.journal.put(self._key(candidate), new.model_dump_json(fallback=str))
            return result
        except JournalError:
            raise
        except Exception as error:
            return self._reject(candidate, error)
        finally:
            self.counter.add(self.get_name(), meter.usage)

    def _key(self, candidate: Candidate) -> str:
        return journal_key("candidate", self.fingerprint, candidate.model_dump(mode="json", fallback=str))

    def _reject(self, candidate: Candidate, error: Exception) -> Candidate:
        message = f"{type(error).__name__}: {redact_message(error, self.step)}"
        _LOG.warning("%s: %s", self.get_name(), message)
        trial = candidate.with_trial(self.get_name(), accepted=False, feedback=message)
        return trial.reject(FAILED + type(error).__name__)
