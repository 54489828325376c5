"""Settings of a generator, and the steps that make a row of a test set, each of which the user may replace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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

STEP_NAMES = (
    *("passage_filter", "keyphrases", "seed_question", "question_filter", "compress"),
    *("evolution_filter", "find_passages", "answer", "check_answer", "closed_book_filter"),
)
_KNOWN = f"the steps are {', '.join(STEP_NAMES)}"


class GeneratorSettings(Traced[Any, Testset]):
    """Models and options of a `TestsetGenerator`, described there, and the steps that are built from them."""

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
        """Writer, critic, and the model that answers from memory, if there is one."""
        return [judge for judge in (self.writer, self.critic, self.closed_book) if judge is not None]


def steps_before(settings: GeneratorSettings, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps up to the reviewed first question, in order."""
    services = _services(settings, docstore)
    return [
        _own(settings, "passage_filter", services)
        or passage_filter(settings.critic, threshold=settings.passage_threshold),
        _own(settings, "keyphrases", services) or keyphrases(settings.writer),
        _own(settings, "seed_question", services) or seed_question(settings.writer),
        services["question_filter"],
    ]


def steps_of_branch(settings: GeneratorSettings, branch: Branch, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps of a branch: one for each evolution with its filters, and the user steps."""
    services = _services(settings, docstore)
    return [part.with_services(services) for part in parts_of(branch)]


def steps_after(settings: GeneratorSettings, docstore: Docstore | None) -> list[CandidateStep]:
    """Return the steps after the last evolution, in order."""
    services = _services(settings, docstore)
    closed_book = _own(settings, "closed_book_filter", services) or (
        None if settings.closed_book is None else closed_book_filter(settings.closed_book)
    )
    return [
        _own(settings, "find_passages", services) or find_passages(settings.critic),
        _own(settings, "answer", services) or answer(settings.writer),
        _own(settings, "check_answer", services) or check_answer(settings.critic),
        *([] if closed_book is None else [closed_book]),
    ]


def _own(settings: GeneratorSettings, name: str, services: Mapping[str, Any]) -> CandidateStep | None:
    step = settings.steps.get(name)
    return step and step.with_services(services)


def _services(settings: GeneratorSettings, docstore: Docstore | None) -> dict[str, Any]:
    """Return what evolutions and user steps receive: models, docstore, and the filters of an evolution."""
    models = {"writer": settings.writer, "critic": settings.critic, "docstore": docstore}
    review = question_filter(settings.critic, settings.writer, docstore, max_rewrites=settings.max_rewrites)
    built = {
        "compress": compress(settings.writer),
        "question_filter": review,
        "evolution_filter": evolution_filter(settings.critic),
    }
    return models | {name: _own(settings, name, models) or step for name, step in built.items()}


def steps_of_user(steps: Mapping[str, UserRunnable] | None) -> dict[str, UserStep]:
    """Return the own steps of a generator by name.

    Raises:
        ConfigError: if a name is unknown, or a step is neither a Runnable nor a function.
    """
    if not isinstance(steps, Mapping | None):
        raise ConfigError(f"steps must map names to Runnables, got {type(steps).__name__}: {_KNOWN}")
    if unknown := [name for name in steps or () if name not in STEP_NAMES]:
        raise ConfigError(f"steps has no step {unknown[0]!r}: {_KNOWN}")
    return {name: user_step(step, option=f"steps[{name!r}]") for name, step in (steps or {}).items()}
