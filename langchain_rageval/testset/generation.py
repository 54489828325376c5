"""Generation: one call of `generate` or its kin, round by round; what is asked, kept, paid for, and accepted."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from langchain_core.runnables import RunnableConfig, RunnableSequence

from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.budget import BudgetTracker, Cost
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.options import build_run
from langchain_rageval.run.requests import Embed, Operation
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import tokens_in
from langchain_rageval.testset.candidate import DUPLICATE, Candidate
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.draft import Draft, dealt
from langchain_rageval.testset.evolutions import Evolution
from langchain_rageval.testset.journaled_step import FAILED, JournaledStep
from langchain_rageval.testset.rows import Testset, TestsetRow

if TYPE_CHECKING:
    from langchain_rageval.testset.generator import TestsetGenerator

_BUDGET = "the budget is spent"
_LOST = "the run was broken off"
_TOKENS_OF_A_PROMPT = 800


@dataclass
class Generation:
    """One call of `generate` or its kin."""

    generator: TestsetGenerator
    store: Docstore
    size: int
    seed: int
    over: str = ""
    failure: str = ""
    _near: dict[str, bool] = field(default_factory=dict)
    _chains_lock: threading.Lock = field(default_factory=threading.Lock)
    _chains: dict[Evolution, RunnableSequence[Candidate, Candidate]] = field(default_factory=dict)
    _questions: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Deal the rows out."""
        given = self.generator
        self.run = build_run({"max_concurrency": given.max_concurrency, "timeout": given.timeout, "retry": given.retry})
        self.budget_tracker = BudgetTracker(given.budget, self.run.meter)
        self._own_journal = isinstance(given.journal, str | Path)
        self.journal = Journal(given.journal) if isinstance(given.journal, str | Path) else given.journal
        branches = dealt(given.distribution, self.size, self.seed)
        self.draft = Draft(self.store.order(self.seed), branches, self.seed, self._has_near)

    def __enter__(self) -> Generation:
        """Use the journal while the block lasts."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the journal, unless it is the user's."""
        if self._own_journal and self.journal is not None:
            self.journal.close()

    def prepared(self) -> Operation[None]:
        """Embed the passages, if an evolution looks for near ones."""
        if any(kind.adds_passage for slot in self.draft.slots for kind in slot.branch.kinds):
            yield from self.store.embedded()

    def round(self) -> dict[int, Candidate]:
        """A candidate for each row that is worth another try; none when the run is over."""
        return {} if self.over else self.draft.round()

    def attempt(self, number: int, start: Candidate, run: Run, config: RunnableConfig) -> Candidate:
        """Take a candidate through all steps of its row."""
        with self._affordable(number, start, run) as own:
            return self._chain(number).invoke(start, own.into(config)) if own else start.reject(_BUDGET)

    async def aattempt(self, number: int, start: Candidate, run: Run, config: RunnableConfig) -> Candidate:
        """As `attempt`, on the caller's loop."""
        with self._affordable(number, start, run) as own:
            return await self._chain(number).ainvoke(start, own.into(config)) if own else start.reject(_BUDGET)

    def settled(self, made: Mapping[int, Candidate]) -> Operation[list[TestsetRow]]:
        """Fill rows with what was accepted and asks what no row asks yet; the rows that are new."""
        fresh = {number: candidate for number, candidate in made.items() if candidate.rejected is None}
        vectors = yield from self._vectors([candidate.question for candidate in fresh.values()])
        for (number, candidate), vector in zip(list(fresh.items()), vectors, strict=True):
            if self._asked_already(candidate.question, vector):
                fresh[number] = candidate.reject(DUPLICATE)
            else:
                self._questions[number] = (candidate.question.casefold(), vector)
        for number, candidate in made.items():
            self.draft.settle(number, fresh.get(number, candidate))
            if candidate.rejected and candidate.rejected.startswith(FAILED):
                self.failure = self.failure or candidate.history[-1].feedback
        reasons = {candidate.rejected for candidate in made.values()}
        if _BUDGET in reasons:
            self.over = _BUDGET
        elif all(reason and reason.startswith(FAILED) for reason in reasons):
            self.over = "every attempt of a round failed"
        return [TestsetRow.of(candidate) for candidate in fresh.values() if candidate.rejected is None]

    def testset(self, *, broken_off: bool = False) -> Testset:
        """What there is."""
        filled = [slot.filled for slot in self.draft.slots if slot.filled is not None]
        yields = {"attempts": self.draft.attempts, "rejected": dict(self.draft.rejected.most_common())}
        notes = list(self._notes(len(filled), broken_off))
        return Testset(
            [TestsetRow.of(candidate) for candidate in filled], yields, notes, len(filled) == self.size, broken_off
        )

    def _notes(self, count: int, broken_off: bool) -> Generator[str]:
        given = self.generator
        judges = [judge for judge in (given.writer, given.critic, given.closed_book) if judge is not None]
        models = [inner for judge in judges for inner in inner_models(judge.model)]
        told = [getattr(model, "testset_note", None) for model in models]
        yield from dict.fromkeys(note for note in told if note)
        if self.failure:
            yield f"The first failure: {self.failure}"
        if count < self.size:
            why = _LOST if broken_off else self.over
            yield f"{count} of {self.size} rows came" + (f": {why}." if why else ": see yields.")

    @contextmanager
    def _affordable(self, number: int, start: Candidate, run: Run) -> Iterator[Run | None]:
        """The run for an attempt, or None when the budget has no room for it; one that was begun before is let in."""
        branch = self.draft.slots[number].branch
        begun = isinstance(first := self._chain(number).first, JournaledStep) and first.holds(start)
        calls = 0 if begun else 6 + 4 * len(branch.kinds) + (self.generator.closed_book is not None)
        tokens = calls * (_TOKENS_OF_A_PROMPT + tokens_in(start.passages[0].text))
        kind = (branch.name, begun)
        reserved = self.budget_tracker.admit(kind, lambda: Cost(calls, tokens, 0))
        if reserved is None:
            yield None
            return
        own = run.metered()
        try:
            yield own
        finally:
            self.budget_tracker.settle(kind, reserved, Cost.of(own.meter.usage, own.meter.unreported))

    def _chain(self, number: int) -> RunnableSequence[Candidate, Candidate]:
        evolution = self.draft.slots[number].branch
        with self._chains_lock:
            if evolution not in self._chains:
                steps = self.generator.steps(evolution, self.store)
                self._chains[evolution] = RunnableSequence(*(JournaledStep.of(step, self.journal) for step in steps))
            return self._chains[evolution]

    def _has_near(self, passage: Any) -> bool:
        if passage.id not in self._near:
            self._near[passage.id] = bool(self.store.similar(passage))
        return self._near[passage.id]

    def _vectors(self, questions: Sequence[str]) -> Operation[list[Any]]:
        """Unit vectors of questions; None for all when nobody compares them, or for one without a direction."""
        if self.generator.dedupe is None or not questions:
            return [None] * len(questions)
        vectors = yield Embed(self.generator.embeddings, list(questions))
        return [_unit(vector) for vector in vectors]

    def _asked_already(self, question: str, vector: Any) -> bool:
        known = self._questions.values()
        if any(text == question.casefold() for text, _ in known):
            return True
        threshold = self.generator.dedupe
        if vector is None or threshold is None:
            return False
        return any(other is not None and float(vector @ other) >= threshold for _, other in known)


def _unit(vector: Any) -> Any:
    length = float(np.linalg.norm(vector))
    return vector / length if isfinite(length) and length > 0 else None
