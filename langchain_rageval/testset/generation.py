"""Generation: a run of the test-set generator, in rounds of attempts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, cast

import numpy as np
from langchain_core.runnables import Runnable, RunnableConfig, RunnableSequence

from langchain_rageval._internal.code_identity import short_digest
from langchain_rageval._internal.page import pluralize
from langchain_rageval._internal.plotting import single_line
from langchain_rageval.data.notes import Note
from langchain_rageval.data.schema import Usage
from langchain_rageval.errors import EmptyTestsetError
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.run.budget import Cost
from langchain_rageval.run.drivers import adrive, astream_results, drive
from langchain_rageval.run.governor import Governor
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.progress import Progress, show_progress
from langchain_rageval.run.requests import Embed, InvokeChild, Operation
from langchain_rageval.run.run import CallOptions, Run, build_run
from langchain_rageval.run.usage import tokens_in
from langchain_rageval.testset.accepted_questions import AcceptedQuestions, NewQuestion, reject_duplicate
from langchain_rageval.testset.candidate import EMBED, Candidate, CandidateStep, Passage, Reason
from langchain_rageval.testset.docstore import Docstore, embed_passages
from langchain_rageval.testset.evolutions import Branch, adds_passage, branches_of_tree, is_searched, kinds_of
from langchain_rageval.testset.evolve import may_have_bridge
from langchain_rageval.testset.generator_steps import GeneratorSettings, steps_after, steps_before, steps_of_branch
from langchain_rageval.testset.passage_scheduler import PassageScheduler
from langchain_rageval.testset.row import TestsetRow, row_of
from langchain_rageval.testset.sampling import draw_order, passages_in_focus
from langchain_rageval.testset.testset import Origin, Testset
from langchain_rageval.testset.user_step import JournaledStep, check_sync

_MOST_FAILURES = 5  # attempts in a row, whole rounds, after which the models count as unusable
_LONGEST_COMMENT = 60
_PROMPT_TOKENS = 800  # estimate for one call, without the passage


Attempt = Callable[[Run], Operation[Candidate]]
"""Attempt at a row: function from a run, which counts the usage, to an operation that invokes steps on a candidate."""

Record = Callable[[Candidate], None]


@dataclass
class Generation:
    """One run of the test-set generator: its plan, its state and its results.

    Attributes:
        settings: models and options of the generator.
        store: passages of the documents.
        seed: random seed.
        evolutions: evolution of each row to generate (change that makes its question harder, or more like a user's).
        present: existing rows of the test set. No new question is a near-duplicate of an existing question, and the
            passages of existing rows are drawn last.
        stop_reason: reason why the run ends early; "" while it may go on.
        first_failure: message of the first failed attempt; "" if none failed.
        rejected: rejected candidates, in the order of the attempts.
        run: settings that all calls of models share (calls at a time, timeout, retries), and the usage of these calls.
        journal: store of the results of finished steps, which a repeated run reads; None stores nothing.
        scheduler: assigns passages to rows.
        embed_run: part of the run that counts the embedding of passages and questions.
    """

    settings: GeneratorSettings
    store: Docstore
    seed: int
    evolutions: Sequence[Branch] = ()
    present: Sequence[TestsetRow] = ()
    stop_reason: str = ""
    first_failure: str = ""
    rejected: list[Candidate] = field(default_factory=list)
    _has_similar_cache: dict[str, bool] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _steps: dict[Branch | None, list[JournaledStep]] = field(default_factory=dict)
    _usage: dict[str, Usage] = field(default_factory=dict)
    _not_journaled: dict[str, None] = field(default_factory=dict)
    _accepted: AcceptedQuestions = field(init=False)
    _last_results: list[Candidate] = field(default_factory=list)  # of the attempts of the current round
    _known: int = 0  # questions that were accepted before the current round
    _failures: int = 0  # attempts in the last rounds of which every attempt failed

    def __post_init__(self) -> None:
        """Open the journal and plan the rows."""
        settings = self.settings
        self.plan_rows(self.evolutions, self.present)
        self._accepted = AcceptedQuestions(settings.dedupe)
        names = ("max_concurrency", "timeout", "retry", "price")
        self.run = build_run(cast(CallOptions, {name: getattr(settings, name) for name in names}))
        self.embed_run = self.run.metered()
        self._n_workers = 2 * settings.max_concurrency  # candidates in progress at a time
        self._ledger = Governor(settings.budget, self.run.meter)
        self.journal = Journal(settings.journal) if isinstance(settings.journal, str | Path) else settings.journal

    def plan_rows(
        self, evolutions: Sequence[Branch], present: Sequence[TestsetRow], roots: Mapping[int, Candidate] | None = None
    ) -> None:
        """Plan new rows that follow existing rows of a test set, one new row for each evolution.

        Args:
            evolutions: evolution of each new row.
            present: existing rows, whose questions the new rows must not repeat.
            roots: mapping from the number of a new row (from 0) to a candidate with an accepted simple question. The
                question of the new row is evolved from it, and joins its tree (questions about one fact).
        """
        self.evolutions, self.present, settings = evolutions, present, self.settings
        branches = branches_of_tree(settings.distribution) if settings.tree else None
        passages = draw_order(passages_in_focus(self.store.passages, settings.focus), self.seed, settings.stratify)
        used = {text for row in present for text in row.contexts}
        passages.sort(key=lambda passage: passage.text in used)
        self._bridged = any(map(adds_passage, (*settings.distribution, *evolutions))) and any(
            may_have_bridge(self.store, passage) for passage in passages
        )
        self.scheduler = PassageScheduler(passages, evolutions, self.seed, self._has_similar, branches, roots)

    @contextmanager
    def open(self, total: int, unit: str, outcome: Callable[[], str] | None = None) -> Iterator[Progress]:
        """Show the progress of `total` units; at the end, close the journal, unless the user passed an open one.

        `outcome` returns the text to show in place of the number of failures.
        """
        settings = self.settings
        with show_progress(total, self.run.meter, show=settings.progress, unit=unit, outcome=outcome) as progress:
            try:
                yield progress
            finally:
                if self.journal is not settings.journal:
                    self.journal.close()

    def vectors(self, questions: Sequence[str]) -> Operation[dict[str, Any]]:
        """Embed questions in one batch.

        Returns:
            Mapping from each question to its unit vector; to None if its vector is zero or not finite. All values are
            None if the generator has `dedupe=None`.
        """
        if self.settings.dedupe is None or not questions:
            return dict.fromkeys(questions)
        vectors = yield Embed(self.settings.embeddings, questions)
        lengths = [float(np.linalg.norm(vector)) for vector in vectors]
        units = [v / n if isfinite(n) and n > 0 else None for v, n in zip(vectors, lengths, strict=True)]
        return dict(zip(questions, units, strict=True))

    def start(self) -> Operation[None]:
        """Add the questions of the existing rows to the accepted questions, which new questions must not repeat.

        First, all passages are embedded if an evolution writes unanswerable questions and `store` has embeddings, or if
        an evolution adds passages and no two passages share a rare word.
        """
        branches = {row.evolution for row in self.scheduler.rows}
        is_corpus_searched = self.store.embeddings is not None and any(map(is_searched, branches))
        if is_corpus_searched or (any(map(adds_passage, branches)) and not self._bridged):
            yield from embed_passages(self.store)
        vectors = yield from self.vectors([row.standalone_question for row in self.present])
        for row in self.present:
            self._accepted.add(row, vectors[row.standalone_question])

    def next_round(self) -> dict[int, Attempt]:
        """Return a mapping from row numbers to the attempts of the next round; empty if the run is over.

        An attempt writes and reviews a first question, evolves it and answers it. If the row starts from a question
        that was reviewed earlier, the evolution is the first step.

        The run is over if no row can be tried, or if `stop_reason` is set: the budget is spent, the last attempts all
        failed, or too many questions were rejected or repeated.
        """
        failed = all(one.has_failed for one in self._last_results)
        self._failures = self._failures + len(self._last_results) if failed else 0
        if any(one.rejected == Reason.BUDGET_SPENT for one in self._last_results):
            self.stop_reason = Reason.BUDGET_SPENT
        elif self._failures >= _MOST_FAILURES:
            self.stop_reason = f"the last {self._failures} attempts failed"
        else:
            self.stop_reason = self.scheduler.hopeless
        self._last_results.clear()
        self._known = len(self._accepted)
        starts = {} if self.stop_reason else self.scheduler.next_round()
        return {number: partial(self._attempt_of, number, candidate) for number, candidate in starts.items()}

    def accept(self, attempts: Mapping[int, Candidate]) -> Operation[list[TestsetRow]]:
        """Record the candidates of a round; reject those with blank or duplicate questions that no step has rejected.

        Args:
            attempts: mapping from row numbers to the candidates after all steps, in the order of the rows.

        Returns:
            The rows of the accepted candidates.
        """
        results = dict(attempts)
        for number, one in attempts.items():
            if not one.rejected and not one.question.strip():  # only steps of the user leave that
                results[number] = one.reject(Reason.BLANK_QUESTION)
            elif not one.rejected and self.settings.tree and not one.tree_id:
                tree_id = f"tree-{short_digest(json.dumps([one.question, one.passages[0].id]))}"
                results[number] = one.replace(tree_id=tree_id)
        new = {number: candidate for number, candidate in results.items() if candidate.rejected is None}
        questions = [candidate.standalone_question for candidate in new.values()]
        vectors = yield from self.vectors(questions)
        repeated = self._accepted.add_new(list(new.values()), [vectors[question] for question in questions])
        for number, other in zip(new, repeated, strict=True):
            results[number] = reject_duplicate(new[number], other) if other else new[number]
        for number, outcome in results.items():
            self.scheduler.record(number, outcome)
            if outcome.rejected and outcome.rejected != Reason.BUDGET_SPENT:
                self.rejected.append(outcome)
            if outcome.has_failed:
                self.first_failure = self.first_failure or outcome.history[-1].feedback
        self._last_results += results.values()
        return [row_of(candidate, self.store) for candidate in results.values() if candidate.rejected is None]

    def collect(self, config: RunnableConfig, allow_empty: bool | None = None) -> Testset:
        """Generate all rows, in worker threads, and return them as a test set; Ctrl-C returns the rows so far.

        `config` is the LangChain config of the attempts; `allow_empty` is described in `finished`.
        """
        try:
            with closing(self.rows(config)) as rows:
                for _ in rows:
                    pass
        except KeyboardInterrupt:
            return self.testset(broken_off=True)
        return self.testset(allow_empty=allow_empty)

    async def acollect(self, config: RunnableConfig, allow_empty: bool | None = None) -> Testset:
        """Like `collect`, but calls the models' async methods on the caller's event loop."""
        async with aclosing(self.arows(config)) as rows:
            async for _ in rows:
                pass
        return self.testset(allow_empty=allow_empty)

    def rows(self, config: RunnableConfig, *, one_by_one: bool = False) -> Generator[TestsetRow]:
        """Yield the rows of each round; with `one_by_one`, each when it and those before it in its round are finished.

        Otherwise the questions of a round are embedded in one batch.
        """
        check_sync(*self.settings.steps.values(), *self.settings.distribution)
        with self.open(len(self.scheduler.rows), "rows", self.describe_rejections) as progress:
            drive(self.start(), self.embed_run, config)
            while attempts := self.next_round():
                finished: dict[int, Candidate] = {}
                with closing(self.results(attempts.values(), config)) as results:
                    for number, result in zip(attempts, results, strict=True):
                        finished[number] = result
                        if one_by_one or len(finished) == len(attempts):
                            accepted = drive(self.accept(finished), self.embed_run, config)
                            yield from _count_rows(accepted, progress)
                            finished.clear()

    async def arows(self, config: RunnableConfig, *, one_by_one: bool = False) -> AsyncGenerator[TestsetRow]:
        """Like `rows`, but calls the models' async methods on the caller's event loop."""
        with self.open(len(self.scheduler.rows), "rows", self.describe_rejections) as progress:
            await adrive(self.start(), self.embed_run, config)
            while attempts := self.next_round():
                numbers, finished = iter(attempts), dict[int, Candidate]()
                async with aclosing(self.aresults(attempts.values(), config)) as results:
                    async for result in results:
                        finished[next(numbers)] = result
                        if one_by_one or len(finished) == len(attempts):
                            accepted = await adrive(self.accept(finished), self.embed_run, config)
                            for row in _count_rows(accepted, progress):
                                yield row
                            finished.clear()

    def describe_rejections(self) -> str:
        """Return the number of rejections by reason and the last feedback: "2 rejected: 2 not evolved; last: vague"."""
        counts = self.scheduler.rejected.most_common()
        if not counts:
            return "0 rejected"
        reasons = ", ".join(f"{count} {single_line(reason)}" for reason, count in counts)
        last = single_line(self.rejected[-1].objection, _LONGEST_COMMENT) if self.rejected else ""
        return f"{self.scheduler.rejected.total()} rejected: {reasons}" + (f"; last: {last}" if last else "")

    def testset(self, *, broken_off: bool = False, allow_empty: bool | None = None) -> Testset:
        """Return the accepted rows, in order, as a test set; `broken_off` is True for a run that Ctrl-C ended.

        The rows of a tree (questions about one fact) follow one another, at the place of the first of them.
        """
        candidates = [row.accepted for row in self.scheduler.rows if row.accepted is not None]
        trees = list(dict.fromkeys(candidate.tree_id for candidate in candidates))
        candidates.sort(key=lambda candidate: trees.index(candidate.tree_id))
        yields = {"attempts": self.scheduler.attempts, "rejected": dict(self.scheduler.rejected.most_common())}
        size, allow_empty = len(self.scheduler.rows), broken_off or allow_empty
        return self.finished(candidates, size, yields, self.rejected, broken_off, allow_empty)

    def finished(
        self,
        accepted: Sequence[Candidate],
        size: int,
        yields: Mapping[str, Any],
        rejected: list[Candidate],
        broken_off: bool = False,
        allow_empty: bool | None = None,
    ) -> Testset:
        """Return a test set of `size` planned rows: those of the accepted candidates, with notes and usages.

        Raises:
            EmptyTestsetError: if no candidate was accepted, unless `allow_empty` is True; None stands for the setting
                of the generator.
        """
        rows = [row_of(candidate, self.store) for candidate in accepted]
        notes = list(self._notes(len(rows), size, broken_off))
        complete, origin = len(rows) == size, Origin(self.settings, self.store)
        testset = Testset(rows, yields, notes, complete, broken_off, rejected, self.usages(), _origin=origin)
        if rows or (self.settings.allow_empty if allow_empty is None else allow_empty):
            return testset
        raise EmptyTestsetError(
            f"no question was accepted; allow_empty=True returns the empty test set:\n{testset!r}", testset
        )

    def _notes(self, n_rows: int, size: int, broken_off: bool) -> Generator[str]:
        """Yield remarks for `Testset.notes`, such as the first failure and the reason why rows are missing."""
        models = [inner for judge in self.settings.judges for inner in inner_models(judge.model)]
        model_notes = [getattr(model, "testset_note", None) for model in models]
        yield from dict.fromkeys(note for note in model_notes if note)
        for reason in self._not_journaled:
            yield f"A step is not in the journal, and a resumed run repeats it: {reason}."
        for problem in self.run.meter.unpriced:
            yield Note("money-unknown", reason=problem)
        for evolution, tries in self.scheduler.given_up.items():
            yield f"{evolution.get_name()} was given up: none of {tries} questions evolved; see `rejected`."
        if self.first_failure:
            yield f"The first failure: {self.first_failure}"
        for reason, names in self.scheduler.left_out.items():
            yield f"Left out where no passage suits: {', '.join(names)} ({reason})."
        if n_rows < size:
            passages = pluralize(len(self.scheduler.passages), "passage")
            remedy = "add documents, or pass TestsetGenerator(splitter=...) for shorter passages"
            used_up = f"the key phrases of {passages} are used up: {remedy}"
            ended = used_up if self.scheduler.rejected[Reason.NO_KEYPHRASE] else "see yields"
            reason = "the run was interrupted" if broken_off else self.stop_reason or ended
            yield f"{n_rows} of {size} rows were generated: {reason}."

    def _attempt_of(self, number: int, candidate: Candidate, run: Run) -> Operation[Candidate]:
        """Attempt a row; if the first step is in the journal, the attempt is expected to cost nothing."""
        evolution = self.scheduler.rows[number].evolution
        writing, evolving = [] if candidate.question else self._journaled(None), self._journaled(evolution)
        new = [NewQuestion(accepted=self._accepted, among=self._known)] if writing else []
        steps = [*writing[:-1], *new, *writing[-1:], *evolving]  # the last step of `writing` is the review
        resumed = self.settings.budget is not None and (writing or evolving)[0].has_result(candidate)
        full = (7 if writing else 3) + 4 * len(kinds_of(evolution)) + (self.settings.closed_book is not None)
        kind = (evolution.get_name(), bool(writing), resumed)
        chain: Runnable[Candidate, Candidate] = RunnableSequence(*steps, name="generate_row")  # its name in traces
        return (yield from self._attempt(_invoke(chain, candidate), candidate, kind, 0 if resumed else full, run))

    def check(self, work: Operation[Candidate], candidate: Candidate, kind: str, calls: int) -> Attempt:
        """Return an attempt to check a candidate by an operation, for which `calls` calls of a model are expected.

        The checks of one `kind` have similar costs.
        """
        return partial(self._attempt, work, candidate, kind, calls)

    def _attempt(
        self, work: Operation[Candidate], candidate: Candidate, kind: Hashable, calls: int, run: Run
    ) -> Operation[Candidate]:
        """Do the work on a candidate; reject the candidate if the expected cost does not fit the budget.

        The cost of `calls` calls is expected until the cost of an attempt of the same kind is known.
        """
        tokens = _PROMPT_TOKENS + sum(tokens_in(passage.text) for passage in candidate.passages)
        reserved = self._ledger.admit(kind, lambda: Cost(calls, calls * tokens, 0))
        if reserved is None:
            return candidate.reject(Reason.BUDGET_SPENT)
        try:
            return (yield from work)
        finally:
            self._ledger.settle(kind, reserved, Cost.of(run.meter.usage, run.meter.unreported))

    def results(self, attempts: Iterable[Attempt], config: RunnableConfig) -> Generator[Candidate]:
        """Run attempts in worker threads and yield the resulting candidates in the order of the attempts.

        A result is yielded as soon as this result and all earlier ones are available. Equal calls of the attempts are
        made once. `config` is the LangChain config of the attempts.
        """
        run = self.run.for_sample()
        jobs = [partial(drive, *_begin(attempt, run, config)) for attempt in attempts]
        return self.run.threads.stream(jobs, self._n_workers)

    async def aresults(self, attempts: Iterable[Attempt], config: RunnableConfig) -> AsyncGenerator[Candidate]:
        """Yield the candidate of each attempt, like `results`, but with the models' async methods."""
        run, gate = self.run.for_sample(), asyncio.Semaphore(self._n_workers)

        async def make(attempt: Attempt) -> Candidate:
            async with gate:
                return await adrive(*_begin(attempt, run, config))

        async with aclosing(astream_results(map(make, attempts))) as results:
            async for result in results:
                yield result

    def settle(self, attempts: Iterable[Attempt], record: Record, progress: Progress) -> None:
        """Run attempts in worker threads; after each, call `record` with the result and advance `progress` by one.

        The results come in the order of the attempts, whatever the order in which attempts finish.
        """
        with closing(self.results(attempts, {})) as results:
            for result in results:
                record(result)
                progress.advance()

    async def asettle(self, attempts: Iterable[Attempt], record: Record, progress: Progress) -> None:
        """Like `settle`, but calls the models' async methods on the caller's event loop."""
        async with aclosing(self.aresults(attempts, {})) as results:
            async for result in results:
                record(result)
                progress.advance()

    def journaled(self, step: CandidateStep) -> JournaledStep:
        """Return a wrapper of a step that stores its results in the journal, if any, and counts its usage."""
        return JournaledStep.of(step, self.journal, self._count)

    def answering_steps(self) -> list[JournaledStep]:
        """Return the steps that find the passages of a question, answer it and verify the answer."""
        return [self.journaled(step) for step in steps_after(self.settings, self.store)[:3]]

    def _journaled(self, evolution: Branch | None) -> list[JournaledStep]:
        """Return the steps from an evolution on; for None, the steps up to the reviewed first question."""
        with self._lock:
            if evolution not in self._steps:
                settings, store = self.settings, self.store
                if evolution is None:
                    built = steps_before(settings, store)
                else:
                    built = [*steps_of_branch(settings, evolution, store), *steps_after(settings, store)]
                journaled = [self.journaled(step) for step in built]
                self._not_journaled |= {step.unknown: None for step in journaled if step.unknown and self.journal}
                self._steps[evolution] = journaled
            return self._steps[evolution]

    def _count(self, step: str, usage: Usage) -> None:
        """Add the usage of a call to the total of a step."""
        with self._lock:
            self._usage[step] = self._usage.get(step, Usage()) + usage

    def usages(self) -> dict[str, Usage]:
        """Return a mapping from step names to usages (calls, tokens, money), in the order of the steps of a row.

        Usages include those of results from the journal. Steps without any usage are left out. The last step is
        "embed", if texts were embedded.
        """
        order = [None, *self.settings.distribution]
        names = [step.get_name() for branch in order for step in self._steps.get(branch, [])]
        last = [step.get_name() for step in steps_after(self.settings, self.store)]
        with self._lock:
            ordered = dict.fromkeys([*(name for name in names if name not in last), *last, *sorted(self._usage)])
            usages = {name: self._usage[name] for name in ordered if name in self._usage}
        embedding = self.embed_run.meter.usage
        counted = {name: one for name, one in usages.items() if one != Usage(seconds=one.seconds, money=one.money)}
        return {**counted, EMBED: embedding} if embedding.embedded else counted

    def _has_similar(self, passage: Passage) -> bool:
        if passage.id not in self._has_similar_cache:
            found = may_have_bridge(self.store, passage) if self._bridged else self.store.similar(passage)
            self._has_similar_cache[passage.id] = bool(found)
        return self._has_similar_cache[passage.id]


def _begin(attempt: Attempt, run: Run, config: RunnableConfig) -> tuple[Operation[Candidate], Run, RunnableConfig]:
    """Return what a driver needs: the operation of an attempt, a run that counts its usage, and a config with it."""
    own = run.metered()
    return attempt(own), own, own.into(config)


def _invoke(step: Runnable[Candidate, Candidate], candidate: Candidate) -> Operation[Candidate]:
    result: Candidate = yield InvokeChild(step, candidate)
    return result


def _count_rows(rows: Sequence[TestsetRow], progress: Progress) -> Generator[TestsetRow]:
    """Yield rows and advance the progress display."""
    progress.refresh()
    for row in rows:
        progress.advance()
        yield row
