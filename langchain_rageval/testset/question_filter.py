"""Question filter: review questions and rewrite rejected ones by the critic's feedback (self-refine).

Source of the refinement: Madaan et al. 2023, "Self-Refine: Iterative Refinement with Self-Feedback", arXiv:2303.17651.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from langchain_rageval.errors import ConfigError
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.candidate import ANSWERED_BY_DOCUMENTS, QUESTION_REJECTED, Candidate
from langchain_rageval.testset.candidate_step import (
    CandidateStep,
    ask_step,
    drawn_text,
    numbered_passages,
    prompt_step,
    question_objection,
)
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.passage import Passage


class QuestionFilter(CandidateStep):
    """Accepts a question that is understood without its passages and answered by them; rewrites other questions.

    A question with earlier turns (a follow-up) is reviewed together with them instead: it must depend on them, ask the
    same as its standalone form, and not be answered by them already. It is not rewritten.
    """

    rewrite_step: JudgeStep | None
    turns_step: JudgeStep
    docstore: Docstore | None
    max_rewrites: int

    @property
    def judges(self) -> Sequence[Judge]:
        """Critic, and the writer that rewrites, if there is one."""
        return [*super().judges, *(self.rewrite_step.judges if self.rewrite_step else ())]

    def without_rewrites(self) -> Self:
        """Return a copy that rejects a question instead of rewriting it."""
        return self.model_copy(update={"rewrite_step": None})

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of this step that affects the returned candidates: that of the reviews and of the rewriting."""
        rewrites = self.rewrite_step and self.rewrite_step.description
        return {**super().instrument, "rewrites": rewrites, "turns": self.turns_step.description}

    def with_fresh_capabilities(self) -> Self:
        """Return a copy whose judges do not share endpoint capabilities with the judges of this step."""
        rewrite_step = self.rewrite_step and self.rewrite_step.with_fresh_capabilities()
        steps = {"rewrite_step": rewrite_step, "turns_step": self.turns_step.with_fresh_capabilities()}
        return super().with_fresh_capabilities().model_copy(update=steps)

    def _option_names(self) -> Sequence[str]:
        return ["max_rewrites"]

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic to review the question: one call, and two more for each rewrite."""
        if state.chat_history:
            return (yield from self._review_follow_up(state))
        for rewrites_left in reversed(range(self.max_rewrites + 1 if self.rewrite_step else 1)):
            inputs = {"question": state.question, "passages": numbered_passages([*state.passages, *state.nearest])}
            review = yield from self._ask(inputs, drawn_text(state))
            accepted = review.standalone and review.answerable == state.answerable
            state = state.with_verdict(accepted, "" if accepted else review.feedback)
            if accepted:
                return state
            if review.standalone and not state.answerable:
                return state.reject(ANSWERED_BY_DOCUMENTS)  # no rewording makes it unanswerable
            if rewrites_left:
                state = yield from self._rewrite(state, review.feedback, add_neighbour=not review.answerable)
        return state.reject(QUESTION_REJECTED)

    def _review_follow_up(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic to review the last question of a conversation with its earlier turns: one call."""
        turns = [{"role": turn.role, "text": turn.text} for turn in state.chat_history]
        inputs = {"turns": turns, "question": state.question, "standalone": state.standalone}
        review = yield from ask_step(self.turns_step, inputs, drawn_text(state))
        accepted = review.depends and review.same and review.open
        state = state.with_verdict(accepted, "" if accepted else review.feedback)
        return state if accepted else state.reject(QUESTION_REJECTED)

    def _rewrite(self, state: Candidate, feedback: str, *, add_neighbour: bool) -> Operation[Candidate]:
        """Ask the writer to rewrite the question; if the passages do not answer it, first add a neighbouring one."""
        neighbour = self._find_neighbour(state) if add_neighbour and state.answerable else None
        if neighbour:
            state = state.replace(passages=[*state.passages, neighbour])
        inputs = {"question": state.question, "feedback": feedback, "passages": numbered_passages(state.passages)}
        answer = yield from ask_step(self.rewrite_step, inputs, drawn_text(state), question_objection)
        return state.with_question(answer.question, "rewrite")

    def _find_neighbour(self, state: Candidate) -> Passage | None:
        if self.docstore is None:
            return None
        drawn, used_ids = state.passages[0], {passage.id for passage in state.passages}
        neighbours = (self.docstore.previous(drawn), self.docstore.next(drawn))
        return next((passage for passage in neighbours if passage and passage.id not in used_ids), None)


def question_filter(
    critic: JudgeLike, writer: JudgeLike | None = None, docstore: Docstore | None = None, *, max_rewrites: int = 2
) -> CandidateStep:
    """Return the step that accepts questions that stand on their own and are answered by their passages.

    Args:
        critic: model that reviews; one call for each wording.
        writer: model that rewrites a rejected question by the critic's feedback; None rejects it at once.
        docstore: source of the neighbouring passage that is added if the passages do not answer the question.
        max_rewrites: maximum number of rewrites of a question.

    Raises:
        ConfigError: if `max_rewrites` is not a whole number of at least 0.
    """
    if not isinstance(max_rewrites, int) or isinstance(max_rewrites, bool) or max_rewrites < 0:
        raise ConfigError(f"max_rewrites must be a whole number of at least 0, got {max_rewrites!r}")
    return QuestionFilter(
        name="review_question",
        model_step=prompt_step("review_question", critic),
        turns_step=prompt_step("review_follow_up", critic),
        rewrite_step=None if writer is None else prompt_step("reword_question", writer),
        docstore=docstore,
        max_rewrites=max_rewrites,
    )
