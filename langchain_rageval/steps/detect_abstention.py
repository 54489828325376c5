"""Detect whether the answer, or each reference, leaves the question unanswered.

The judge reads the question and one text. Adds `answer_abstention` or `reference_abstention`, a list of Finding: for
each text in order one with the verdict "abstains" or "answers", followed by its agreement rate if there are several
votes. Makes no call for a blank answer, which abstains; blank references are left out.
"""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import Abstention
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.judge_step import JudgeStep, State
from langchain_rageval.steps.votes import agreement_rates, majority, mean_probabilities

ABSTAINS, ANSWERS = "abstains", "answers"


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
        subject, verdict = f"the {self.of}", _label(abstains)
        finding = Finding(
            kind="criterion",
            number=number,
            text=subject,
            verdict=verdict,
            reason=" ".join(reasons),
            probabilities=mean_probabilities(votes, "abstains", {"true": _label(True), "false": _label(False)}),
        )
        labels = [{number: _label(vote.abstains)} for vote in votes]
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


def _label(abstains: bool) -> str:
    return ABSTAINS if abstains else ANSWERS
