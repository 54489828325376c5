"""Wrappers of steps: UserStep checks a Runnable of the user; JournaledStep keeps the results of a step in a journal."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage
from langchain_core.prompts import BasePromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableParallel, RunnableSequence
from langchain_core.runnables.base import RunnableBindingBase, RunnableSerializable, coerce_to_runnable
from langchain_core.runnables.passthrough import RunnableAssign
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
from langchain_rageval.testset.candidate import Candidate, CandidateStep, Reason


class UserStep(CandidateStep):
    """Step that wraps a user's Runnable: it skips rejected candidates and checks the output of the Runnable.

    In traces, only the wrapped Runnable has a run, not the wrapper. Two wrappers are equal if they wrap equal Runnables
    in the same way.

    Attributes:
        step: Runnable of the user, from a candidate to a candidate or, in an evolution, to a str; a sequence is invoked
            link by link.
        evolves: True if this step is part of an evolution; its name is then added to `Candidate.evolution`. False if it
            replaces a step of the generator.
        services: models, docstore and filters of the generator, which the Runnable finds in `config["configurable"]`.
        named: True if the Runnable, or a part of it, has a name that the user chose.
    """

    in_traces: ClassVar[bool] = False

    step: InstanceOf[Runnable[Any, Any]]
    evolves: bool
    named: bool
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
        """Mapping with the configuration of this step: its name ("step"), the user's "runnable", and "calls".

        "calls" lists the configurations of the steps in `services`, which the Runnable can call. A journal (store of
        finished steps) reuses a stored result only if this configuration is the same.
        """
        own = self.step.description if isinstance(self.step, Stage) else describe(self.step)
        steps = [step.description for step in self.services.values() if isinstance(step, Stage)]
        return {"step": self.get_name(), "runnable": own, "calls": steps}

    def with_services(self, services: Mapping[str, Any]) -> UserStep:
        """Return a copy of this step whose Runnable finds `services` in `config["configurable"]`.

        `services` maps names such as `writer` and `docstore` to models, docstore and filters of the generator.
        """
        return self.model_copy(update={"services": services})

    @property
    def links(self) -> list[Runnable[Any, Any]]:
        """Runnables that this step invokes one after the other: the parts of a sequence, or the only Runnable."""
        return list(self.step.steps) if isinstance(self.step, RunnableSequence) else [self.step]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Invoke the user's Runnable, check the candidate that it returns, and record a changed question.

        The links (Runnables of a sequence) may pass any value to each other. The last link returns a candidate or, in
        an evolution, the new question as a str. A changed question is recorded as a `Trial` in the candidate's history
        of questions, unless the Runnable has recorded one.

        Raises:
            ConfigError: if the chain returns something else, or a candidate that is not valid.
        """
        last: Candidate = state
        value: Any = state
        for link in self.links:
            value = yield from self._invoke(link, value)
            if isinstance(value, Candidate):
                last = value = self._checked(value, last, _name_of(link) or self.get_name())
                if last.rejected:
                    return last
        if isinstance(value, str) and self.evolves:
            question = last.replace(question=value.strip(), parent=last.question)
            last = value = self._checked(question, last, self.get_name())
        if not isinstance(value, Candidate):
            expected = "the Candidate or a changed copy, such as candidate.replace(question=...) or "
            expected += "candidate.reject(reason)" + (", or the new question as a str" if self.evolves else "")
            hint = "; add | StrOutputParser()" if isinstance(value, BaseMessage) and self.evolves else ""
            raise ConfigError(f"{self.get_name()} must return {expected}; it returned {type(value).__name__}{hint}")
        return last.with_evolution(self.get_name()) if self.evolves and last.evolution == state.evolution else last

    def _invoke(self, link: Runnable[Any, Any], value: Any) -> Operation[Any]:
        """Invoke a link; of a mapping of Runnables each by itself, if one does not take a candidate."""
        inner = inner_runnable(link)
        if isinstance(inner, RunnableParallel):
            inputs = {name: _input_of(branch, value) for name, branch in inner.steps__.items()}
            if any(one is not value for one in inputs.values()):
                results = {}
                for name, branch in inner.steps__.items():
                    results[name] = yield InvokeChild(branch, inputs[name], self.services)
                return results
        return (yield InvokeChild(link, _input_of(link, value), self.services))

    def _checked(self, result: Candidate, before: Candidate, name: str) -> Candidate:
        """Return a valid candidate, with a trial if its question is another one than before."""
        try:
            checked: Candidate = type(result).model_validate(dict(result))
        except ValidationError as error:
            fields = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
            raise ConfigError(f"{name} returned an invalid Candidate: {fields}") from None
        if before.question.strip() and not checked.question.strip() and not checked.rejected:
            raise ConfigError(f"{name} returned a blank question; to drop it, return candidate.reject(reason)")
        if checked.question != before.question and len(checked.history) == len(before.history) and not checked.rejected:
            checked = checked.with_trial(name)
        return checked


def _input_of(link: Runnable[Any, Any], value: Any) -> Any:
    """Return a value as the input of a link; a prompt, or `assign`, reads the fields of a candidate as a mapping.

    A name of a prompt that is no field stands for the texts of the passages, or else for the question. A retriever or
    a model gets the question.
    """
    first = inner_runnable(link)
    while isinstance(first, RunnableSequence):
        first = inner_runnable(first.first)
    if isinstance(value, Candidate) and isinstance(first, BaseRetriever | BaseLanguageModel):
        return value.question
    if not isinstance(value, Candidate) or not isinstance(first, BasePromptTemplate | RunnableAssign):
        return value
    text = "\n\n".join(passage.text for passage in value.passages)
    names = ("passages", "passage", "context", "contexts", "documents")
    fields = {**dict(value), **dict.fromkeys(names, text), "candidate": value}
    wanted = first.input_variables if isinstance(first, BasePromptTemplate) else fields
    return {name: fields.get(name, value.question) for name in wanted}


