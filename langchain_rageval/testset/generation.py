"""Generation: a run of the test-set generator, in rounds of attempts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig, RunnableSequence

from langchain_rageval.judge.judge import Judge
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.budget import Budget, BudgetTracker, Cost
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.options import CallOptions, build_run
from langchain_rageval.run.requests import Embed, Operation
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.usage_meter import tokens_in
from langchain_rageval.testset.candidate import BLANK_QUESTION, DUPLICATE, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.docstore import Docstore, embed_passages
from langchain_rageval.testset.evolutions import Branch, kinds_of
from langchain_rageval.testset.journaled_step import FAILED, JournaledStep
from langchain_rageval.testset.passage import Passage
from langchain_rageval.testset.passage_scheduler import PassageScheduler
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.sampling import allocate_rows, draw_order
from langchain_rageval.testset.testset import Testset

_BUDGET_SPENT = "the budget is spent"
_INTERRUPTED = "the run was interrupted"
_ROUND_FAILED = "every attempt of a round failed"
_CHAIN = "generate_row"  # name in traces
_PROMPT_TOKENS = 800  # estimate for one call, without the passage


@dataclass(frozen=True)
class GenerationOptions:
    """Options of a `TestsetGenerator` that one run needs.

    Attributes:
        judges: writer, critic and closed-book model, if there is one.
        embeddings: embed questions to find near-duplicates.
        distribution: share of the rows for each evolution.
        dedupe: cosine from which two questions are duplicates; None rejects only equal questions.
        closed_book: True if each row takes a closed-book call.
        build_steps: returns the steps of an evolution.
        max_concurrency: maximum number of model calls in flight.
        timeout: seconds for one model call.
        retry: retry policy for transport errors.
        journal: journal, or path of one.
        budget: limit of the run.
        price: prices of the models.
    """

    judges: Sequence[Judge]
    embeddings: Embeddings
    distribution: Mapping[Branch, float]
    dedupe: float | None
    closed_book: bool
    build_steps: Callable[[Branch, Docstore], Sequence[CandidateStep]]
    max_concurrency: int
    timeout: float | None
    retry: RetryPolicy
    journal: str | Path | Journal | None
    budget: Budget | None
    price: Any = None


@dataclass
class Generation:
    """One run of the test-set generator.

    Attributes:
        options: options of the generator.
        store: passages of the documents.
        size: number of rows to generate.
        seed: random seed.
        present: rows that the new ones continue; no new question is a near-duplicate of theirs, and their passages are
            drawn last.
        evolutions: evolution of each row; by default drawn from the distribution.
        stop_reason: reason why the run ends early; "" while it may go on.
        first_failure: message of the first failed attempt; "" if none failed.
        run: limiter, retries and usage of the run.
        journal: journal of finished steps.
        scheduler: rows and their passages.
    """

    options: GenerationOptions
    store: Docstore
    size: int
    seed: int
    present: Sequence[TestsetRow] = ()
    evolutions: Sequence[Branch] | None = None
    stop_reason: str = ""
    first_failure: str = ""
    _has_similar_cache: dict[str, bool] = field(default_factory=dict)
    _chains_lock: threading.Lock = field(default_factory=threading.Lock)
    _chains: dict[Branch, RunnableSequence[Candidate, Candidate]] = field(default_factory=dict)
    _not_journaled: dict[str, None] = field(default_factory=dict)
    _questions: dict[int, Any] = field(default_factory=dict)
    _reasons: set[str | None] = field(default_factory=set)  # of the attempts of the current round

    def __post_init__(self) -> None:
        """Open the journal and plan the rows."""
        options = self.options
        call_options: CallOptions = {
            "max_concurrency": options.max_concurrency,
            "timeout": options.timeout,
            "retry": options.retry,
            "price": options.price,
        }
        self.run = build_run(call_options)
        self._budget_tracker = BudgetTracker(options.budget, self.run.meter)
        self._owns_journal = isinstance(options.journal, str | Path)
        self.journal = Journal(options.journal) if isinstance(options.journal, str | Path) else options.journal
        self._plan_rows()

    def continue_from(self, present: Sequence[TestsetRow], evolutions: Sequence[Branch]) -> None:
        """Plan new rows, one for each evolution, that continue present ones."""
        self.present, self.evolutions, self.size = present, evolutions, len(evolutions)
        self._plan_rows()

    def _plan_rows(self) -> None:
        options, evolutions = self.options, self.evolutions
        if evolutions is None:
            evolutions = allocate_rows(options.distribution, self.size, self.seed)
        passages = draw_order(self.store.passages, self.seed)
        used = {text for row in self.present for text in row.contexts}
        passages.sort(key=lambda passage: passage.text in used)
        self.scheduler = PassageScheduler(passages, evolutions, self.seed, self._has_similar)

    def __enter__(self) -> Generation:
        """Return the generation; leaving the block closes the journal."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the journal, unless the user passed an open one."""
        if self._owns_journal and self.journal is not None:
            self.journal.close()

    def prepare(self) -> Operation[None]:
        """Embed the questions of the present rows, and the passages if an evolution needs similar ones."""
        questions = [row.question for row in self.present]
        vectors = yield from self._embed_questions(questions)
        for number, (question, vector) in enumerate(zip(questions, vectors, strict=True), 1):
            self._questions[-number] = (question.casefold(), vector)
        if any(kind.adds_passage for row in self.scheduler.rows for kind in kinds_of(row.evolution)):
            yield from embed_passages(self.store)

    def next_round(self) -> dict[int, Candidate]:
        """Return new candidates (questions to generate) by row number; empty if the run is over."""
        if _BUDGET_SPENT in self._reasons:
            self.stop_reason = _BUDGET_SPENT
        elif self._reasons and all(reason and reason.startswith(FAILED) for reason in self._reasons):
            self.stop_reason = _ROUND_FAILED
        self._reasons.clear()
        return {} if self.stop_reason else self.scheduler.next_round()

    def attempt(self, number: int, candidate: Candidate, run: Run, config: RunnableConfig) -> Candidate:
        """Run all steps of a row on a candidate (question in progress); reject it if the budget is too small."""
        with self._reserve_budget(number, candidate, run) as own:
            return self._chain(number).invoke(candidate, own.into(config)) if own else candidate.reject(_BUDGET_SPENT)

    async def aattempt(self, number: int, candidate: Candidate, run: Run, config: RunnableConfig) -> Candidate:
        """Like `attempt`, but calls the models' async methods on the caller's event loop."""
        with self._reserve_budget(number, candidate, run) as own:
            if own is None:
                return candidate.reject(_BUDGET_SPENT)
            return await self._chain(number).ainvoke(candidate, own.into(config))

    def accept(self, results: Mapping[int, Candidate]) -> Operation[list[TestsetRow]]:
        """Record results of a round (one attempt for each unfinished row), rejecting duplicate questions.

        Args:
            results: accepted and rejected candidates by row number, in the order of the rows.

        Returns:
            The new rows.
        """
        results = {number: _reject_blank(candidate) for number, candidate in results.items()}
        accepted = {number: candidate for number, candidate in results.items() if candidate.rejected is None}
        vectors = yield from self._embed_questions([candidate.question for candidate in accepted.values()])
        for (number, candidate), vector in zip(list(accepted.items()), vectors, strict=True):
            if self._is_duplicate(candidate.question, vector):
                accepted[number] = candidate.reject(DUPLICATE)
            else:
                self._questions[number] = (candidate.question.casefold(), vector)
        for number, candidate in results.items():
            self.scheduler.record(number, accepted.get(number, candidate))
            if candidate.rejected and candidate.rejected.startswith(FAILED):
                self.first_failure = self.first_failure or candidate.history[-1].feedback
        self._reasons |= {candidate.rejected for candidate in results.values()}
        return [self._to_row(candidate) for candidate in accepted.values() if candidate.rejected is None]

    def testset(self, *, broken_off: bool = False) -> Testset:
        """Return the accepted rows as a test set; `broken_off` marks a run that Ctrl-C ended."""
        candidates = [row.accepted for row in self.scheduler.rows if row.accepted is not None]
        yields = {"attempts": self.scheduler.attempts, "rejected": dict(self.scheduler.rejected.most_common())}
        notes = list(self._notes(len(candidates), broken_off))
        rows = [self._to_row(candidate) for candidate in candidates]
        return Testset(rows, yields, notes, len(rows) == self.size, broken_off)

    def _notes(self, n_rows: int, broken_off: bool) -> Generator[str]:
        models = [inner for judge in self.options.judges for inner in inner_models(judge.model)]
        model_notes = [getattr(model, "testset_note", None) for model in models]
        yield from dict.fromkeys(note for note in model_notes if note)
        for reason in self._not_journaled:
            yield f"A step is not in the journal, and a resumed run repeats it: {reason}."
        for problem in self.run.meter.unpriced:
            yield f"The money is unknown: {problem}."
        if self.first_failure:
            yield f"The first failure: {self.first_failure}"
        if n_rows < self.size:
            reason = _INTERRUPTED if broken_off else self.stop_reason or "see yields"
            yield f"{n_rows} of {self.size} rows were generated: {reason}."

    @contextmanager
    def _reserve_budget(self, number: int, candidate: Candidate, run: Run) -> Iterator[Run | None]:
        """Yield a metered run for an attempt, or None if the budget has no room for its expected cost.

        An attempt whose first step is in the journal is expected to cost nothing.
        """
        evolution = self.scheduler.rows[number].evolution
        resumed = isinstance(first := self._chain(number).first, JournaledStep) and first.has_result(candidate)
        calls = 0 if resumed else 6 + 4 * len(kinds_of(evolution)) + self.options.closed_book
        tokens = calls * (_PROMPT_TOKENS + tokens_in(candidate.passages[0].text))
        task_type = (evolution.get_name(), resumed)
        reserved = self._budget_tracker.admit(task_type, lambda: Cost(calls, tokens, 0))
        if reserved is None:
            yield None
            return
        own = run.metered()
        try:
            yield own
        finally:
            self._budget_tracker.settle(task_type, reserved, Cost.of(own.meter.usage, own.meter.unreported))

    @contextmanager
    def reserve(self, kind: str, guess: Cost) -> Iterator[Run | None]:
        """Yield a metered run for work of a kind and an expected cost, or None if the budget has no room for it."""
        reserved = self._budget_tracker.admit(kind, lambda: guess)
        if reserved is None:
            yield None
            return
        own = self.run.for_sample().metered()
        try:
            yield own
        finally:
            self._budget_tracker.settle(kind, reserved, Cost.of(own.meter.usage, own.meter.unreported))

    def journaled(self, step: CandidateStep) -> JournaledStep:
        """Return a step whose results are in the journal."""
        return JournaledStep.of(step, self.journal)

    def _chain(self, number: int) -> RunnableSequence[Candidate, Candidate]:
        evolution = self.scheduler.rows[number].evolution
        with self._chains_lock:
            if evolution not in self._chains:
                steps = self.options.build_steps(evolution, self.store)
                journaled = [JournaledStep.of(step, self.journal) for step in steps]
                self._not_journaled |= {step.unknown: None for step in journaled if step.unknown and self.journal}
                self._chains[evolution] = RunnableSequence(*journaled, name=_CHAIN)
            return self._chains[evolution]

    def _has_similar(self, passage: Passage) -> bool:
        if passage.id not in self._has_similar_cache:
            self._has_similar_cache[passage.id] = bool(self.store.similar(passage))
        return self._has_similar_cache[passage.id]

    def _to_row(self, candidate: Candidate) -> TestsetRow:
        passages = [self.store.identify(passage) for passage in candidate.passages]
        return _to_row(candidate.replace(passages=passages))

    def _embed_questions(self, questions: Sequence[str]) -> Operation[list[Any]]:
        """Return unit vectors of questions; None for a zero vector, and for all if `dedupe` is None."""
        if self.options.dedupe is None or not questions:
            return [None] * len(questions)
        vectors = yield Embed(self.options.embeddings, list(questions))
        return [_normalize(vector) for vector in vectors]

    def _is_duplicate(self, question: str, vector: Any) -> bool:
        accepted = self._questions.values()
        if any(text == question.casefold() for text, _ in accepted):
            return True
        threshold = self.options.dedupe
        if vector is None or threshold is None:
            return False
        return any(other is not None and float(vector @ other) >= threshold for _, other in accepted)


def _reject_blank(candidate: Candidate) -> Candidate:
    """Reject a candidate without a question, which only steps of the user can leave."""
    return candidate if candidate.rejected or candidate.question.strip() else candidate.reject(BLANK_QUESTION)


def _to_row(candidate: Candidate) -> TestsetRow:
    passages = candidate.passages
    content = json.dumps([candidate.question, [passage.id for passage in passages]])
    return TestsetRow(
        id=blake2b(content.encode(), digest_size=8).hexdigest(),
        question=candidate.question,
        contexts=[passage.text for passage in passages],
        reference=candidate.reference or "",
        evolution=candidate.evolution,
        answerable=candidate.answerable,
        history=candidate.history,
        passage_ids=[passage.id for passage in passages],
        spans=[(passage.source, passage.start, passage.end) for passage in passages],
        metadata=passages[0].metadata,
    )


def _normalize(vector: Any) -> Any:
    length = float(np.linalg.norm(vector))
    return vector / length if isfinite(length) and length > 0 else None
