"""Candidate: a question that is being generated, with the history of all attempts."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from langchain_rageval.data.schema import InputModel, Turn
from langchain_rageval.testset.passage import Passage

SIMPLE = "simple"
"""Evolution of a question that no evolution changed."""

# Reasons for rejection. They appear in `Testset.yields` and in journals.
PASSAGE_REJECTED = "passage rejected"
NO_KEYPHRASE = "no key phrase left"
QUESTION_REJECTED = "question rejected"
BLANK_QUESTION = "blank question"
NO_NEAR_PASSAGE = "no passage is near enough"
NO_NUMBERS = "no numbers in the passage"
NOT_EVOLVED = "not evolved"
NOT_IN_PASSAGES = "no passage answers it"
NOT_ALL_NEEDED = "not all passages are needed"
NOT_ANSWERED = "not answerable from its passages"
ANSWERED_BY_DOCUMENTS = "the documents answer it"
KNOWN_WITHOUT_DOCUMENTS = "known without the documents"
DUPLICATE = "near-duplicate"
ANSWER_CHANGED = "the answer has changed"
FAILED = "failed: "  # the class name of an error follows
DROPPED_BY_REVIEWER = "dropped by a reviewer"


class Trial(InputModel):
    """One attempt to draw a passage, or to write, rewrite or check a question; part of the history of the question.

    Attributes:
        kind: step that made the attempt: "passage", "seed", "given", "rewrite", "compress", "review" for a person's
            decision, or the name of an evolution or filter.
        question: text of the question after the attempt; "" before the question is written.
        accepted: True if the attempt was accepted.
        feedback: comment of the critic, or the reason for the rejection.
    """

    kind: str
    question: str = ""
    accepted: bool = True
    feedback: str = ""


class Candidate(InputModel):
    """A question that is being generated.

    Every step takes a candidate and returns a candidate. A rejected candidate passes through all later steps unchanged.

    Attributes:
        passages: passages that the question is about, the drawn one first.
        question: current text of the question; "" before it is written.
        parent: question from which the last evolution started.
        chat_history: earlier turns of the conversation that the question continues, the oldest first; `[]` if there
            are none.
        standalone: the same question as understood without these turns; "" if there are none.
        evolution: names of the evolutions applied so far, your own steps included, joined by "+"; "simple" if there are
            none.
        answerable: True if the passages are meant to answer the question.
        needed: ids of the passages that the answer must need, all of them; `[]` if any passage will do.
        nearest: other passages of the corpus that share most words with a question that is meant to be unanswerable.
            They must not answer it either.
        metadata: metadata that evolutions add to the row, such as `persona`, `style` and `bridge`.
        grade: mean of the four grades of the drawn passage, from 1 to 3; None before it is graded.
        keyphrases: key phrases of the drawn passage.
        keyphrase: key phrase that the question is about; "" selects the first of `keyphrases`.
        draw: number of candidates that were started from the same passage before; each uses another key phrase.
        seed: random seed of the run.
        reference: reference answer; None before it is written.
        tree_id: id of the tree of questions about one fact; "" outside of a tree.
        history: all attempts, in order.
        rejected: reason for the rejection, in English; None if the candidate is not rejected.
    """

    passages: list[Passage] = Field(min_length=1)
    question: str = ""
    parent: str = ""
    chat_history: list[Turn] = Field(default_factory=list)
    standalone: str = ""
    evolution: str = SIMPLE
    answerable: bool = True
    needed: list[str] = Field(default_factory=list)
    nearest: list[Passage] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    grade: float | None = None
    keyphrases: list[str] = Field(default_factory=list)
    keyphrase: str = ""
    draw: int = 0
    seed: int = 0
    reference: str | None = None
    tree_id: str = ""
    history: list[Trial] = Field(default_factory=list)
    rejected: str | None = Field(default=None, min_length=1)

    @property
    def standalone_question(self) -> str:
        """Question as understood without earlier turns: `standalone`, or else `question`."""
        return self.standalone or self.question

    def replace(self, **changes: object) -> Self:
        """Return a copy of the candidate with some fields changed."""
        return self.model_copy(update=changes)

    def with_trial(self, kind: str, *, accepted: bool = True, feedback: str = "") -> Self:
        """Return a copy of the candidate whose history has one more trial (attempt) with the current question.

        Args:
            kind: step that made the attempt.
            accepted: True if the attempt was accepted.
            feedback: comment of the critic, or the reason for the rejection.
        """
        trial = Trial(kind=kind, question=self.question, accepted=accepted, feedback=feedback)
        return self.replace(history=[*self.history, trial])

    def with_question(self, question: str, kind: str) -> Self:
        """Return a copy of the candidate with a new question.

        The history gets a trial (attempt) with the question, which counts as accepted until a step rejects it.
        """
        return self.replace(question=question.strip()).with_trial(kind)

    def with_evolution(self, name: str) -> Self:
        """Return a copy of the candidate whose `evolution` ends with one more name."""
        earlier = [] if self.evolution == SIMPLE else [self.evolution]
        return self.replace(evolution="+".join([*earlier, name]))

    def with_verdict(self, accepted: bool, feedback: str) -> Self:
        """Return a copy of the candidate with a verdict on the current question.

        The verdict changes the last trial. If no step wrote the question, a trial of kind "given" is added instead.
        """
        if not self.history or self.history[-1].question != self.question:
            return self.with_trial("given", accepted=accepted, feedback=feedback)
        trial = self.history[-1].model_copy(update={"accepted": accepted, "feedback": feedback})
        return self.replace(history=[*self.history[:-1], trial])

    @property
    def objection(self) -> str:
        """Feedback of the last trial if it was rejected, else ""."""
        last = self.history[-1] if self.history else None
        return "" if last is None or last.accepted else last.feedback

    def reject(self, reason: str) -> Self:
        """Return a copy of the candidate that is rejected, with the reason in English."""
        return self.replace(rejected=reason)
