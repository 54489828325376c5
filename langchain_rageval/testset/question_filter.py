"""Question filter: whether a question is understood and answered, with a chance to be mended (self-refine).

Source of the refinement: Madaan et al. 2023, "Self-Refine: Iterative Refinement with Self-Feedback", arXiv:2303.17651.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.step import Step
from langchain_rageval.testset.candidate import ANSWERED_AFTER_ALL, QUESTION_REJECTED, Candidate
from langchain_rageval.testset.candidate_step import CandidateStep, ask, asking, blank_question, numbered, text_of
from langchain_rageval.testset.docstore import Docstore


class ReviewQuestion(CandidateStep):
    """Passes on a question that is understood without its passages and answered by them; has others mended."""

    rewrites: Step | None
    docstore: Docstore | None
    max_rewrites: int

    @property
    def judges(self) -> Sequence[Judge]:
        """The critic, and the writer who mends."""
        return [*super().judges, *(self.rewrites.judges if self.rewrites else ())]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """With the writer's."""
        return {**super().instrument, "rewrites": self.rewrites and self.rewrites.instrument}

    def with_fresh_capabilities(self) -> Self:
        """The same step, asking forgetful judges."""
        return (
            super()
            .with_fresh_capabilities()
            .model_copy(update={"rewrites": self.rewrites and self.rewrites.with_fresh_capabilities()})
        )

    def _options(self) -> Sequence[str]:
        return ["max_rewrites"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """One call, and two more for each time the question is mended."""
        for left in reversed(range(self.max_rewrites + 1 if self.rewrites else 1)):
            review = yield from self._ask(
                {"question": state.question, "passages": numbered(state.passages)}, text_of(state)
            )
            good = review.standalone and review.answerable == state.answerable
            state = state.judged(good, "" if good else review.feedback)
            if good:
                return state
            if review.standalone and not state.answerable:
                return state.reject(ANSWERED_AFTER_ALL)  # no wording makes it unanswerable
            if left:
                state = yield from self._mended(state, review.feedback, widen=not review.answerable)
        return state.reject(QUESTION_REJECTED)

    def _mended(self, state: Candidate, feedback: str, *, widen: bool) -> Operation[Candidate]:
        """The question rewritten; with the neighbouring passage, when the passages do not answer it."""
        neighbour = self._neighbour(state) if widen and state.answerable else None
        if neighbour:
            state = state.but(passages=[*state.passages, neighbour])
        inputs = {"question": state.question, "feedback": feedback, "passages": numbered(state.passages)}
        answer = yield from ask(self.rewrites, inputs, text_of(state), blank_question)
        return state.asking(answer.question, "rewrite")

    def _neighbour(self, state: Candidate) -> Any:
        if self.docstore is None:
            return None
        drawn, held = state.passages[0], {passage.id for passage in state.passages}
        beside = (self.docstore.previous(drawn), self.docstore.next(drawn))
        return next((passage for passage in beside if passage and passage.id not in held), None)


def question_filter(
    critic: JudgeLike, writer: JudgeLike | None = None, docstore: Docstore | None = None, *, max_rewrites: int = 2
) -> CandidateStep:
    """The step that lets questions pass that stand on their own and are answered by their passages.

    Args:
        critic: asked once for each wording.
        writer: mends what the critic rejects, by its feedback; without one it is rejected at once.
        docstore: gives the neighbouring passage, which is added when the passages do not answer the question.
        max_rewrites: how often a question is mended.

    Raises:
        ConfigError: if `max_rewrites` is no whole number from 0 on.
    """
    if not isinstance(max_rewrites, int) or isinstance(max_rewrites, bool) or max_rewrites < 0:
        raise ConfigError(f"max_rewrites takes a whole number from 0 on, got {max_rewrites!r}")
    return ReviewQuestion(
        name="review_question",
        asks=asking("review_question", critic),
        rewrites=None if writer is None else asking("rewrite_question", writer),
        docstore=docstore,
        max_rewrites=max_rewrites,
    )
