"""Settings of a generator, and the steps that make a row of a test set; a user may replace each of these steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_core.runnables import Runnable
from langchain_core.vectorstores import VectorStore
from pydantic import ConfigDict, InstanceOf

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge
from langchain_rageval.run.budget import Budget
from langchain_rageval.run.retry import RetryPolicy
from langchain_rageval.run.run import Traced
from langchain_rageval.testset.candidate import Candidate, CandidateStep
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolutions import Branch, parts_of
from langchain_rageval.testset.filters import closed_book_filter, evolution_filter, passage_filter, question_filter
from langchain_rageval.testset.testset import Testset
from langchain_rageval.testset.user_step import UserStep, user_step
from langchain_rageval.testset.writing import answer, check_answer, compress, find_passages, keyphrases, seed_question

UserRunnable = Runnable[Candidate, Candidate] | Callable[[Candidate], Any]


class GeneratorSettings(Traced[Any, Testset]):
    """Models and options of a `TestsetGenerator` (see its arguments), and the steps built from these options."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    writer: InstanceOf[Judge]
    critic: InstanceOf[Judge]
    embeddings: InstanceOf[Embeddings]
    distribution: Mapping[Any, float]
    size: int
    seed: int
    tree: bool
    splitter: Any
    vectorstore: InstanceOf[VectorStore] | None
    passage_threshold: float
    max_rewrites: int
    dedupe: float | None
    closed_book: InstanceOf[Judge] | None
    focus: Any
    stratify: str
    allow_empty: bool
    steps: Mapping[str, UserStep]
    max_concurrency: int
    timeout: float | None
    retry: InstanceOf[RetryPolicy]
    journal: Any
    budget: InstanceOf[Budget] | None
    progress: bool
    price: Any

    @property
    def judges(self) -> Sequence[Judge]:
        """Models that the packaged steps call: writer, critic and, if set, `closed_book` (answers from memory)."""
        return [judge for judge in (self.writer, self.critic, self.closed_book) if judge is not None]


_BUILDERS: Mapping[str, Callable[[GeneratorSettings, Docstore | None], CandidateStep | None]] = {
    "passage_filter": lambda given, _: passage_filter(given.critic, threshold=given.passage_threshold),
    "keyphrases": lambda given, _: keyphrases(given.writer),
    "seed_question": lambda given, _: seed_question(given.writer),
    "question_filter": lambda given, store: question_filter(
        given.critic, given.writer, store, max_rewrites=given.max_rewrites
    ),
    "compress": lambda given, _: compress(given.writer),
    "evolution_filter": lambda given, _: evolution_filter(given.critic),
    "find_passages": lambda given, _: find_passages(given.critic),
    "answer": lambda given, _: answer(given.writer),
    "check_answer": lambda given, _: check_answer(given.critic),
    "closed_book_filter": lambda given, _: closed_book_filter(given.closed_book) if given.closed_book else None,
}
STEP_NAMES = tuple(_BUILDERS)
_KNOWN = f"the steps are {', '.join(STEP_NAMES)}"


def steps_before(settings: GeneratorSettings, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps before the first evolution, in order: grade the passage, choose a key phrase, write, review.

    `docstore` supplies the neighbouring passages that rewrites add; None if rewrites add none.
    """
    services = _services(settings, docstore)
    return [*_steps(settings, docstore, STEP_NAMES[:3], services).values(), services["question_filter"]]


def steps_of_branch(settings: GeneratorSettings, branch: Branch, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps of a branch (sequence of evolutions), in order: one for each evolution and each user step.

    The step of an evolution includes its filters. `docstore` supplies the passages that evolutions add.
    """
    services = _services(settings, docstore)
    return [part.with_services(services) for part in parts_of(branch)]


def steps_after(settings: GeneratorSettings, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps after the last evolution, in order: find the passages, answer, check the answer.

    With `closed_book`, a filter follows: it rejects questions that a model answers from memory. `docstore` is only
    passed on to the user's own steps.
    """
    return [*_steps(settings, docstore, STEP_NAMES[6:], _services(settings, docstore)).values()]


def _services(settings: GeneratorSettings, docstore: Docstore | None) -> dict[str, Any]:
    """Return what evolutions and user steps receive: models, docstore, and the filters of an evolution."""
    models = {"writer": settings.writer, "critic": settings.critic, "docstore": docstore}
    return models | _steps(settings, docstore, STEP_NAMES[3:6], models)


def _steps(
    settings: GeneratorSettings, docstore: Docstore | None, names: Iterable[str], services: Mapping[str, Any]
) -> dict[str, CandidateStep]:
    """Return the user's own steps of some names, which receive the services, or else the packaged ones."""
    own = {name: step.with_services(services) for name, step in settings.steps.items()}
    built = {name: own.get(name) or _BUILDERS[name](settings, docstore) for name in names}
    return {name: step for name, step in built.items() if step is not None}


def steps_of_user(steps: Mapping[str, UserRunnable] | None) -> dict[str, UserStep]:
    """Return a mapping from names of packaged steps to the user's steps that replace them, wrapped as `UserStep`.

    `steps` is the argument of `TestsetGenerator`: a mapping from names such as "answer" to Runnables or functions.

    Raises:
        ConfigError: if a name is unknown, or a step is neither a Runnable nor a function.
    """
    if not isinstance(steps, Mapping | None):
        raise ConfigError(f"steps must map names to Runnables, got {type(steps).__name__}: {_KNOWN}")
    if unknown := [name for name in steps or () if name not in STEP_NAMES]:
        raise ConfigError(f"steps has no step {unknown[0]!r}: {_KNOWN}")
    return {name: user_step(step, option=f"steps[{name!r}]") for name, step in (steps or {}).items()}
