"""TestsetGenerator: generate questions with reference answers from documents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, closing
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
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.closed_book_filter import closed_book_filter
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolution_branch import evolution_branch
from langchain_rageval.testset.evolutions import EVOLUTIONS, Evolution
from langchain_rageval.testset.find_passages import find_passages
from langchain_rageval.testset.generation import Generation, GenerationOptions
from langchain_rageval.testset.keyphrases import keyphrases
from langchain_rageval.testset.passage_filter import passage_filter
from langchain_rageval.testset.question_filter import question_filter
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.seed_question import seed_question
from langchain_rageval.testset.testset import Testset

DISTRIBUTION: Mapping[str | Evolution, float] = {
    "simple": 0.5,
    "reasoning": 0.25,
    "conditional": 0.15,
    "multi_context": 0.1,
}

_WORKERS_PER_SLOT = 2


class TestsetGenerator(Traced[Any, Testset]):
    """Generates a test set from documents: a Runnable from documents to a `Testset`.

    Each row starts from another passage. The passage is graded, and one of its key phrases becomes a question. The
    question is reviewed, rewritten if necessary, evolved, compared with its parent, and answered from the passages that
    it needs. After a rejection the row is tried again with another passage, at most 8 times. The same seed, documents
    and (cached) models give the same set, whatever the order in which answers arrive.

    The cost does not depend on the size of the corpus: at most 6 calls for a simple row and 4 more for each evolution,
    plus the cost of rejected attempts. Passages are embedded only if an evolution needs the nearest passage.

    Args:
        writer: model that writes key phrases, questions and answers.
        critic: model that grades passages and reviews questions; by default the writer.
        embeddings: embeddings that find near passages and near-duplicate questions.
        distribution: share of the rows for each evolution, by evolution or name; shares are above 0 and are normalized
            to sum 1.
        size: number of rows.
        seed: random seed of all draws.
        splitter: as for `Docstore`.
        vectorstore: as for `Docstore`; the passages are then not embedded again.
        passage_threshold: minimum grade of a passage, from 1 to 3.
        max_rewrites: maximum number of rewrites of a rejected question.
        dedupe: cosine from which two questions are duplicates; None rejects only equal questions.
        closed_book: model that answers from memory; questions that it answers are rejected.
        language: language of the prompts; "auto" selects the language of each passage.
        **options: of the run, described in `RunOptions`: `max_concurrency=16`, `timeout=60.0`, `retry=None`,
            `journal=None`, which stores each finished step, `budget=None` and `progress=True`.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option is invalid.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class
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
            raise ConfigError(f"embeddings must be LangChain Embeddings, got {type(embeddings).__name__}")
        if dedupe is not None and not (isinstance(dedupe, int | float) and 0 < dedupe <= 1):
            raise ConfigError(f"dedupe must be a cosine above 0 and at most 1, or None, got {dedupe!r}")
        _whole("size", size, 1)
        _whole("seed", seed, None)
        given: dict[str, Any] = {
            "writer": _with_language(writer, language),
            "critic": _with_language(writer if critic is None else critic, language),
            "embeddings": embeddings,
            "distribution": _normalize_shares(DISTRIBUTION if distribution is None else distribution),
            "size": size,
            "seed": seed,
            "splitter": splitter,
            "vectorstore": vectorstore,
            "passage_threshold": passage_threshold,
            "max_rewrites": max_rewrites,
            "dedupe": dedupe,
            "closed_book": None if closed_book is None else _with_language(closed_book, language),
            **chosen,
            "retry": chosen["retry"] or RetryPolicy(),
        }
        super().__init__(**given)
        self._steps(EVOLUTIONS["simple"])  # raises ConfigError if a step rejects an option

    def __repr__(self) -> str:
        """Return the generator as text: its models and distribution, without secrets."""
        shares = ", ".join(f"{evolution.name}={share:g}" for evolution, share in self.distribution.items())
        return f"TestsetGenerator(writer={self.writer!r}, critic={self.critic!r}, {shares})"

    __str__ = __repr__

    def _steps(self, evolution: Evolution, docstore: Docstore | None = None) -> list[CandidateStep]:
        """Return the steps that generate a question by one evolution, in order."""
        branches = [
            evolution_branch(kind, self.writer, self.critic, docstore, max_rewrites=self.max_rewrites)
            for kind in evolution.kinds
        ]
        closed_book = [] if self.closed_book is None else [closed_book_filter(self.closed_book)]
        return [
            passage_filter(self.critic, threshold=self.passage_threshold),
            keyphrases(self.writer),
            seed_question(self.writer),
            question_filter(self.critic, self.writer, docstore, max_rewrites=self.max_rewrites),
            *branches,
            find_passages(self.critic),
            answer(self.writer),
            *closed_book,
        ]

    def generate(self, documents: Any, *, size: int | None = None, seed: int | None = None) -> Testset:
        """Generate a test set, in worker threads.

        Args:
            documents: a `Docstore`, the path of a file or folder, a DataFrame, or an iterable of LangChain Documents,
                texts, objects with a text and `pathlib.Path`s. A str in an iterable is always a text.
            size: number of rows; by default the `size` of the generator.
            seed: random seed; by default the `seed` of the generator.

        Returns:
            The test set, in the order of the planned rows. If it has fewer rows than requested, `yields` holds the
            reasons. Ctrl-C returns the rows so far, with `complete` False.

        Raises:
            ConfigError: if the documents hold no text.
            JournalError: if the journal cannot be read or written.
        """
        return self._generate(documents, size, seed, {})

    async def agenerate(self, documents: Any, *, size: int | None = None, seed: int | None = None) -> Testset:
        """Like `generate`, but calls the models' async methods on the caller's event loop."""
        return await self._agenerate(documents, size, seed, {})

    def stream_generate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None
    ) -> Generator[TestsetRow]:
        """Like `generate`, but yields each row when it is accepted."""
        generation = self._new_generation(documents, size, seed)
        with closing(self._rows(generation, {})) as rows:
            yield from rows

    async def astream_generate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None
    ) -> AsyncGenerator[TestsetRow]:
        """Like `stream_generate`, but calls the models' async methods on the caller's event loop."""
        generation = self._new_generation(documents, size, seed)
        async with aclosing(self._arows(generation, {})) as rows:
            async for row in rows:
                yield row

    def _do(self, input: Any, config: RunnableConfig) -> Testset:
        return self._generate(input, None, None, config)

    async def _ado(self, input: Any, config: RunnableConfig) -> Testset:
        return await self._agenerate(input, None, None, config)

    def _generate(self, documents: Any, size: int | None, seed: int | None, config: RunnableConfig) -> Testset:
        generation = self._new_generation(documents, size, seed)
        try:
            with closing(self._rows(generation, config)) as rows:
                for _ in rows:
                    pass
        except KeyboardInterrupt:
            return generation.testset(broken_off=True)
        return generation.testset()

    async def _agenerate(self, documents: Any, size: int | None, seed: int | None, config: RunnableConfig) -> Testset:
        generation = self._new_generation(documents, size, seed)
        async with aclosing(self._arows(generation, config)) as rows:
            async for _ in rows:
                pass
        return generation.testset()

    def _rows(self, generation: Generation, config: RunnableConfig) -> Generator[TestsetRow]:
        n_workers = _WORKERS_PER_SLOT * self.max_concurrency
        with self._show_progress(generation) as progress, generation:
            drive(generation.prepare(), generation.run, config)
            while candidates := generation.next_round():
                run = generation.run.for_sample()
                attempts = [partial(generation.attempt, n, start, run, config) for n, start in candidates.items()]
                results = dict(zip(candidates, run.threads.spread(attempts, n_workers), strict=True))
                yield from _count_rows(drive(generation.accept(results), run, config), progress)

    async def _arows(self, generation: Generation, config: RunnableConfig) -> AsyncGenerator[TestsetRow]:
        with self._show_progress(generation) as progress, generation:
            await adrive(generation.prepare(), generation.run, config)
            while candidates := generation.next_round():
                run = generation.run.for_sample()
                attempts = [generation.aattempt(n, start, run, config) for n, start in candidates.items()]
                results = dict(zip(candidates, await agather(attempts), strict=True))
                for row in _count_rows(await adrive(generation.accept(results), run, config), progress):
                    yield row

    def _show_progress(self, generation: Generation) -> AbstractContextManager[Progress]:
        return show_progress(len(generation.scheduler.rows), generation.run.meter, show=self.progress, unit="rows")

    def _new_generation(self, documents: Any, size: int | None, seed: int | None) -> Generation:
        size = self.size if size is None else _whole("size", size, 1)
        seed = self.seed if seed is None else _whole("seed", seed, None)
        store = documents if isinstance(documents, Docstore) else self._new_docstore(documents)
        if not store.passages:
            raise ConfigError("the documents hold no text to ask about")
        return Generation(self._generation_options(), store, size, seed)

    def _generation_options(self) -> GenerationOptions:
        return GenerationOptions(
            judges=[judge for judge in (self.writer, self.critic, self.closed_book) if judge is not None],
            embeddings=self.embeddings,
            distribution=self.distribution,
            dedupe=self.dedupe,
            closed_book=self.closed_book is not None,
            build_steps=self._steps,
            max_concurrency=self.max_concurrency,
            timeout=self.timeout,
            retry=self.retry,
            journal=self.journal,
            budget=self.budget,
        )

    def _new_docstore(self, documents: Any) -> Docstore:
        return Docstore(documents, splitter=self.splitter, embeddings=self.embeddings, vectorstore=self.vectorstore)


