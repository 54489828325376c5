"""TestsetGenerator: from documents to questions with reference answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig, RunnableSequence
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.ladder import inner_models
from langchain_rageval.progress import Progress, showing
from langchain_rageval.prompts.promptset import languages
from langchain_rageval.run.budget import Allowance, Budget, Cost
from langchain_rageval.run.journal import Journal
from langchain_rageval.run.meter import tokens_in
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Run
from langchain_rageval.run.slots import Slots
from langchain_rageval.run.traced import Traced
from langchain_rageval.run.work import Embed, Work, adrive, drive
from langchain_rageval.testset.answer_unaided import closed_book_filter
from langchain_rageval.testset.branch import branch
from langchain_rageval.testset.candidate import DUPLICATE, Candidate
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.draft import Draft, dealt
from langchain_rageval.testset.evolutions import EVOLUTIONS, Evolution
from langchain_rageval.testset.extract_keyphrases import keyphrases
from langchain_rageval.testset.grade_passage import passage_filter
from langchain_rageval.testset.kept import FAILED, Kept
from langchain_rageval.testset.needed_passages import find_passages
from langchain_rageval.testset.review_question import question_filter
from langchain_rageval.testset.rows import Testset, TestsetRow
from langchain_rageval.testset.step import CandidateStep
from langchain_rageval.testset.write_answer import answer
from langchain_rageval.testset.write_question import seed_question

DISTRIBUTION: Mapping[str | Evolution, float] = {
    "simple": 0.5,
    "reasoning": 0.25,
    "conditional": 0.15,
    "multi_context": 0.1,
}

_BUDGET = "the budget is spent"
_LOST = "the run was broken off"
_WORKERS_PER_SLOT = 2
_TOKENS_OF_A_PROMPT = 800
_LOG = logging.getLogger("langchain_rageval")


class TestsetGenerator(Traced[Any, Testset]):
    """Makes a test set from documents: a Runnable from documents to a `Testset`.

    Each row begins with a passage of its own: it is graded, one of its key phrases becomes a question, the question is
    reviewed and mended, evolved, compared with what it was, and answered from the passages that it needs. What is
    rejected on the way is tried again with another passage, a bounded number of times. The same seed, documents and
    (cached) models give the same set, whichever answer comes first.

    It takes at most 6 calls for a simple row and 4 more for each evolution, plus what rejections cost, whatever the
    size of the corpus; passages are embedded only for evolutions that look for the nearest one.

    Args:
        writer: model that writes key phrases, questions and answers.
        critic: model that grades and judges what was written; by default the writer.
        embeddings: find near passages and near-duplicate questions.
        distribution: evolution, or name of one, to its share of the rows; shares are above 0 and need not add up to 1.
        size: rows to make.
        seed: of everything that is drawn.
        splitter: as for `Docstore`.
        vectorstore: as for `Docstore`; nothing is embedded again then.
        passage_threshold: least grade of a passage, from 1 to 3.
        max_rewrites: how often a rejected question is mended.
        dedupe: cosine from which two questions are one; None keeps all but equal ones.
        closed_book: model that answers from memory; questions that it answers are dropped.
        language: of the prompts; "auto" takes that of each passage.
        max_concurrency: most model calls at a time.
        timeout: seconds for one model call.
        retry: of calls that the transport lost.
        journal: path of an SQLite file that keeps each finished step; the same call goes on where a crash ended it.
        budget: what a run may spend.
        progress: show it on stderr.

    Raises:
        ConfigError: if an option cannot be used.
    """

    __test__: ClassVar[bool] = False  # or pytest would take it for a test
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    writer: InstanceOf[Judge]
    critic: InstanceOf[Judge]
    embeddings: InstanceOf[Embeddings]
    distribution: Mapping[Any, float]
    size: int
    seed: int
    splitter: Any
    vectorstore: InstanceOf[VectorStore] | None
    passage_threshold: float
    max_rewrites: int
    dedupe: float | None
    closed_book: InstanceOf[Judge] | None
    max_concurrency: int
    timeout: float | None
    retry: InstanceOf[RetryPolicy]
    journal: Any
    budget: InstanceOf[Budget] | None
    progress: bool

    def __init__(
        self,
        writer: JudgeLike,
        critic: JudgeLike | None = None,
        embeddings: Embeddings | None = None,
        distribution: Mapping[Any, float] | None = None,
        *,
        size: int = 10,
        seed: int = 0,
        splitter: Any = None,
        vectorstore: VectorStore | None = None,
        passage_threshold: float = 2.0,
        max_rewrites: int = 2,
        dedupe: float | None = 0.95,
        closed_book: JudgeLike | None = None,
        language: str = "auto",
        max_concurrency: int = 16,
        timeout: float | None = 60.0,
        retry: RetryPolicy | None = None,
        journal: str | Path | Journal | None = None,
        budget: Budget | None = None,
        progress: bool = True,
    ) -> None:
        if not isinstance(embeddings, Embeddings):
            raise ConfigError(f"embeddings takes LangChain Embeddings, got {type(embeddings).__name__}")
        if dedupe is not None and not (isinstance(dedupe, int | float) and 0 < dedupe <= 1):
            raise ConfigError(f"dedupe takes a cosine above 0 and at most 1, or None, got {dedupe!r}")
        if not isinstance(journal, str | Path | Journal | None):
            raise ConfigError(f"journal takes the path of a file, got {type(journal).__name__}")
        if not isinstance(max_concurrency, int) or max_concurrency < 1:
            raise ConfigError(f"max_concurrency takes a whole number from 1 on, got {max_concurrency!r}")
        _whole("size", size, 1)
        _whole("seed", seed, None)
        given: dict[str, Any] = {
            "writer": _speaking(writer, language),
            "critic": _speaking(writer if critic is None else critic, language),
            "embeddings": embeddings,
            "distribution": _shares(DISTRIBUTION if distribution is None else distribution),
            "size": size,
            "seed": seed,
            "splitter": splitter,
            "vectorstore": vectorstore,
            "passage_threshold": passage_threshold,
            "max_rewrites": max_rewrites,
            "dedupe": dedupe,
            "closed_book": None if closed_book is None else _speaking(closed_book, language),
            "max_concurrency": max_concurrency,
            "timeout": timeout,
            "retry": retry or RetryPolicy(),
            "journal": journal,
            "budget": budget,
            "progress": progress,
        }
        super().__init__(**given)
        self.steps(EVOLUTIONS["simple"])  # refuses options that a step refuses

    def __repr__(self) -> str:
        """Models and distribution, without secrets."""
        shares = ", ".join(f"{branch.name}={share:g}" for branch, share in self.distribution.items())
        return f"TestsetGenerator(writer={self.writer!r}, critic={self.critic!r}, {shares})"

    __str__ = __repr__

    def steps(self, evolution: Evolution, docstore: Docstore | None = None) -> list[CandidateStep]:
        """What a candidate goes through after its passage is drawn, for one evolution."""
        filters = partial(question_filter, self.critic, self.writer, docstore, max_rewrites=self.max_rewrites)
        kinds = [
            branch(kind, self.writer, self.critic, docstore, max_rewrites=self.max_rewrites) for kind in evolution.kinds
        ]
        last = [find_passages(self.critic), answer(self.writer)]
        if self.closed_book is not None:
            last.append(closed_book_filter(self.closed_book))
        return [
            passage_filter(self.critic, threshold=self.passage_threshold),
            keyphrases(self.writer),
            seed_question(self.writer),
            filters(),
            *kinds,
            *last,
        ]

    def generate(self, documents: Any, *, size: int | None = None, seed: int | None = None) -> Testset:
        """Make a test set, in worker threads.

        Args:
            documents: LangChain Documents, texts, anything with a text, a DataFrame, a path; or a `Docstore`.
            size: rows to make; by default the generator's own.
            seed: likewise.

        Returns:
            The test set, in the order of the rows. Where fewer came than were asked for, `yields` says why. Ctrl-C
            gives what there is, with `complete` False.

        Raises:
            ConfigError: if there is nothing to ask about.
            JournalError: if the journal cannot be read or written.
        """
        return self._generated(documents, size, seed, {})

    async def agenerate(self, documents: Any, *, size: int | None = None, seed: int | None = None) -> Testset:
        """As `generate`, through the models' async methods on the caller's loop."""
        return await self._agenerated(documents, size, seed, {})

    def stream_generate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None
    ) -> Generator[TestsetRow]:
        """As `generate`, giving each row when it is accepted."""
        job = self._job(documents, size, seed)
        with closing(self._rows(job, {})) as rows:
            yield from rows

    async def astream_generate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None
    ) -> AsyncGenerator[TestsetRow]:
        """As `agenerate`, giving each row when it is accepted."""
        job = self._job(documents, size, seed)
        async with aclosing(self._arows(job, {})) as rows:
            async for row in rows:
                yield row

    def _do(self, input: Any, config: RunnableConfig) -> Testset:
        return self._generated(input, None, None, config)

    async def _ado(self, input: Any, config: RunnableConfig) -> Testset:
        return await self._agenerated(input, None, None, config)

    def _generated(self, documents: Any, size: int | None, seed: int | None, config: RunnableConfig) -> Testset:
        job = self._job(documents, size, seed)
        try:
            with closing(self._rows(job, config)) as rows:
                for _ in rows:
                    pass
        except KeyboardInterrupt:
            return job.testset(broken_off=True)
        return job.testset()

    async def _agenerated(self, documents: Any, size: int | None, seed: int | None, config: RunnableConfig) -> Testset:
        job = self._job(documents, size, seed)
        async with aclosing(self._arows(job, config)) as rows:
            async for _ in rows:
                pass
        return job.testset()

    def _rows(self, job: Generation, config: RunnableConfig) -> Generator[TestsetRow]:
        workers = _WORKERS_PER_SLOT * self.max_concurrency
        with showing(len(job.draft.slots), job.run.meter, show=self.progress, what="rows") as shown, job:
            drive(job.prepared(), job.run, config)
            while starts := job.round():
                run = job.run.for_sample()
                attempts = [partial(job.attempt, number, start, run, config) for number, start in starts.items()]
                made = run.threads.spread(attempts, workers)
                yield from _advanced(drive(job.settled(dict(zip(starts, made, strict=True))), run, config), shown)

    async def _arows(self, job: Generation, config: RunnableConfig) -> AsyncGenerator[TestsetRow]:
        with showing(len(job.draft.slots), job.run.meter, show=self.progress, what="rows") as shown, job:
            await adrive(job.prepared(), job.run, config)
            while starts := job.round():
                run = job.run.for_sample()
                attempts = [job.aattempt(number, start, run, config) for number, start in starts.items()]
                made = await asyncio.gather(*attempts)
                settled = await adrive(job.settled(dict(zip(starts, made, strict=True))), run, config)
                for row in _advanced(settled, shown):
                    yield row

    def _job(self, documents: Any, size: int | None, seed: int | None) -> Generation:
        size = self.size if size is None else _whole("size", size, 1)
        seed = self.seed if seed is None else _whole("seed", seed, None)
        store = documents if isinstance(documents, Docstore) else self._store(documents)
        if not store.passages:
            raise ConfigError("the documents hold no text to ask about")
        return Generation(self, store, size, seed)

    def _store(self, documents: Any) -> Docstore:
        return Docstore(documents, splitter=self.splitter, embeddings=self.embeddings, vectorstore=self.vectorstore)


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
    _chains: dict[Evolution, RunnableSequence[Candidate, Candidate]] = field(default_factory=dict)
    _questions: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Deal the rows out."""
        given = self.generator
        self.run = Run(slots=Slots(given.max_concurrency), retry=given.retry, timeout=given.timeout)
        self.allowance = Allowance(given.budget, self.run.meter)
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

    def prepared(self) -> Work[None]:
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

    def settled(self, made: Mapping[int, Candidate]) -> Work[list[TestsetRow]]:
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
        begun = isinstance(first := self._chain(number).first, Kept) and first.holds(start)
        calls = 0 if begun else 6 + 4 * len(branch.kinds) + (self.generator.closed_book is not None)
        tokens = calls * (_TOKENS_OF_A_PROMPT + tokens_in(start.passages[0].text))
        kind = (branch.name, begun)
        reserved = self.allowance.admit(kind, lambda: Cost(calls, tokens, 0))
        if reserved is None:
            yield None
            return
        own = run.metered()
        try:
            yield own
        finally:
            self.allowance.settle(kind, reserved, Cost.of(own.meter.usage, own.meter.unreported))

    def _chain(self, number: int) -> RunnableSequence[Candidate, Candidate]:
        evolution = self.draft.slots[number].branch
        with self.run.lock:
            if evolution not in self._chains:
                steps = self.generator.steps(evolution, self.store)
                self._chains[evolution] = RunnableSequence(*(Kept.of(step, self.journal) for step in steps))
            return self._chains[evolution]

    def _has_near(self, passage: Any) -> bool:
        if passage.id not in self._near:
            self._near[passage.id] = bool(self.store.similar(passage))
        return self._near[passage.id]

    def _vectors(self, questions: Sequence[str]) -> Work[list[Any]]:
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


