"""Adoption: make rows of a test set from questions that users asked; the answers come from the documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from langchain_core.runnables import Runnable

from langchain_rageval.data.loading import load_samples
from langchain_rageval.data.schema import Sample
from langchain_rageval.errors import ConfigError
from langchain_rageval.run.requests import InvokeChild, Operation
from langchain_rageval.testset.accepted_questions import AcceptedQuestions
from langchain_rageval.testset.candidate import ADOPTED, AskingStep, Candidate, Reason, ask_step
from langchain_rageval.testset.docstore import embed_passages
from langchain_rageval.testset.generation import Attempt, Generation
from langchain_rageval.testset.testset import Testset

_DOUBTED = frozenset(
    {Reason.NOT_IN_PASSAGES, Reason.NOT_ANSWERED, Reason.ANSWERED_BY_DOCUMENTS}
)  # the review was wrong

Redact = Callable[[Any], Any]
"""Function that removes what must not be stored: from a str to a str, or from a Sample to a Sample."""


def read_questions(questions: Any, redact: Redact | None) -> list[Sample]:
    """Read the questions of users as samples, after removing personal data.

    Args:
        questions: path of a file of samples, or an iterable of texts, samples, mappings, and rows of reports.
        redact: function that removes personal data from each text or sample before any other code reads it; None
            changes nothing.

    Raises:
        ConfigError: if `redact` is not a function or returns another type than it receives, or there are no questions.
        SampleError: if an item cannot be read as a sample.
    """
    if redact is not None and not callable(redact):
        raise ConfigError(
            "redact must be a function, from a text to a text and from a Sample to a Sample, "
            f"got {type(redact).__name__}"
        )
    if isinstance(questions, str | Path):
        if not Path(questions).exists():
            raise ConfigError(f"there is no file {str(questions)!r}; a single question goes in a list")
        questions = load_samples(questions)
    samples = []
    for item in questions:
        given = item if isinstance(item, str) else Sample.parse(getattr(item, "sample", item))
        redacted = given if redact is None else redact(given)
        kind = str if isinstance(given, str) else Sample
        if not isinstance(redacted, kind):
            raise ConfigError(f"redact must return a {kind.__name__}, got {type(redacted).__name__}")
        samples.append(Sample(question=redacted) if isinstance(redacted, str) else redacted)
    if not samples:
        raise ConfigError("adopt needs at least one question")
    return samples


class UserQuestionReview(AskingStep):
    """Step that rejects a user's question that is unclear on its own, and sets `answerable` of a clear question.

    `answerable` is True if the critic finds that the `passages` of the candidate answer the question.
    """

    def work(self, state: Candidate) -> Operation[Candidate]:
        """Ask the critic, in one call, whether the question is clear and whether the passages answer it.

        An unclear question is rejected. For a clear question, `answerable` becomes True if the critic finds that the
        passages answer it, else False.
        """
        inputs = {"question": state.standalone_question, "passages": state.shown()}
        review = yield from ask_step(self.model_step, inputs, state.drawn_text)
        if not review.standalone:
            return state.with_verdict(False, review.feedback).reject(Reason.QUESTION_REJECTED)
        return state.with_verdict(True, "").replace(answerable=review.answerable)


@dataclass
class Adoption:
    """One run that makes rows of a test set from users' questions.

    Attributes:
        generation: generation run over the documents. It supplies the passages, the models and the journal, and
            generates no questions.
        questions: users' questions, in order.
        results: accepted and rejected candidates with these questions, without duplicates.
    """

    generation: Generation
    questions: list[Sample]
    results: list[Candidate] = field(default_factory=list)

    def attempts(self) -> Operation[list[Attempt]]:
        """Embed passages and questions, and return an attempt for each group of near questions.

        `Generation.settle` runs the attempts. An attempt reviews the first question of the group, then answers the
        question or marks it as unanswerable.
        """
        yield from embed_passages(self.generation.store)
        vectors = yield from self.generation.vectors([_standalone(sample) for sample in self.questions])
        review = UserQuestionReview.of("review_question", self.generation.settings.critic)
        self._reviewing = self.generation.journaled(review)
        find, self._refusing, check = self.generation.answering_steps()
        self._answering = find | self._refusing | check
        calls = 4  # for one question: review, find the passages, answer, check the answer
        return [self.generation.check(self._answer(one), one, "adopt", calls) for one in self._candidates(vectors)]

    def _answer(self, state: Candidate) -> Operation[Candidate]:
        """Review the question, then answer it or mark it as unanswerable.

        If the review expects an answer but the writer finds none, the question is marked as unanswerable. If the review
        expects none but the writer finds one, the question is answered.
        """
        result: Candidate = yield InvokeChild(self._reviewing, state)
        reviewed = result
        for answerable in () if reviewed.rejected else (reviewed.answerable, not reviewed.answerable):
            step: Runnable[Candidate, Candidate] = self._answering if answerable else self._refusing
            result = yield InvokeChild(step, reviewed.replace(answerable=answerable))
            if result.rejected not in _DOUBTED:
                break
        return result

    def _candidates(self, vectors: Mapping[str, Any]) -> list[Candidate]:
        """Return one candidate for each group of equal or near questions, with the first question of the group.

        Near means a cosine of at least the generator's `dedupe`. `metadata["asked"]` is the size of the group.
        """
        store, seed = self.generation.store, self.generation.seed
        known, places = AcceptedQuestions(self.generation.settings.dedupe), dict[str, int]()
        candidates: list[Candidate] = []
        for sample in self.questions:
            text = _standalone(sample)
            passages = store.nearest_passages(text, vectors[text]) or store.passages[:1]
            metadata = {key: own for key, own in sample.metadata.items() if key not in ("standalone_question", "asked")}
            candidate = Candidate(passages=passages, question=text, evolution=ADOPTED, metadata=metadata, seed=seed)
            (earlier,) = known.add_new([candidate], [vectors[text]])
            place = places.setdefault(earlier or text, len(candidates))
            candidates += [] if earlier else [candidate]
            asked = candidates[place].metadata.get("asked", 0) + 1
            candidates[place] = candidates[place].replace(metadata={**candidates[place].metadata, "asked": asked})
        return candidates

    def testset(self) -> Testset:
        """Return a test set with the accepted questions as `rows` and the rejected candidates as `rejected`."""
        generation, rejected = self.generation, [one for one in self.results if one.rejected]
        accepted = [one for one in self.results if not one.rejected]
        reasons = [str(one.rejected) for one in rejected]
        yields = {"attempts": len(self.results), "rejected": {r: reasons.count(r) for r in dict.fromkeys(reasons)}}
        generation.stop_reason = Reason.BUDGET_SPENT if Reason.BUDGET_SPENT in reasons else ""
        generation.first_failure = next((one.history[-1].feedback for one in rejected if one.has_failed), "")
        return generation.finished(accepted, len(self.results), yields, rejected)


def _standalone(sample: Sample) -> str:
    return str(sample.metadata.get("standalone_question") or sample.question).strip()
