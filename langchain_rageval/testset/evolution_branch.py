"""Evolution branch: one evolution followed by its filters, repeated once if the question did not evolve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.testset.candidate import NOT_EVOLVED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.compress import compress
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolution_filter import evolution_filter
from langchain_rageval.testset.evolutions import Kind, evolve
from langchain_rageval.testset.question_filter import question_filter

_TRIES = 2


class EvolutionBranch(CandidateStep):
    """Step that evolves a question until it is deeper or broader than its parent question, at most twice.

    The second try starts from the question of the first one, because the same request would return the same question.
    Both are compared with the same parent.
    """

    parts: tuple[CandidateStep, ...]

    @property
    def judges(self) -> Sequence[Judge]:
        """Writers and critics that the parts call."""
        return [judge for part in self.parts for judge in part.judges]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of the steps of this branch: everything that affects which candidates they return."""
        return {"step": self.get_name(), "parts": [part.description for part in self.parts]}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judges do not share endpoint capabilities with the judges of this branch."""
        return self.model_copy(update={"parts": tuple(part.with_fresh_capabilities() for part in self.parts)})

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Rewrite the question by the evolution and filter the result, at most twice.

        A try takes four calls: evolve, compress, review, compare; two calls if the evolution only rephrases.
        """
        parent = state
        evolve_question, *filters = self.parts
        for _ in range(_TRIES):
            state = yield from evolve_question.work(state)
            state = yield from _run_steps(filters, state.replace(parent=parent.question))
            if state.rejected != NOT_EVOLVED:
                return state
            state = state.replace(rejected=None, evolution=parent.evolution)
        return state.reject(NOT_EVOLVED)


def evolution_branch(
    kind: Kind, writer: JudgeLike, critic: JudgeLike, docstore: Docstore | None = None, *, max_rewrites: int = 2
) -> CandidateStep:
    """Return the step that applies an evolution and then `compress`, `question_filter` and `evolution_filter`.

    An evolution that only rephrases the question (`kind.asks_more` is False) is followed by `question_filter` alone.

    Args:
        kind: evolution to apply.
        writer: model that evolves, compresses and rewrites the question.
        critic: model that reviews and compares questions.
        docstore: source of near and neighbouring passages.
        max_rewrites: maximum number of rewrites of a rejected question.
    """
    review = question_filter(critic, writer, docstore, max_rewrites=max_rewrites)
    parts = [evolve(kind, writer, docstore), review]
    if kind.asks_more:
        parts = [parts[0], compress(writer), review, evolution_filter(critic)]
    return EvolutionBranch(name=kind.name, parts=tuple(parts))


def _run_steps(steps: Iterable[CandidateStep], state: Candidate) -> Operation[Candidate]:
    """Run steps in order until one rejects the candidate."""
    for step in steps:
        if state.rejected:
            break
        state = yield from step.work(state)
    return state
