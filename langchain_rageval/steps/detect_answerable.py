"""Detect whether the contexts answer the question."""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import Answerable
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement, majority

ANSWERABLE, UNANSWERABLE = "answer", "do not answer"


class DetectAnswerable(Step):
    """Adds `answerable`, a list of Finding: whether the contexts answer the question, then the agreement of votes.

    Over windows of the judge's `max_context_tokens`, one that answers is enough; an answer that has to be put together
    from two windows is missed.
    """

    def work(self, state: State) -> Operation[State]:
        """One call for each window and vote; none when there is no sentence."""
        sample: Sample = state["sample"]
        contexts = NumberedContexts.of(sample.contexts or [])
        voters = voters_of(self.judge) if contexts.sentences else []
        given: list[Answerable] = yield Gather([self._vote(b, sample.question, contexts) for b in voters])
        votes = given or [Answerable(reason="", answerable=False)]
        answerable = majority([vote.answerable for vote in votes], tie=False)
        reasons = dict.fromkeys(vote.reason for vote in votes if vote.answerable == answerable)
        finding = Finding(
            kind="criterion", number=2, text="the contexts", verdict=_label(answerable), reason=" ".join(reasons)
        )
        labels = [{2: _label(vote.answerable)} for vote in votes]
        return state | {"answerable": [finding, *agreement({2: finding.text}, voters, labels)]}

    def _vote(self, voter: Voter, question: str, contexts: NumberedContexts) -> Operation[Answerable]:
        """What any window answers is answerable, with the reasons of those that say so."""
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[Answerable] = yield Gather([self._detect(voter, question, window) for window in windows])
        answerable = any(part.answerable for part in parts)
        reasons = dict.fromkeys(part.reason for part in parts if part.answerable == answerable)
        return Answerable(reason=" ".join(reasons), answerable=answerable)

    def _detect(self, voter: Voter, question: str, window: NumberedContexts) -> Operation[Answerable]:
        asked = self.question({"question": question}, window, language_from=question, judge=voter.judge)
        answer: Answerable = yield self.asked(asked, voter)
        return answer


def detect_answerable(judge: JudgeLike) -> Step:
    """The step that says whether the question can be answered from the contexts."""
    return DetectAnswerable(prompt="detect_answerable", judge=Judge.of(judge), answer=Answerable)


def _label(answerable: bool) -> str:
    return ANSWERABLE if answerable else UNANSWERABLE
