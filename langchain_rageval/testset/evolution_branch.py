"""Branch: one evolution with the filters after it, and a second try for what did not evolve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.work import Operation
from langchain_rageval.testset.candidate import NOT_EVOLVED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.compress import compress
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolution_filter import evolution_filter
from langchain_rageval.testset.evolutions import Kind, evolve
from langchain_rageval.testset.question_filter import question_filter

_TRIES = 2


class Branch(CandidateStep):
    """Evolves a question until it is deeper or broader than its parent, each time from where it stands.

    To ask the same again would give the same: a second try starts from the first one's question, and is compared with
    the same parent.
    """

    parts: tuple[CandidateStep, ...]

    @property
    def judges(self) -> Sequence[Judge]:
        """Who is asked."""
        return [judge for part in self.parts for judge in part.judges]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Of its parts."""
        return {"step": self.get_name(), "parts": [part.instrument for part in self.parts]}

    def with_fresh_capabilities(self) -> Self:
        """The same branch of forgetful steps."""
        return self.model_copy(update={"parts": tuple(part.with_fresh_capabilities() for part in self.parts)})

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Four calls when all goes well: evolve, compress, review, compare; two when it is only put in other words."""
        parent = state
        evolves, *filters = self.parts
        for _ in range(_TRIES):
            state = yield from evolves.work(state)
            state = yield from through(filters, state.but(parent=parent.question))
            if state.rejected != NOT_EVOLVED:
                return state
            state = state.but(rejected=None, evolution=parent.evolution)
        return state.reject(NOT_EVOLVED)


def branch(
    kind: Kind, writer: JudgeLike, critic: JudgeLike, docstore: Docstore | None = None, *, max_rewrites: int = 2
) -> CandidateStep:
    """One evolution, then `compress`, `question_filter` and `evolution_filter`.

    A question that is only put in other words is not compressed, and need not ask for more than before.
    """
    reviews = question_filter(critic, writer, docstore, max_rewrites=max_rewrites)
    parts = [evolve(kind, writer, docstore), reviews]
    if kind.asks_more:
        parts = [parts[0], compress(writer), reviews, evolution_filter(critic)]
    return Branch(name=kind.name, parts=tuple(parts))


def through(steps: Iterable[CandidateStep], state: Candidate) -> Operation[Candidate]:
    """A candidate after several steps, or after the one that rejected it."""
    for step in steps:
        if state.rejected:
            break
        state = yield from step.work(state)
    return state
