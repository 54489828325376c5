"""Filters: steps that reject unsuitable passages, questions and evolved questions, or have a question rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from langchain_rageval.errors import check_number
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.run.requests import Operation
from langchain_rageval.steps.judge_step import JudgeStep
from langchain_rageval.testset.candidate import AskingStep, Candidate, Objection, Reason, ask_step, prompt_step
from langchain_rageval.testset.docstore import Docstore
from langchain_rageval.testset.evolve import MULTI_CONTEXT
from langchain_rageval.testset.objections import objection_to_question
from langchain_rageval.text.words import stems_of

_CRITERIA = ("clarity", "depth", "structure", "relevance")
_LOWEST, _HIGHEST = 1, 3


class PassageFilter(AskingStep):
    """Step that asks the critic (a model) to grade the drawn passage, and rejects the candidate if the grade is low.

    The critic grades clarity, depth, structure and relevance of the passage, each from 1 (lowest) to 3. The candidate
    is rejected if the mean of the four grades is below `threshold`, also from 1 to 3.
    """

    threshold: float

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic to grade the passage, in one call; reject the candidate if the grade is below `threshold`.

        If the candidate has a grade from an earlier attempt, that grade is compared with `threshold`, without a call.
        """
        if state.grade is not None:
            return state if state.grade >= self.threshold else state.reject(Reason.PASSAGE_REJECTED)
        answer = yield from ask_step(self.model_step, {"passage": state.drawn_text}, state.drawn_text, _objection)
        grade = fmean(getattr(answer, name) for name in _CRITERIA)
        accepted = grade >= self.threshold
        graded = state.replace(grade=grade).with_trial("passage", accepted=accepted, feedback=answer.reason)
        return graded if accepted else graded.reject(Reason.PASSAGE_REJECTED)


def passage_filter(critic: JudgeLike, *, threshold: float = 2.0) -> AskingStep:
    """Return the step that rejects passages whose grade is below a threshold.

    Args:
        critic: model that grades clarity, depth, structure and relevance of the passage, each 1, 2 or 3; one call.
        threshold: minimum mean of the four grades, from 1 to 3.

    Raises:
        ConfigError: if `threshold` is not a number from 1 to 3.
    """
    expected = f"threshold must be a number from {_LOWEST} to {_HIGHEST}"
    check_number(expected, threshold, lambda n: _LOWEST <= n <= _HIGHEST)
    return PassageFilter.of("grade_passage", critic, threshold=threshold)


def _objection(answer: Any) -> str | None:
    invalid = [name for name in _CRITERIA if not _LOWEST <= getattr(answer, name) <= _HIGHEST]
    return f"{', '.join(invalid)}: each grade is {_LOWEST}, 2 or {_HIGHEST}" if invalid else None


