"""TestsetGenerator: from documents to questions with reference answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import partial
from math import isfinite
from typing import Any, ClassVar, Unpack

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike, in_language
from langchain_rageval.prompts.promptset import languages
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.drivers import adrive, agather, drive
from langchain_rageval.run.options import RUN_DEFAULTS, RunOptions, check_options, fill_defaults
from langchain_rageval.run.progress import Progress, show_progress
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.traced import Traced
from langchain_rageval.testset.answer import answer
from langchain_rageval.testset.branch import branch
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.closed_book_filter import closed_book_filter
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolutions import EVOLUTIONS, Evolution
from langchain_rageval.testset.find_passages import find_passages
from langchain_rageval.testset.generation import Generation
from langchain_rageval.testset.keyphrases import keyphrases
from langchain_rageval.testset.passage_filter import passage_filter
from langchain_rageval.testset.question_filter import question_filter
from langchain_rageval.testset.rows import Testset, TestsetRow
from langchain_rageval.testset.seed_question import seed_question

DISTRIBUTION: Mapping[str | Evolution, float] = {
    "simple": 0.5,
    "reasoning": 0.25,
    "conditional": 0.15,
    "multi_context": 0.1,
}

_WORKERS_PER_SLOT = 2


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
        **options: of the run, described in `RunOptions`: `max_concurrency=16`, `timeout=60.0`, `retry=None`,
            `journal=None`, which stores each finished step, `budget=None` and `progress=True`.

    Raises:
        TypeError: if an option does not exist.
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
        **options: Unpack[RunOptions],
    ) -> None:
        chosen = fill_defaults(TestsetGenerator, options, RUN_DEFAULTS)
        check_options(chosen)
        if not isinstance(embeddings, Embeddings):
            raise ConfigError(f"embeddings takes LangChain Embeddings, got {type(embeddings).__name__}")
        if dedupe is not None and not (isinstance(dedupe, int | float) and 0 < dedupe <= 1):
            raise ConfigError(f"dedupe takes a cosine above 0 and at most 1, or None, got {dedupe!r}")
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
            **chosen,
            "retry": chosen["retry"] or RetryPolicy(),
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
            question_filter(self.critic, self.writer, docstore, max_rewrites=self.max_rewrites),
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
        with show_progress(len(job.draft.slots), job.run.meter, show=self.progress, unit="rows") as shown, job:
            drive(job.prepared(), job.run, config)
            while starts := job.round():
                run = job.run.for_sample()
                attempts = [partial(job.attempt, number, start, run, config) for number, start in starts.items()]
                made = run.threads.spread(attempts, workers)
                yield from _advanced(drive(job.settled(dict(zip(starts, made, strict=True))), run, config), shown)

    async def _arows(self, job: Generation, config: RunnableConfig) -> AsyncGenerator[TestsetRow]:
        with show_progress(len(job.draft.slots), job.run.meter, show=self.progress, unit="rows") as shown, job:
            await adrive(job.prepared(), job.run, config)
            while starts := job.round():
                run = job.run.for_sample()
                attempts = [job.aattempt(number, start, run, config) for number, start in starts.items()]
                made = await agather(attempts)
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
    return in_language(made, language)


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
