"""Candidate: a question on its way into a test set, with everything that happened to it."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from langchain_rageval.data.schema import InputModel
from langchain_rageval.testset.passage import Passage

PASSAGE_REJECTED = "passage rejected"
NO_KEYPHRASE = "no key phrase left"
QUESTION_REJECTED = "question rejected"
NO_NEAR_PASSAGE = "no passage is near enough"
NOT_EVOLVED = "not evolved"
NOT_IN_PASSAGES = "no passage answers it"
NOT_ALL_NEEDED = "not all passages are needed"
NOT_ANSWERED = "not answerable from its passages"
ANSWERED_AFTER_ALL = "the documents answer it"
KNOWN_WITHOUT = "known without the documents"
DUPLICATE = "near-duplicate"


class Trial(InputModel):
    """One thing that was tried.

    Attributes:
        kind: what it was: "passage", "seed", "given", "rewrite", "compress", the name of an evolution, or of a filter.
        question: as it stood then; "" before there was one.
        accepted: whether it was kept.
        feedback: what was said of it.
    """

    kind: str
    question: str = ""
    accepted: bool = True
    feedback: str = ""


class Candidate(InputModel):
    """A question in the making. Every step takes one and gives one; what was rejected passes through untouched.

    Attributes:
        passages: those that the question is about, the drawn one first.
        question: as it stands; "" before it is written.
        parent: the question that the last evolution started from.
        evolution: names of the evolutions it went through, joined by "+"; "simple" without any.
        answerable: whether the passages are meant to answer it.
        grade: of the drawn passage, mean of four from 1 to 3; None before it is graded.
        keyphrases: of the drawn passage.
        keyphrase: the one that the question is about; "" for the first of them.
        draw: how often the passage was drawn before; each time another key phrase is taken.
        seed: of the run.
        reference: the right answer, once it is written.
        history: what was tried, in order.
        rejected: why it is of no use, in English; None while it is.
    """

    passages: list[Passage]
    question: str = ""
    parent: str = ""
    evolution: str = "simple"
    answerable: bool = True
    grade: float | None = None
    keyphrases: list[str] = Field(default_factory=list)
    keyphrase: str = ""
    draw: int = 0
    seed: int = 0
    reference: str | None = None
    history: list[Trial] = Field(default_factory=list)
    rejected: str | None = None

    def but(self, **changes: object) -> Self:
        """The same with some fields changed."""
        return self.model_copy(update=changes)

    def tried(self, kind: str, *, accepted: bool = True, feedback: str = "") -> Self:
        """The same with one more trial of the question as it stands; see `Trial` for `kind`, `accepted`, `feedback`."""
        trial = Trial(kind=kind, question=self.question, accepted=accepted, feedback=feedback)
        return self.but(history=[*self.history, trial])

    def asking(self, question: str, kind: str) -> Self:
        """The same with another question, whose acceptance is still open."""
        return self.but(question=question.strip()).tried(kind)

    def judged(self, accepted: bool, feedback: str) -> Self:
        """The same with a verdict on the last trial, or, of a question that no step has written, on that question."""
        if not self.history or self.history[-1].question != self.question:
            return self.tried("given", accepted=accepted, feedback=feedback)
        last = self.history[-1].model_copy(update={"accepted": accepted, "feedback": feedback})
        return self.but(history=[*self.history[:-1], last])

    def reject(self, reason: str) -> Self:
        """The same, of no use any more."""
        return self.but(rejected=reason)