def _count_rows(rows: Sequence[TestsetRow], progress: Progress) -> Generator[TestsetRow]:
    """Yield rows and advance the progress display."""
    for row in rows:
        progress.advance()
        yield row


def _with_language(judge: JudgeLike, language: str) -> Judge:
    """Return the judge with prompts in a language; "auto" leaves its own setting."""
    judge = Judge.of(judge)
    if language == "auto":
        return judge
    if language not in languages():
        raise ConfigError(f"language must be one of {', '.join(['auto', *sorted(languages())])}, got {language!r}")
    return in_language(judge, language)


def _normalize_shares(distribution: Mapping[Any, float]) -> dict[Evolution, float]:
    shares: dict[Evolution, float] = {}
    for key, share in distribution.items():
        evolution = _to_evolution(key)
        if not isinstance(share, int | float) or not (isfinite(share) and share > 0):
            raise ConfigError(f"the share of {evolution.name} must be a number above 0, got {share!r}")
        shares[evolution] = shares.get(evolution, 0.0) + float(share)
    if not shares:
        raise ConfigError("distribution must contain at least one evolution, such as {'simple': 1}")
    total = sum(shares.values())
    return {evolution: share / total for evolution, share in shares.items()}


def _to_evolution(key: Any) -> Evolution:
    """Return the evolution for a key of a distribution: an Evolution, or names joined by "+"."""
    if isinstance(key, Evolution):
        return key
    parts = [EVOLUTIONS.get(name.strip()) for name in str(key).split("+")]
    if not isinstance(key, str) or None in parts:
        raise ConfigError(f"there is no evolution {key!r}; choose from {', '.join(EVOLUTIONS)}, joined by + or |")
    return Evolution(tuple(kind for evolution in parts if evolution for kind in evolution.kinds))


def _whole(name: str, given: Any, least: int | None) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or (least is not None and given < least):
        raise ConfigError(
            f"{name} must be a whole number{'' if least is None else f' of at least {least}'}, got {given!r}"
        )
    return given
