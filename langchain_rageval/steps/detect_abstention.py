"""Detect whether the answer, or the references, leave the question unanswered."""

from __future__ import annotations

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import Abstention
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.extract_statements import Side
from langchain_rageval.steps.step import State, Step
from langchain_rageval.steps.votes import agreement, majority

ABSTAINS, ANSWERS = "abstains", "answers"


class DetectAbstention(Step):
    """Adds `<of>_abstention`, a list of Finding: one for each text, each with the agreement of votes behind it.

    The answer is number 1; the references that are not blank are numbers from 2 on. A blank answer abstains.
    """

    of: Side

    def work(self, state: State) -> Operation[State]:
        """One call for each text and vote; none for a blank answer."""
        sample: Sample = state["sample"]
        if self.of == "answer":
            texts = {1: sample.answer or ""}
        else:
            texts = {number: text for number, text in enumerate(sample.references, 2) if text.strip()}
        found: list[list[Finding]] = yield Gather([self._detect(sample.question, *item) for item in texts.items()])
        return state | {f"{self.of}_abstention": [finding for part in found for finding in part]}

    def _detect(self, question: str, number: int, text: str) -> Operation[list[Finding]]:
        voters = voters_of(self.judge) if text.strip() else []
        given: list[Abstention] = yield Gather([self._vote(voter, question, text) for voter in voters])
        votes = given or [Abstention(reason="", abstains=True)]
        abstains = majority([vote.abstains for vote in votes], tie=False)
        reasons = dict.fromkeys(vote.reason for vote in votes if vote.abstains == abstains)
        judged, verdict = f"the {self.of}", _label(abstains)
        finding = Finding(kind="criterion", number=number, text=judged, verdict=verdict, reason=" ".join(reasons))
        labels = [{number: _label(vote.abstains)} for vote in votes]
        return [finding, *agreement({number: judged}, voters, labels)]

    def _vote(self, voter: Voter, question: str, text: str) -> Operation[Abstention]:
        inputs = {"question": question, "answer": text}
        answer: Abstention = yield self.asked(
            self.question(inputs, None, language_from=question, judge=voter.judge), voter
        )
        return answer


def detect_abstention(judge: JudgeLike, *, of: Side) -> Step:
    """The step that says whether the "answer", or each "reference", leaves the question unanswered."""
    return DetectAbstention(prompt="detect_abstention", judge=Judge.of(judge), answer=Abstention, of=of)


def _label(abstains: bool) -> str:
    return ABSTAINS if abstains else ANSWERS
