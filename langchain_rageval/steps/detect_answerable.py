"""Detect whether the contexts answer the question.

The judge reads the question and numbered contexts. Adds `answerable`, a list of Finding: one with the verdict "answer"
or "do not answer", then the agreement rate if there are several votes. Makes no call if the contexts have no sentences;
the verdict is then "do not answer".
"""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import Answerable
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State
from langchain_rageval.steps.votes import agreement_rates, majority, mean_probabilities

ANSWERABLE, UNANSWERABLE = "answer", "do not answer"


class DetectAnswerable(JudgeStep):
    """Step that adds `answerable`, a list of Finding: the verdict on the contexts, then the agreement rate.

    Contexts are sent in windows of the judge's `max_context_tokens`. One window that answers is enough; an answer that
    has to be combined from two windows is missed.
    """

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether the contexts answer the question.

        One request per window (part of the contexts that fits one request) and vote (one repetition by one judge); no
        call if the contexts have no sentences.
        """
        sample: Sample = state["sample"]
        contexts = NumberedContexts.of(sample.contexts or [])
        voters = voters_of(self.judge) if contexts.sentences else []
        replies: list[Answerable] = yield Gather([self._vote(voter, sample.question, contexts) for voter in voters])
        votes = replies or [Answerable(reason="", answerable=False)]
        answerable = majority([vote.answerable for vote in votes], tie=False)
        reasons = dict.fromkeys(vote.reason for vote in votes if vote.answerable == answerable)
        finding = Finding(
            kind="criterion",
            number=2,
            text="the contexts",
            verdict=_label(answerable),
            reason=" ".join(reasons),
            probabilities=mean_probabilities(votes, "answerable", {"true": _label(True), "false": _label(False)}),
        )
        labels = [{2: _label(vote.answerable)} for vote in votes]
        return state | {"answerable": [finding, *agreement_rates({2: finding.text}, voters, labels)]}

    def _vote(self, voter: Voter, question: str, contexts: NumberedContexts) -> Operation[Answerable]:
        """Return the verdict of one vote: answerable if any window is, with the reasons of the windows that decide."""
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[Answerable] = yield Gather([self._detect(voter, question, window) for window in windows])
        answerable = any(part.answerable for part in parts)
        reasons = dict.fromkeys(part.reason for part in parts if part.answerable == answerable)
        return Answerable(reason=" ".join(reasons), answerable=answerable)

    def _detect(self, voter: Voter, question: str, window: NumberedContexts) -> Operation[Answerable]:
        judge_question = self.build_question(
            {"question": question}, window, language_from=question, judge=voter.judge, limits=AnswerLimits()
        )
        answer: Answerable = yield self.ask(judge_question, voter)
        return answer


def detect_answerable(judge: JudgeLike) -> JudgeStep:
    """Return the step that decides whether the contexts answer the question."""
    return DetectAnswerable(prompt="detect_answerable", judge=Judge.of(judge), answer=Answerable)


def _label(answerable: bool) -> str:
    return ANSWERABLE if answerable else UNANSWERABLE
