"""Kept: a step whose results stand in a journal, and whose failures reject the candidate instead of ending the run."""

from __future__ import annotations

import logging

from langchain_core.runnables import RunnableConfig
from pydantic import InstanceOf, ValidationError

from langchain_rageval.errors import JournalError
from langchain_rageval.judge.identity import redact_secrets
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.journal import Journal, journal_key
from langchain_rageval.run.traced import Traced
from langchain_rageval.testset.candidate import Candidate
from langchain_rageval.testset.candidate_step import CandidateStep

FAILED = "failed: "
"""How the reason of a candidate begins that an error rejected; the error's class follows."""

_LOG = logging.getLogger("langchain_rageval")


class JournaledStep(Traced[Candidate, Candidate]):
    """Looks a candidate up before its step is done, and keeps what came of it."""

    step: CandidateStep
    journal: InstanceOf[Journal] | None
    fingerprint: str

    @classmethod
    def of(cls, step: CandidateStep, journal: Journal | None) -> JournaledStep:
        """Wrap a step; what it would ask is fixed from here on."""
        return cls(step=step, journal=journal, fingerprint=journal_key(repr(step.instrument)), name=step.get_name())

    def holds(self, candidate: Candidate) -> bool:
        """Whether the journal knows what becomes of a candidate here.

        Raises:
            JournalError: if it cannot be read.
        """
        return self.journal is not None and self.journal.get(self._key(candidate)) is not None

    def _do(self, input: Candidate, config: RunnableConfig) -> Candidate:
        found = self._found(input)
        if found is None:
            try:
                found = self._keep(input, self.step.invoke(input, config))
            except JournalError:
                raise
            except Exception as error:
                return self._failed(input, error)
        return found

    async def _ado(self, input: Candidate, config: RunnableConfig) -> Candidate:
        found = self._found(input)
        if found is None:
            try:
                found = self._keep(input, await self.step.ainvoke(input, config))
            except JournalError:
                raise
            except Exception as error:
                return self._failed(input, error)
        return found

    def _found(self, candidate: Candidate) -> Candidate | None:
        if candidate.rejected:
            return candidate
        kept = self.journal and self.journal.get(self._key(candidate))
        if not kept:
            return None
        try:
            return Candidate.model_validate_json(kept)
        except ValidationError as error:
            raise JournalError(f"{self.journal} holds what is no candidate: {error}; name another place") from error

    def _keep(self, candidate: Candidate, made: Candidate) -> Candidate:
        if self.journal is not None:
            self.journal.put(self._key(candidate), made.model_dump_json(fallback=str))
        return made

    def _key(self, candidate: Candidate) -> str:
        return journal_key("candidate", self.fingerprint, candidate.model_dump(mode="json", fallback=str))

    def _failed(self, candidate: Candidate, error: Exception) -> Candidate:
        told = f"{type(error).__name__}: {error}"
        for judge in self.step.judges:
            for model in inner_models(judge.model):
                told = redact_secrets(told, model)
        _LOG.warning("%s: %s", self.get_name(), told)
        return candidate.tried(self.get_name(), accepted=False, feedback=told).reject(FAILED + type(error).__name__)
