"""Steps that ask for one verdict on a text: whether an answer abstains, and whether a question can be answered."""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import Abstention, Answerable, AnswerLimits
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.judge_step import JudgeStep, State, agreement_rates, majority, mean_probabilities

ABSTAINS, ANSWERS = "abstains", "answers"

_ABSTENTION_LABELS = {"true": ABSTAINS, "false": ANSWERS}


class DetectAbstention(JudgeStep):
    """Step that adds `<of>_abstention`, a list of Finding: one for each text, each followed by its agreement rate.

    The answer has number 1, the references have numbers from 2; blank references are left out. A blank answer abstains.
    """

    of: Side

    def work(self, state: State) -> Operation[State]:
        """Ask the judge whether each text leaves the question unanswered.

        One request per text and vote (one repetition by one judge); no call for a blank text.
        """
        sample: Sample = state["sample"]
        if self.of == "answer":
            texts = {1: sample.answer or ""}
        else:
            texts = {number: text for number, text in enumerate(sample.references, 2) if text.strip()}
        parts: list[list[Finding]] = yield Gather([self._detect(sample.question, *item) for item in texts.items()])
        return state | {f"{self.of}_abstention": [finding for part in parts for finding in part]}

    def _detect(self, question: str, number: int, text: str) -> Operation[list[Finding]]:
        voters = voters_of(self.judge) if text.strip() else []
        replies: list[Abstention] = yield Gather([self._vote(voter, question, text) for voter in voters])
        votes = replies or [Abstention(reason="", abstains=True)]
        abstains = majority([vote.abstains for vote in votes], tie=False)
        reasons = dict.fromkeys(vote.reason for vote in votes if vote.abstains == abstains)
        subject, verdict = f"the {self.of}", _abstention_label(abstains)
        finding = Finding(
            kind="criterion",
            number=number,
            text=subject,
            verdict=verdict,
            reason=" ".join(reasons),
            probabilities=mean_probabilities(votes, "abstains", _ABSTENTION_LABELS),
        )
        labels = [{number: _abstention_label(vote.abstains)} for vote in votes]
        return [finding, *agreement_rates({number: subject}, voters, labels)]

    def _vote(self, voter: Voter, question: str, text: str) -> Operation[Abstention]:
        inputs = {"question": question, "answer": text}
        answer: Abstention = yield self.ask(
            self.build_question(inputs, None, language_from=question, judge=voter.judge, limits=AnswerLimits()), voter
        )
        return answer


def detect_abstention(judge: JudgeLike, *, of: Side) -> JudgeStep:
    """Return the step that decides whether the "answer", or each "reference", leaves the question unanswered."""
    return DetectAbstention(prompt="detect_abstention", judge=Judge.of(judge), answer=Abstention, of=of)


def _abstention_label(abstains: bool) -> str:
    return ABSTAINS if abstains else ANSWERS


ANSWERABLE, UNANSWERABLE = "answer", "do not answer"
_ANSWERABLE_LABELS = {"true": ANSWERABLE, "false": UNANSWERABLE}


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
            verdict=_answerable_label(answerable),
            reason=" ".join(reasons),
            probabilities=mean_probabilities(votes, "answerable", _ANSWERABLE_LABELS),
        )
        labels = [{2: _answerable_label(vote.answerable)} for vote in votes]
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


def _answerable_label(answerable: bool) -> str:
    return ANSWERABLE if answerable else UNANSWERABLE
