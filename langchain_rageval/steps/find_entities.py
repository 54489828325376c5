"""Find which entities the contexts name, with the sentences that name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.judge.voting import Voter, voters_of
from langchain_rageval.prompts.answer_schemas import FoundEntities, FoundEntity
from langchain_rageval.prompts.numbered_contexts import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.step import State, Step, slices
from langchain_rageval.steps.votes import agreement, majority

Numbered = Mapping[int, str]
Evidence = dict[int, list[str]]

FOUND, LOST = "found", "not found"


class FindEntities(Step):
    """Adds `entity_verdicts`, a list of Finding: one for each entity in order, then the agreement of votes.

    Entities go out in slices of the judge's `max_statements`, contexts in windows of its `max_context_tokens`; one that
    any window names is found. What the judge lists without a sentence that exists is asked about again, alone and once;
    then its word stands.
    """

    def work(self, state: State) -> Operation[State]:
        """One call for each slice, window and vote; none without entities or sentences."""
        sample: Sample = state["sample"]
        entities = dict(enumerate(state["reference_entities"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        voters = voters_of(self.judge) if entities and contexts.sentences else []
        votes: list[Evidence] = yield Gather(
            [self._vote(voter, sample.question, entities, contexts) for voter in voters]
        )
        findings = [_decided(number, text, votes) for number, text in entities.items()]
        labels = [{number: FOUND if number in vote else LOST for number in entities} for vote in votes]
        return state | {"entity_verdicts": [*findings, *agreement(entities, voters, labels)]}

    def _vote(self, voter: Voter, question: str, entities: Numbered, contexts: NumberedContexts) -> Operation[Evidence]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[Evidence] = yield Gather(
            [
                self._share(voter, question, part, window)
                for part in slices(entities, voter.judge.max_statements)
                for window in windows
            ]
        )
        return _united(parts)

    def _share(self, voter: Voter, question: str, part: Numbered, window: NumberedContexts) -> Operation[Evidence]:
        asked = self._asked(voter, question, part, window)
        work = self._find(voter, asked, question, part, window)
        found: Evidence = yield shared_question(voter.judge, asked, voter.draw, work)
        return found

    def _find(
        self,
        voter: Voter,
        asked: JudgeQuestion[FoundEntities],
        question: str,
        part: Numbered,
        window: NumberedContexts,
    ) -> Operation[Evidence]:
        """Ask, and once more for what is said to be found nowhere."""
        attempts = Attempts(voter.judge.attempts)
        reply = yield from ask_judge(voter.judge, asked, attempts, voter.draw)
        found = _listed(reply.found, part, window)
        nowhere = {number: part[number] for number, evidence in found.items() if not evidence}
        if not nowhere or not attempts.left:
            return found
        try:
            again = yield from ask_judge(
                voter.judge, self._asked(voter, question, nowhere, window), attempts, voter.draw
            )
        except JudgeOutputError:
            return found
        sure = {number: evidence for number, evidence in found.items() if evidence}
        return sure | _listed(again.found, nowhere, window)

    def _asked(
        self, voter: Voter, question: str, part: Numbered, window: NumberedContexts
    ) -> JudgeQuestion[FoundEntities]:
        inputs = {"entities": [{"entity": number, "text": text} for number, text in part.items()]}
        return self.question(inputs, window, language_from=question, judge=voter.judge)


def find_entities(judge: JudgeLike) -> Step:
    """The step that looks for the entities of `extract_entities` in the contexts."""
    return FindEntities(prompt="find_entities", judge=Judge.of(judge), answer=FoundEntities)


def _listed(given: Iterable[FoundEntity], asked: Numbered, window: NumberedContexts) -> Evidence:
    """Number of each entity to the sentences that name it: unknown numbers dropped, doubles united."""
    return _united({item.entity: window.cited(item.evidence)} for item in given if item.entity in asked)


def _united(parts: Iterable[Evidence]) -> Evidence:
    """What any part finds, with the sentences of all."""
    united: Evidence = {}
    for part in parts:
        for number, evidence in part.items():
            united[number] = list(dict.fromkeys([*united.get(number, []), *evidence]))
    return united


def _decided(number: int, text: str, votes: list[Evidence]) -> Finding:
    found = bool(votes) and majority([number in vote for vote in votes], tie=False)
    cites = _united(votes).get(number, []) if found else []
    return Finding(kind="entity", number=number, text=text, verdict=FOUND if found else LOST, cites=cites)