def check_sync(*steps: Runnable[Any, Any]) -> None:
    """Raise ConfigError if a step, or a part of its chain, is an async function, which a sync method cannot call."""
    for step in steps:
        runnable = inner_runnable(step.step if isinstance(step, UserStep) else step)
        if isinstance(runnable, RunnableSequence):
            check_sync(*runnable.steps)
        elif isinstance(runnable, RunnableLambda) and not hasattr(runnable, "func"):
            raise ConfigError(
                f"{runnable.get_name()} is an async function: call an async method of the generator, such as agenerate "
                "or astream, or write a plain function"
            )


def user_step(*steps: Any, evolves: bool = False, option: str = "a step") -> UserStep:
    """Wrap Runnables and functions of the user, in sequence, as one `UserStep`; a single `UserStep` is returned as is.

    Args:
        *steps: Runnables, functions, or mappings of these, which pass a dict of results to the next one. The first
            receives a candidate, and the last returns a candidate.
        evolves: True if the `UserStep` is part of an evolution. The name of the `UserStep` is then added to
            `Candidate.evolution`, and the last of `steps` may also return the new question as a str. False if the
            `UserStep` replaces a step of the generator.
        option: description of `steps` in error messages, such as "steps['answer']".

    Raises:
        ConfigError: if an argument is neither a Runnable nor a function nor a mapping.
    """
    if len(steps) == 1 and isinstance(steps[0], UserStep):
        return steps[0]
    for step in steps:
        if not isinstance(step, Runnable | Mapping) and not callable(step):
            kind = type(step).__name__
            raise ConfigError(f"{option} must be a Runnable or a function from Candidate to Candidate, got {kind}")
    plain = [dict(step) if isinstance(step, Mapping) else step for step in steps]
    links = [x for step in plain for x in (step.links if isinstance(step, UserStep) else [coerce_to_runnable(step)])]
    names = [name for link in links if (name := _name_of(link))]
    runnable = links[0] if len(links) == 1 else RunnableSequence(*links)
    return UserStep(name="+".join(names) or runnable.get_name(), step=runnable, evolves=evolves, named=bool(names))


def inner_runnable(runnable: Runnable[Any, Any]) -> Runnable[Any, Any]:
    """Return the Runnable inside of all bindings, such as those by `with_config`, `with_retry` and `bind`.

    A Runnable without bindings is returned unchanged.
    """
    while isinstance(runnable, RunnableBindingBase):
        runnable = runnable.bound
    return runnable


def _name_of(runnable: Runnable[Any, Any]) -> str:
    """Return the name that a user gave to a Runnable: its `run_name` or `name`, or that of its function; "" if none."""
    while isinstance(runnable, RunnableBindingBase):
        if run_name := runnable.config.get("run_name"):
            return str(run_name)
        runnable = runnable.bound
    if isinstance(runnable, CandidateStep | RunnableSerializable) and runnable.name:
        return str(runnable.name)
    name = runnable.get_name() if isinstance(runnable, RunnableLambda) else ""
    return "" if name == "RunnableLambda" else name


_LOG = logging.getLogger("langchain_rageval")


class _Entry(BaseModel):
    """Entry of the journal: the result of a step, and what it cost."""

    candidate: Candidate
    usage: Usage


class JournaledStep(Traced[Candidate, Candidate]):
    """Wrapper that returns the result of a step from a journal, or runs the step and stores its result.

    The wrapper counts the usage of the step and does not appear in traces.

    Attributes:
        step: wrapped step.
        journal: journal of the run; None stores nothing, as for a step that cannot be identified.
        fingerprint: hash of the settings of the step.
        unknown: reason why the step cannot be identified; "" if it can be identified.
        count: function that receives the name of the step and its usage, also that of stored results.
    """

    in_traces: ClassVar[bool] = False

    step: CandidateStep
    journal: InstanceOf[Journal] | None
    fingerprint: str
    unknown: str = ""
    count: Callable[[str, Usage], None] = Field(repr=False)  # it shows all that the generation holds

    @classmethod
    def of(cls, step: CandidateStep, journal: Journal | None, count: Callable[[str, Usage], None]) -> JournaledStep:
        """Wrap a step so that its results are stored in `journal` and its usage is passed to `count`.

        Nothing is stored if `journal` is None, or if the settings of the step cannot be described, so that the step
        cannot be identified.
        """
        for judge in step.judges:
            judge.update_instrument()
        try:
            fingerprint, unknown = journal_key(describe_step(step), __version__), ""
        except NotDescribable as error:
            journal, fingerprint, unknown = None, "", str(error)
        name = step.get_name()
        return cls(name=name, step=step, journal=journal, fingerprint=fingerprint, unknown=unknown, count=count)

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
            self.count(self.get_name(), stored.usage)
            return stored.candidate
        try:
            result: Candidate = yield InvokeChild(self.step, candidate)
            if self.journal is not None:
                new = _Entry(candidate=result, usage=meter.usage)
                self.journal.put(self._key(candidate), new.model_dump_json(fallback=str))
            return result
        except (JournalError, ConfigError):
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {redact_message(error, self.step)}"
            _LOG.warning("%s: %s", self.get_name(), message)
            trial = candidate.with_trial(self.get_name(), accepted=False, feedback=message)
            return trial.reject(Reason.FAILED + type(error).__name__)
        finally:
            self.count(self.get_name(), meter.usage)

    def _key(self, candidate: Candidate) -> str:
        return journal_key("candidate", self.fingerprint, candidate.model_dump(mode="json", fallback=str))
