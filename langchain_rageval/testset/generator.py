"""TestsetGenerator: generate questions with reference answers from documents."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from functools import reduce
from operator import add
from typing import Annotated, Any, ClassVar, Unpack

from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.runnables import RunnableConfig, ensure_config, patch_config
from langchain_core.runnables.config import get_async_callback_manager_for_config, get_callback_manager_for_config
from langchain_core.runnables.graph import Graph, Node
from langchain_core.vectorstores import VectorStore
from pydantic.json_schema import SkipJsonSchema

from langchain_rageval.errors import ConfigError, check_choice, check_number
from langchain_rageval.judge.judge import Judge, JudgeLike, in_language
from langchain_rageval.prompts.promptset import languages
from langchain_rageval.run.drivers import adrive, drive
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import RUN_DEFAULTS, RunOptions, check_options, fill_defaults
from langchain_rageval.testset.adopt import Adoption, Redact, read_questions
from langchain_rageval.testset.candidate import CandidateStep
from langchain_rageval.testset.docstore import Docstore, check_all_documents, default_splitter
from langchain_rageval.testset.evolutions import DISTRIBUTION, allocate_rows, branches_of_tree, normalize_shares
from langchain_rageval.testset.generation import Generation
from langchain_rageval.testset.generator_steps import (
    GeneratorSettings,
    UserRunnable,
    steps_after,
    steps_before,
    steps_of_branch,
    steps_of_user,
)
from langchain_rageval.testset.plan import GenerationPlan, plan_generation
from langchain_rageval.testset.refresh import Refresh, extended
from langchain_rageval.testset.row import TestsetRow
from langchain_rageval.testset.sampling import Focus, passages_in_focus
from langchain_rageval.testset.testset import Testset

_ROWS_OF_A_PASSAGE = 3  # a writer names 3 to 5 key phrases of a passage, and each gives a row at most
_SHORTEST_PASSAGE = 500  # characters


class TestsetGenerator(GeneratorSettings):
    """Generates a test set from documents: a Runnable from documents to a `Testset`.

    Each row starts from a different passage, if there are enough. The critic grades the passage, and the writer turns
    one of its key phrases into a question. The question is reviewed, rewritten if necessary, evolved (made harder, or
    more like a user's), compared with the question before the evolution, and answered from the passages that it needs.
    After a rejection the row is tried again with another passage, at most 8 times. The same seed, documents and
    (cached) models give the same set, whatever the order in which answers arrive.

    The cost does not depend on the size of the corpus: at most 7 calls for a row whose question is not evolved, 4
    more for each evolution of a question, plus the cost of rejected attempts. Passages are embedded in two cases only.
    First: an evolution needs a second passage, and no other passage shares an entity with the first passage. Second: an
    evolution writes unanswerable questions, for which the whole corpus is searched by words and by meaning. `plan`
    estimates the cost.

    Args:
        writer: model that writes key phrases, questions and answers.
        critic: model that grades passages and reviews questions; by default the writer.
        embeddings: embeddings that find near passages and near-duplicate questions.
        distribution: share of the rows for each evolution: a mapping of names or evolutions to shares, or a list of
            pairs (share, runnable). An evolution is a name such as "reasoning+conditional", a sequence such as
            `reasoning | my_runnable`, or any Runnable or function from Candidate to Candidate. The filters follow each
            packaged evolution, not yours. Shares are above 0 and are normalized to sum 1.
        size: number of rows.
        seed: random seed of all draws.
        tree: True to ask about each fact (a reviewed simple question) once with each evolution of the distribution,
            whatever its share. The rows about one fact share `tree_id`, and `report.by_evolution()` compares them. The
            last tree may lack evolutions, since `size` counts rows.
        splitter: as for `Docstore`; but by default passages are shorter, down to 500 characters, if there are fewer
            than one for every three rows.
        vectorstore: as for `Docstore`; the passages are then not embedded again.
        passage_threshold: minimum grade of a passage, from 1 to 3.
        max_rewrites: maximum number of rewrites of a rejected question.
        dedupe: cosine from which two questions are duplicates; None rejects only equal questions.
        closed_book: model that answers from memory; questions that this model answers correctly are rejected.
        focus: sources of the passages that questions start from: a source or a list of sources, or a mapping of
            `source` or another name in the metadata to a value or list of values. A `*` stands for any characters.
            Passages that evolutions add may come from all documents. By default questions start from all passages.
        stratify: name of the metadata by which the passages are stratified, such as "topic"; by default their sources.
        language: language of the prompts; "auto" selects the language of each passage.
        allow_empty: True to return an empty test set if no question was accepted; by default that is an error.
        steps: own steps instead of the packaged ones, by name: `passage_filter`, `keyphrases` (sets `keyphrases`, and
            the `keyphrase` that the question is about), `seed_question`, `question_filter` (reviews a question, at
            first and after each evolution), `compress`, `evolution_filter` (compares an evolved question with its
            `parent`; after a rejection with the reason "not evolved" the evolution is tried again), `find_passages`
            (keeps the passages that the question needs), `answer` (writes the `reference`), `check_answer` (verifies
            it) and `closed_book_filter`. A step is a Runnable or a function that returns `candidate.replace(...)` or
            `candidate.reject(reason)`;
            `RunnablePassthrough()` leaves a step out.
        **options: of the run, described in `RunOptions`: `max_concurrency=16`, `timeout=60.0`, `retry=None`,
            `price=None`, `journal=None`, which stores each finished step, `budget=None` and `progress=True`.

    A Runnable of yours finds `writer`, `critic` (each a `Judge`), `docstore` and the filters in
    `config["configurable"]`. Rejected candidates do not reach your Runnable. An error in your Runnable rejects only the
    candidate that it received; an invalid output ends the run with ConfigError. The journal stores the outputs of your
    Runnable if its code and configuration can be identified; a note of the test set names the steps whose outputs are
    not stored. Model calls of your Runnable do not count towards `max_concurrency` and `budget`.

    Raises:
        TypeError: if an option does not exist.
        ConfigError: if an option is invalid.
    """

    __test__: ClassVar[bool] = False  # keeps pytest from collecting the class

    def __init__(
        self,
        writer: JudgeLike,
        critic: JudgeLike | None = None,
        embeddings: Embeddings | None = None,
        distribution: Mapping[Any, float] | Sequence[tuple[float, Any]] | None = None,
        *,
        size: int = 10,
        seed: int = 0,
        tree: bool = False,
        splitter: Any = None,
        vectorstore: VectorStore | None = None,
        passage_threshold: float = 2.0,
        max_rewrites: int = 2,
        dedupe: float | None = 0.95,
        closed_book: JudgeLike | None = None,
        focus: Focus | None = None,
        stratify: str = "source",
        language: str = "auto",
        allow_empty: bool = False,
        steps: Mapping[str, UserRunnable] | None = None,
        **options: Unpack[RunOptions],
    ) -> None:
        given: dict[str, Any] = {
            name: value for name, value in locals().items() if name in GeneratorSettings.model_fields
        }
        chosen = fill_defaults(TestsetGenerator, options, RUN_DEFAULTS)
        check_options(chosen)
        if not isinstance(embeddings, Embeddings):
            raise ConfigError(
                f"embeddings must be LangChain Embeddings, got {type(embeddings).__name__}: they find near-duplicate "
                "questions; HashingEmbeddings() needs no model"
            )
        if dedupe is not None and not (isinstance(dedupe, int | float) and 0 < dedupe <= 1):
            raise ConfigError(f"dedupe must be a cosine above 0 and at most 1, or None, got {dedupe!r}")
        if not isinstance(tree, bool):
            raise ConfigError(f"tree must be True or False, got {tree!r}")
        _check_draw(size, seed)
        models = {"writer": writer, "critic": writer if critic is None else critic, "closed_book": closed_book}
        given |= {name: None if model is None else _with_language(model, language) for name, model in models.items()}
        given |= chosen | {"retry": chosen["retry"] or RetryPolicy(), "steps": steps_of_user(steps)}
        given["distribution"] = normalize_shares(DISTRIBUTION if distribution is None else distribution)
        super().__init__(**given)
        if tree:
            branches_of_tree(self.distribution)
        steps_before(self, None), steps_after(self, None)  # raises ConfigError if a step rejects an option

    def __repr__(self) -> str:
        """Return the generator as text: its models and distribution, without secrets."""
        shares = ", ".join(f"{branch.get_name()}={share:g}" for branch, share in self.distribution.items())
        return f"TestsetGenerator(writer={self.writer!r}, critic={self.critic!r}, {shares})"

    __str__ = __repr__

    @property
    def InputType(self) -> Any:
        """Type of the documents that `invoke` takes, for JSON schemas.

        Documents in a form without a JSON schema, such as a Docstore, are not in the type, but `invoke` takes them too.
        """
        return str | list[Document | str] | Annotated[Any, SkipJsonSchema()]  # type: ignore[type-arg]

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the steps that make a row, with one branch for each evolution of the distribution."""
        graph, docstore = Graph(), self._new_docstore([])
        start = [graph.add_node(self.get_input_schema(config))]
        reviewed = _extend(graph, start, steps_before(self, None), config)
        branches = [
            _extend(graph, reviewed, steps_of_branch(self, branch, docstore), config) for branch in self.distribution
        ]
        evolved = list(dict.fromkeys(node for nodes in branches for node in nodes))
        end = graph.add_node(self.get_output_schema(config))
        for node in _extend(graph, evolved, steps_after(self, None), config):
            graph.add_edge(node, end)
        return graph

    def generate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None, allow_empty: bool | None = None
    ) -> Testset:
        """Generate a test set, in worker threads.

        Args:
            documents: a `Docstore`, the path of a file or folder, a DataFrame, or an iterable of LangChain Documents,
                texts, objects with a text and `pathlib.Path`s. A str in an iterable is always a text.
            size: number of rows; by default the `size` of the generator.
            seed: random seed; by default the `seed` of the generator.
            allow_empty: True to return an empty test set instead of an error; by default the setting of the generator.

        Returns:
            The test set, in the order of the planned rows. If it has fewer rows than requested, `yields` holds the
            reasons. Ctrl-C returns the rows so far, with `complete` False.

        Raises:
            ConfigError: if the documents hold no text, or a step of yours returns something else than a candidate.
            EmptyTestsetError: if no question was accepted; its `testset` holds the rejected candidates.
            JournalError: if the journal cannot be read or written.
        """
        return self._new_generation(documents, size, seed).collect({}, allow_empty)

    async def agenerate(
        self, documents: Any, *, size: int | None = None, seed: int | None = None, allow_empty: bool | None = None
    ) -> Testset:
        """Like `generate`, but calls the models' async methods on the caller's event loop."""
        return await self._new_generation(documents, size, seed).acollect({}, allow_empty)

    def plan(self, documents: Any, size: int | None = None, *, seed: int | None = None) -> GenerationPlan:
        """Return what `generate` is expected to cost, without calling a model.

        The expected cost assumes that nothing is rejected. The greatest cost assumes that every row uses all its
        attempts. The journal is not considered.

        Args:
            documents: as for `generate`.
            size: number of rows; by default the `size` of the generator.
            seed: random seed; by default the `seed` of the generator.

        Returns:
            Mapping of step name to calls, tokens and, with `price`, money. `total` is the cost of all steps. The step
            names are the keys of `testset.usage_by_step`.

        Raises:
            ConfigError: if the documents hold no text.
        """
        size, seed = self._draw(size, seed)
        return plan_generation(self, self._filled_docstore(documents, size), size, seed)

    def extend(
        self, testset: Testset, size: int | None = None, *, documents: Any = None, seed: int | None = None
    ) -> Testset:
        """Return a test set with more rows; new questions that nearly repeat an existing question are rejected.

        The new rows start from passages that no existing row uses, as long as there are such passages.

        Args:
            testset: the test set, whose rows stay as they are.
            size: number of rows to add; by default the `size` of the generator.
            documents: as for `generate`; by default the documents from which the test set was generated. Required for a
                test set that was loaded from a file.
            seed: random seed; by default the `seed` of the generator.

        Returns:
            A new test set: the rows of `testset`, then the new rows. Its `changes` maps "kept" to the ids of the
            existing rows and "added" to the ids of the new rows.

        Raises:
            ConfigError: if there are no documents, or they hold no text.
            JournalError: if the journal cannot be read or written.
        """
        generation = self._new_extension(testset, size, documents, seed)
        return extended(testset, generation.collect({}, allow_empty=True))

    async def aextend(
        self, testset: Testset, size: int | None = None, *, documents: Any = None, seed: int | None = None
    ) -> Testset:
        """Like `extend`, but calls the models' async methods on the caller's event loop."""
        generation = self._new_extension(testset, size, documents, seed)
        return extended(testset, await generation.acollect({}, allow_empty=True))

    def adopt(self, questions: Any, documents: Any = None, *, redact: Redact | None = None) -> Testset:
        """Make rows of questions that users asked: from logs, support tickets or scored runs in production.

        Equal questions become one row, and so do questions whose vectors have a cosine of at least `dedupe`;
        `metadata["asked"]` counts the questions of a row. The critic reviews each question with the nearest passages
        and selects the passages that the question needs, the writer answers from these, and the critic verifies the
        answer: four calls. A question that the documents do not answer becomes a row with `answerable=False`: two
        calls. A question that is not understood without its conversation is rejected. The passages are embedded, unless
        there is a vector store.

        Args:
            questions: texts, samples, mappings or rows of a report, such as
                `[row for row in Report.load("live.db").rows if ...]` for a file of `SqliteSink`, in which
                `RagEvalCallback` stores scored runs; or the path of a file of samples.
            documents: as for `generate`; None if the generator has a `vectorstore`, whose passages are used.
            redact: function that removes names and other personal data: from a str to a str for texts, from a Sample to
                a Sample otherwise. It is called first, so that no model, journal or file sees what it removes.

        Returns:
            The test set, with rows of the evolution "adopted", in the order of the questions.

        Raises:
            ConfigError: if there are no questions, or the documents hold no text.
            EmptyTestsetError: if no question was adopted, unless `allow_empty` is set.
            SampleError: if an item cannot be read as a sample.
        """
        adoption = self._new_adoption(questions, documents, redact)
        generation = adoption.generation
        with generation.open(len(adoption.questions), "questions adopted") as progress:
            attempts = drive(adoption.attempts(), generation.embed_run, {})
            generation.settle(attempts, adoption.results.append, progress)
        return adoption.testset()

    async def aadopt(self, questions: Any, documents: Any = None, *, redact: Redact | None = None) -> Testset:
        """Like `adopt`, with the same arguments and errors, but calls the models' async methods on the event loop."""
        adoption = self._new_adoption(questions, documents, redact)
        generation = adoption.generation
        with generation.open(len(adoption.questions), "questions adopted") as progress:
            attempts = await adrive(adoption.attempts(), generation.embed_run, {})
            await generation.asettle(attempts, adoption.results.append, progress)
        return adoption.testset()

    def refresh(self, testset: Testset, documents: Any) -> Testset:
        """Adapt a test set to changed documents, in worker threads; see `Testset.refresh`.

        Ctrl-C before all rows are checked raises KeyboardInterrupt. With a `journal`, a repetition of the call then
        pays only for the rows that were not checked.
        """
        refresh = self._new_refresh(testset, documents)
        with refresh.generation.open(len(refresh.attempts), "rows checked") as progress:
            refresh.generation.settle(refresh.attempts, refresh.record, progress)
        refresh.plan_rows()
        return refresh.result(refresh.generation.collect({}, allow_empty=True))

    async def arefresh(self, testset: Testset, documents: Any) -> Testset:
        """Like `refresh`, but calls the models' async methods on the caller's event loop."""
        refresh = self._new_refresh(testset, documents)
        with refresh.generation.open(len(refresh.attempts), "rows checked") as progress:
            await refresh.generation.asettle(refresh.attempts, refresh.record, progress)
        refresh.plan_rows()
        return refresh.result(await refresh.generation.acollect({}, allow_empty=True))

    def stream(  # type: ignore[override]
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        size: int | None = None,
        seed: int | None = None,
        **_: Any,
    ) -> Generator[TestsetRow]:
        """Yield each row when it is finished. In a chain, the next step gets the whole `Testset` instead.

        Args:
            input: documents, as for `generate`.
            config: config of LangChain, such as callbacks.
            size: number of rows; by default the `size` of the generator.
            seed: random seed; by default the `seed` of the generator.
        """
        config = ensure_config(config)
        run = get_callback_manager_for_config(config).on_chain_start(None, input, **_run_of(self, config))
        try:
            generation = self._new_generation(input, size, seed)
            child = patch_config(config, callbacks=run.get_child())
            with closing(generation.rows(child, one_by_one=True)) as rows:
                yield from rows
            testset = generation.testset()
        except BaseException as error:
            run.on_chain_error(error)
            raise
        run.on_chain_end(testset)

    async def astream(  # type: ignore[override]
        self,
        input: Any,
        config: RunnableConfig | None = None,
        *,
        size: int | None = None,
        seed: int | None = None,
        **_: Any,
    ) -> AsyncGenerator[TestsetRow]:
        """Like `stream`, but calls the models' async methods on the caller's event loop."""
        config = ensure_config(config)
        run = await get_async_callback_manager_for_config(config).on_chain_start(None, input, **_run_of(self, config))
        try:
            generation = self._new_generation(input, size, seed)
            child = patch_config(config, callbacks=run.get_child())
            async with aclosing(generation.arows(child, one_by_one=True)) as rows:
                async for row in rows:
                    yield row
            testset = generation.testset()
        except BaseException as error:
            await run.on_chain_error(error)
            raise
        await run.on_chain_end(testset)

    def transform(
        self, input: Iterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> Generator[Testset]:
        """Yield the whole test set once, when it is complete, for the next step of a chain that is streamed."""
        if chunks := list(input):
            yield self.invoke(reduce(add, chunks), config, **kwargs)

    async def atransform(
        self, input: AsyncIterator[Any], config: RunnableConfig | None = None, **kwargs: Any
    ) -> AsyncGenerator[Testset]:
        """Like `transform`, but calls the models' async methods on the caller's event loop."""
        if chunks := [chunk async for chunk in input]:
            yield await self.ainvoke(reduce(add, chunks), config, **kwargs)

    def _do(self, input: Any, config: RunnableConfig) -> Testset:
        return self._new_generation(input, None, None).collect(config)

    async def _ado(self, input: Any, config: RunnableConfig) -> Testset:
        return await self._new_generation(input, None, None).acollect(config)

    def _new_generation(
        self, documents: Any, size: int | None, seed: int | None, present: Sequence[TestsetRow] = ()
    ) -> Generation:
        size, seed = self._draw(size, seed)
        evolutions = allocate_rows(self.distribution, size, seed, tree=self.tree)
        return Generation(self, self._filled_docstore(documents, size + len(present)), seed, evolutions, present)

    def _new_extension(self, testset: Testset, size: int | None, documents: Any, seed: int | None) -> Generation:
        origin = _testset(testset)._origin
        if documents is None and origin is None:
            raise ConfigError(
                "extend needs the documents, which a test set from a file does not know: "
                "generator.extend(testset, size, documents=documents)"
            )
        known = origin.store if origin and documents is None else documents
        return self._new_generation(known, size, seed, testset.rows)

    def _new_refresh(self, testset: Testset, documents: Any) -> Refresh:
        store = self._filled_docstore(check_all_documents(documents), len(_testset(testset)))
        return Refresh(testset, Generation(self, store, self.seed, present=testset.rows))

    def _new_adoption(self, questions: Any, documents: Any, redact: Redact | None) -> Adoption:
        samples = read_questions(questions, redact)
        if documents is None and self.vectorstore is None:
            raise ConfigError("adopt needs the documents, or a generator with a vectorstore")
        store = self._new_docstore([]) if documents is None else self._filled_docstore(check_all_documents(documents))
        return Adoption(Generation(self, store, self.seed), samples)

    def _draw(self, size: int | None, seed: int | None) -> tuple[int, int]:
        """Return size and seed of a call, by default those of the generator."""
        chosen = self.size if size is None else size, self.seed if seed is None else seed
        _check_draw(*chosen)
        return chosen

    def _filled_docstore(self, documents: Any, size: int = 0) -> Docstore:
        """Return documents as passages, which are shorter if there are too few of them for `size` rows."""
        store = documents if isinstance(documents, Docstore) else self._new_docstore(documents)
        if not store.passages:
            raise ConfigError("the documents hold no text to ask about")
        if store is documents or self.splitter is not None or self.vectorstore is not None:
            return store
        drawn = passages_in_focus(store.passages, self.focus)
        if _ROWS_OF_A_PASSAGE * len(drawn) >= size:
            return store
        longest = _ROWS_OF_A_PASSAGE * sum(len(passage.text) for passage in drawn) // size
        return self._new_docstore(store.documents, default_splitter(max(longest, _SHORTEST_PASSAGE)))

    def _new_docstore(self, documents: Any, splitter: Any = None) -> Docstore:
        splitter = splitter or self.splitter
        return Docstore(documents, splitter=splitter, embeddings=self.embeddings, vectorstore=self.vectorstore)


def _run_of(generator: TestsetGenerator, config: RunnableConfig) -> dict[str, Any]:
    """Return name and id of a run in traces; the id is removed from the config, since child runs need others."""
    return {"name": config.get("run_name") or generator.get_name(), "run_id": config.pop("run_id", None)}


def _extend(
    graph: Graph, ends: Sequence[Node], steps: Sequence[CandidateStep], config: RunnableConfig | None
) -> Sequence[Node]:
    """Add the graphs of steps in sequence after some nodes, and return the last nodes."""
    for step in steps:
        inner = step.get_graph(config)
        inner.trim_first_node()
        inner.trim_last_node()
        first, last = graph.extend(inner)
        if first and last:
            for node in ends:
                graph.add_edge(node, first)
            ends = [last]
    return ends


def _testset(testset: Any) -> Testset:
    if not isinstance(testset, Testset):
        raise ConfigError(f"testset must be a Testset, got {type(testset).__name__}")
    return testset


def _with_language(judge: JudgeLike, language: str) -> Judge:
    """Return the judge with prompts in a language; "auto" leaves its own setting."""
    judge = Judge.of(judge)
    if language == "auto":
        return judge
    check_choice("language", language, ["auto", *sorted(languages())])
    return in_language(judge, language)


def _check_draw(size: Any, seed: Any) -> None:
    check_number("size must be a whole number of at least 1", size, lambda n: n >= 1, whole=True)
    check_number("seed must be a whole number", seed, whole=True)