def _advanced(rows: Sequence[TestsetRow], shown: Progress) -> Generator[TestsetRow]:
    for row in rows:
        shown.advance()
        yield row


def _speaking(judge: JudgeLike, language: str) -> Judge:
    """The judge with prompts in a language, unless it has chosen its own."""
    made = Judge.of(judge)
    if language == "auto":
        return made
    if language not in languages():
        raise ConfigError(f"language is one of {', '.join(['auto', *sorted(languages())])}, got {language!r}")
    return made.speaking(language)


def _shares(distribution: Mapping[Any, float]) -> dict[Evolution, float]:
    shares: dict[Evolution, float] = {}
    for named, share in distribution.items():
        evolution = _evolution(named)
        if not isinstance(share, int | float) or not (isfinite(share) and share > 0):
            raise ConfigError(f"the share of {evolution.name} takes a number above 0, got {share!r}")
        shares[evolution] = shares.get(evolution, 0.0) + float(share)
    if not shares:
        raise ConfigError("distribution takes at least one evolution, such as {'simple': 1}")
    whole = sum(shares.values())
    return {evolution: share / whole for evolution, share in shares.items()}


def _evolution(named: Any) -> Evolution:
    if isinstance(named, Evolution):
        return named
    found = [EVOLUTIONS.get(part.strip()) for part in str(named).split("+")]
    if not isinstance(named, str) or None in found:
        raise ConfigError(f"there is no evolution {named!r}; there are {', '.join(EVOLUTIONS)}, joined by + or |")
    return Evolution(tuple(kind for evolution in found if evolution for kind in evolution.kinds))


def _whole(name: str, given: Any, least: int | None) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or (least is not None and given < least):
        raise ConfigError(f"{name} takes a whole number{'' if least is None else f' from {least} on'}, got {given!r}")
    return given
