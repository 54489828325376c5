"""Detect whether the answer, or the references, leave the question unanswered."""

from __future__ import annotations

from langchain_rageval.answers import Abstention
from langchain_rageval.judge.judge import Ballot, Judge, JudgeLike
from langchain_rageval.run.work import Together, Work
from langchain_rageval.schema import Finding, Sample
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement, majority

ABSTAINS, ANSWERS = "abstains", "answers"


class DetectAbstention(Step):
    """Adds `<of>_abstention`, a list of Finding: one for each text, each with the agreement of votes behind it.

    The answer is number 1; the references that are not blank are numbers from 2 on. A blank answer abstains.
    """

    of: Side

    def work(self, state: State) -> Work[State]:
        """One call for each text and vote; none for a blank answer."""
        sample: Sample = state["sample"]
        if self.of == "answer":
            texts = {1: sample.answer or ""}
        else:
            texts = {number: text for number, text in enumerate(sample.references, 2) if text.strip()}
        found: list[list[Finding]] = yield Together([self._detect(sample.question, *item) for item in texts.items()])
        return state | {f"{self.of}_abstention": [finding for part in found for finding in part]}

    def _detect(self, question: str, number: int, text: str) -> Work[list[Finding]]:
        ballots = self.judge.ballots if text.strip() else []
        given: list[Abstention] = yield Together([self._vote(ballot, question, text) for ballot in ballots])
        votes = given or [Abstention(reason="", abstains=True)]
        abstains = majority([vote.abstains for vote in votes], tie=False)
        reasons = dict.fromkeys(vote.reason for vote in votes if vote.abstains == abstains)
        judged, verdict = f"the {self.of}", _label(abstains)
        finding = Finding(kind="criterion", number=number, text=judged, verdict=verdict, reason=" ".join(reasons))
        labels = [{number: _label(vote.abstains)} for vote in votes]
        return [finding, *agreement({number: judged}, ballots, labels)]

    def _vote(self, ballot: Ballot, question: str, text: str) -> Work[Abstention]:
        inputs = {"question": question, "answer": text}
        answer: Abstention = yield self.asked(
            self.question(inputs, None, language_from=question, judge=ballot.judge), ballot
        )
        return answer


def detect_abstention(judge: JudgeLike, *, of: Side) -> Step:
    """The step that says whether the "answer", or each "reference", leaves the question unanswered."""
    return DetectAbstention(prompt="detect_abstention", judge=Judge.of(judge), answer=Abstention, of=of)


def _label(abstains: bool) -> str:
    return ABSTAINS if abstains else ANSWERS