class QuestionFilter(AskingStep):
    """Step that accepts a question that is clear on its own and answered by its passages, or else has it rewritten.

    The question is rejected if `max_rewrites` rewrites do not help, or at once if `rewrite_step` is None. A rewrite may
    add a neighbouring passage of `docstore`. `turns_step` reviews a follow-up (a question with earlier turns) together
    with the turns. A follow-up must depend on the turns, ask the same as its standalone form, and not be answered by
    the turns already. Otherwise it is rejected without a rewrite.
    """

    rewrite_step: JudgeStep | None
    turns_step: JudgeStep
    docstore: Docstore | None
    max_rewrites: int

    @property
    def judges(self) -> Sequence[Judge]:
        """Critic that reviews the question, and the writer that rewrites it, if there is a writer."""
        return [*super().judges, *(self.rewrite_step.judges if self.rewrite_step else ())]

    @property
    def instrument(self) -> Mapping[str, Any]:
        """Configuration of the reviews ("step", "asks", for follow-ups also "turns") and of the rewriting ("rewrites").

        A journal (store of finished steps) reuses a stored result only if this configuration is the same.
        """
        rewrites = self.rewrite_step and self.rewrite_step.description
        return {**super().instrument, "rewrites": rewrites, "turns": self.turns_step.description}

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Accept, rewrite or reject the question after a review by the critic: one call, two more for each rewrite.

        A question is accepted if it is clear on its own and the passages answer it or, if `answerable` is False, do
        not. A follow-up (question with earlier turns) is not rewritten.
        """
        if state.chat_history:
            turns = [{"role": turn.role, "text": turn.text} for turn in state.chat_history]
            inputs: dict[str, Any] = {"turns": turns, "question": state.question, "standalone": state.standalone}
            review = yield from ask_step(self.turns_step, inputs, state.drawn_text)
            accepted = review.depends and review.same and review.open
            state = state.with_verdict(accepted, "" if accepted else review.feedback)
            return state if accepted else state.reject(Reason.QUESTION_REJECTED)
        for rewrites_left in reversed(range(self.max_rewrites + 1)):
            inputs = {"question": state.question, "passages": state.shown(state.nearest)}
            review = yield from ask_step(self.model_step, inputs, state.drawn_text)
            accepted = review.standalone and review.answerable == state.answerable
            state = state.with_verdict(accepted, "" if accepted else review.feedback)
            if accepted:
                return state
            if review.standalone and not state.answerable:
                return state.reject(Reason.ANSWERED_BY_DOCUMENTS)  # no rewording makes it unanswerable
            if self.rewrite_step is None or not rewrites_left:
                break
            state = yield from self._rewrite(state, self.rewrite_step, review)
            if state.rejected:
                return state
        return state.reject(Reason.QUESTION_REJECTED)

    def _rewrite(self, state: Candidate, step: JudgeStep, review: Any) -> Operation[Candidate]:
        """Have the question rewritten by the feedback of a review; first add a neighbouring passage if none answers."""
        if state.answerable and not review.answerable and self.docstore is not None:
            drawn, used_ids = state.passages[0], {passage.id for passage in state.passages}
            neighbours = [self.docstore.previous(drawn), self.docstore.next(drawn)]
            unused = [passage for passage in neighbours if passage and passage.id not in used_ids]
            state = state.replace(passages=[*state.passages, *unused[:1]])
        inputs = {"question": state.question, "feedback": review.feedback, "passages": state.shown()}
        answer = yield from ask_step(step, inputs, state.drawn_text, objection_to_question(state))
        if isinstance(answer, Objection):
            return state.refuse("rewrite", answer)
        return state.with_question(answer.question, "rewrite")


def question_filter(
    critic: JudgeLike, writer: JudgeLike | None = None, docstore: Docstore | None = None, *, max_rewrites: int = 2
) -> AskingStep:
    """Return the step that accepts questions that stand on their own and are answered by their passages.

    Args:
        critic: model that reviews the question; one call for the first wording and for each rewrite.
        writer: model that rewrites a rejected question by the critic's feedback; None rejects the question without a
            rewrite.
        docstore: source of the neighbouring passage that is added if the passages do not answer the question.
        max_rewrites: maximum number of rewrites of a question.

    Raises:
        ConfigError: if `max_rewrites` is not a whole number of at least 0.
    """
    check_number("max_rewrites must be a whole number of at least 0", max_rewrites, lambda n: n >= 0, whole=True)
    return QuestionFilter.of(
        "review_question",
        critic,
        turns_step=prompt_step("review_follow_up", critic),
        rewrite_step=None if writer is None else prompt_step("reword_question", writer),
        docstore=docstore,
        max_rewrites=max_rewrites,
    )


class EvolutionFilter(AskingStep):
    """Step that rejects a question that is neither deeper nor broader than its parent (the question before it).

    A question is accepted without this test if its last evolution, `multi_context`, added passages that share an entity
    with the first one. The later step `find_passages` rejects such a question unless all these passages are needed.
    """

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Reject the question unless the critic finds it deeper or broader than `parent`, the old one: one call.

        The question is accepted without a call if it has no parent. The same holds after the evolution `multi_context`
        if that evolution added passages that share an entity with the first passage.
        """
        just_bridged = "bridge" in state.metadata and state.evolution.split("+")[-1] == MULTI_CONTEXT
        if not state.parent or just_bridged:
            return state
        inputs = {"parent": state.parent, "question": state.question}
        answer = yield from ask_step(self.model_step, inputs, state.drawn_text)
        if answer.deeper or answer.broader:
            return state
        return state.with_verdict(False, answer.reason).reject(Reason.NOT_EVOLVED)


def evolution_filter(critic: JudgeLike) -> AskingStep:
    """Return the step that accepts questions that are deeper or broader than their parent.

    Args:
        critic: model that compares the two questions; one call.
    """
    return EvolutionFilter.of("compare_questions", critic)


class ClosedBookFilter(AskingStep):
    """Step that rejects a question if a model answers it correctly from memory, without reading the documents.

    Word stems and numbers that are in the reference answer but not in the question are counted. The model's answer is
    correct if it contains at least the share `threshold` of these, above 0 and at most 1.
    """

    threshold: float

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask a model the question without passages; reject the question if the model's answer matches the reference.

        One call; no call for an unanswerable question, which is accepted.
        """
        if not state.answerable or not state.reference:
            return state
        question = state.standalone_question
        reply = yield from ask_step(self.model_step, {"question": question}, state.drawn_text)
        expected = stems_of(state.reference) - stems_of(question)
        share = len(expected & stems_of(reply.answer)) / len(expected) if expected else 0.0
        if share < self.threshold:
            return state
        trial = state.with_trial("closed_book", accepted=False, feedback=reply.answer)
        return trial.reject(Reason.KNOWN_WITHOUT_DOCUMENTS)


def closed_book_filter(judge: JudgeLike, *, threshold: float = 0.8) -> AskingStep:
    """Return the step that rejects questions that can be answered without the documents.

    Args:
        judge: model that answers from memory; one call.
        threshold: minimum share, above 0 and at most 1, of the expected word stems and numbers that a correct answer
            contains. Expected are those that are in the reference answer but not in the question.

    Raises:
        ConfigError: if `threshold` is out of range.
    """
    check_number("threshold must be a number above 0 and at most 1", threshold, lambda n: 0 < n <= 1)
    return ClosedBookFilter.of("answer_unaided", judge, threshold=threshold)
