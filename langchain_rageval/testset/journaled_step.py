"""Journaled step: a step whose results are stored in a journal and whose errors reject only the candidate."""

from __future__ import annotations

import logging
from typing import ClassVar

from langchain_core.runnables import RunnableConfig
from pydantic import BaseModel, InstanceOf, ValidationError

from langchain_rageval._internal.description import NotDescribable
from langchain_rageval._internal.redaction import redact_message
from langchain_rageval._version import __version__
from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import JournalError
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.run import Run
from langchain_rageval.run.traced import Traced
from langchain_rageval.steps.stage import describe_step
from langchain_rageval.testset.candidate import FAILED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.step_usage import StepUsage

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
        result = self._look_up(input)
        if result is None:
            run = Run.of(config).metered()
            try:
                result = self._store(input, self.step.invoke(input, run.into(config)), run.meter.usage)
            except JournalError:
                raise
            except Exception as error:
                return self._reject(input, error)
            finally:
                self.counter.add(self.get_name(), run.meter.usage)
        return result

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        result = self._look_up(input)
        if result is None:
            run = Run.of(config).metered()
            try:
                result = self._store(input, await self.step.ainvoke(input, run.into(config)), run.meter.usage)
            except JournalError:
                raise
            except Exception as error:
                return self._reject(input, error)
            finally:
                self.counter.add(self.get_name(), run.meter.usage)
        return result

    def _look_up(self, candidate: Candidate) -> Candidate | None:
        if candidate.rejected:
            return candidate
        entry = self.journal and self.journal.get(self._key(candidate))
        if not entry:
            return None
        try:
            stored = _Entry.model_validate_json(entry)
        except ValidationError as error:
            problem = f"{self.journal} holds an entry that is not a candidate: {error}"
            raise JournalError(f"{problem}; choose another journal file") from error
        self.counter.add(self.get_name(), stored.usage)
        return stored.candidate

    def _store(self, candidate: Candidate, result: Candidate, usage: Usage) -> Candidate:
        if self.journal is not None:
            entry = _Entry(candidate=result, usage=usage)
            self.journal.put(self._key(candidate), entry.model_dump_json(fallback=str))
        return result

    def _key(self, candidate: Candidate) -> str:
        return journal_key("candidate", self.fingerprint, candidate.model_dump(mode="json", fallback=str))

    def _reject(self, candidate: Candidate, error: Exception) -> Candidate:
        message = f"{type(error).__name__}: {redact_message(error, self.step)}"
        _LOG.warning("%s: %s", self.get_name(), message)
        trial = candidate.with_trial(self.get_name(), accepted=False, feedback=message)
        return trial.reject(FAILED + type(error).__name__)
