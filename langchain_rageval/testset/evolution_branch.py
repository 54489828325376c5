"""Evolution branch: one evolution followed by its filters, repeated once if the question did not evolve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from langchain_core.runnables import RunnableConfig, RunnableSequence
from langchain_core.runnables.graph import Graph

from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.testset.candidate import NOT_EVOLVED, QUESTION_REJECTED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep
from langchain_rageval.testset.compress import compress
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolution_filter import evolution_filter
from langchain_rageval.testset.evolve import Kind, evolve
from langchain_rageval.testset.question_filter import QuestionFilter, question_filter

_TRIES = 2


class EvolutionBranch(CandidateStep):
    """Step that evolves a question until the filters accept it, at most twice.

    A question that must become deeper or broader starts its second try from the question of the first one, because the
    same request would return the same question; both are compared with the same parent. A question that is only
    rephrased starts again from its parent, and the writer reads the feedback of the critic. The question filter does
    not rewrite it, which would remove the style.

    Attributes:
        parts: step that evolves the question, then the filters.
        asks_more: True if the question must become deeper or broader.
    """

    parts: tuple[CandidateStep, ...]
    asks_more: bool = True

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

    def get_graph(self, config: RunnableConfig | None = None) -> Graph:
        """Return the graph of the parts in sequence."""
        return RunnableSequence(*self.parts).get_graph(config)

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Rewrite the question by the evolution and filter the result, at most twice.

        A try takes four calls: evolve, compress, review, compare; over a shared entity extract, evolve, compress,
        review. Two calls if the evolution only rephrases.
        """
        parent = state
        evolve_question, *filters = self.parts
        for _ in range(_TRIES):
            state = yield InvokeChild(evolve_question, state)
            state = state.replace(parent=parent.question)
            for step in filters:
                state = state if state.rejected else (yield InvokeChild(step, state))
            if state.rejected != (NOT_EVOLVED if self.asks_more else QUESTION_REJECTED):
                return state
            reason, history = state.rejected, state.history
            again = state.replace(rejected=None, evolution=parent.evolution)
            state = again if self.asks_more else parent.replace(history=history)
        return state.reject(reason)


def evolution_branch(
    kind: Kind,
    writer: JudgeLike,
    critic: JudgeLike,
    docstore: Docstore | None = None,
    *,
    max_rewrites: int = 2,
    steps: Mapping[str, Any] | None = None,
) -> CandidateStep:
    """Return the step that applies an evolution and then `compress`, `question_filter` and `evolution_filter`.

    An evolution that only rephrases the question (`kind.asks_more` is False) is followed by `question_filter` alone,
    without its rewrites.

    Args:
        kind: evolution to apply.
        writer: model that evolves, compresses and rewrites the question.
        critic: model that reviews and compares questions.
        docstore: source of near and neighbouring passages.
        max_rewrites: maximum number of rewrites of a rejected question.
        steps: steps to use instead of new ones, under the names of the three functions above; other keys are ignored.
    """
    steps = steps or {}
    first = evolve(kind, writer, docstore)
    review = steps.get("question_filter") or question_filter(critic, writer, docstore, max_rewrites=max_rewrites)
    if not kind.asks_more:
        review = review.without_rewrites() if isinstance(review, QuestionFilter) else review
        return EvolutionBranch(name=kind.name, parts=(first, review), asks_more=False)
    shorten = steps.get("compress") or compress(writer)
    compare = steps.get("evolution_filter") or evolution_filter(critic)
    return EvolutionBranch(name=kind.name, parts=(first, shorten, review, compare))
