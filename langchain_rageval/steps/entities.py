"""Steps about entities: those of a text, and which of them contexts name."""

from __future__ import annotations

from collections.abc import Iterable

from langchain_rageval.data.schema import Finding, Sample
from langchain_rageval.errors import JudgeOutputError
from langchain_rageval.judge.asking import Attempts, JudgeQuestion, ask_judge, repeat_question, shared_question
from langchain_rageval.judge.judge import Judge, JudgeLike, Voter, voters_of
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Entities, FoundEntities, FoundEntity
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import (
    JudgeStep,
    NumberedTexts,
    State,
    agreement_rates,
    item_numbers,
    list_length,
    majority,
    most_items,
    numbers_by_place,
    request_items,
    slices,
)
from langchain_rageval.text.words import normalize_text


class ExtractEntities(JudgeStep):
    """Step that adds `reference_entities`, a list of str: the distinct entities of all references.

    Entities that differ only in case, ё or white space are the same; the first spelling is kept.
    """

    @property
    def shows_question(self) -> bool:
        """False: the question only determines the language of the prompt."""
        return False

    def work(self, state: State) -> Operation[State]:
        """Ask the judge for the entities of the references: one request per distinct reference that is not blank."""
        sample: Sample = state["sample"]
        texts = dict.fromkeys(text for text in sample.references if text.strip())
        parts: list[list[str]] = yield Gather([self._extract(sample.question, text) for text in texts])
        kept = [entities[: most_items(text)] for text, entities in zip(texts, parts, strict=True)]
        dropped = sum(map(len, parts)) - sum(map(len, kept))
        if dropped:
            state = state | {"dropped_entities": dropped}
        return state | {"reference_entities": _distinct(entity for entities in kept for entity in entities)}

    def _extract(self, question: str, text: str) -> Operation[list[str]]:
        limits = AnswerLimits(lengths=(("entities", list_length(text)),))
        judge_question = self.build_question({"text": text}, None, language_from=question, limits=limits)
        answer: Entities = yield self.ask(judge_question)
        return _distinct(entity.strip() for entity in answer.entities if entity.strip())


def extract_entities(judge: JudgeLike) -> JudgeStep:
    """Return the step that extracts the entities of the references."""
    return ExtractEntities(prompt="extract_entities", judge=Judge.of(judge), answer=Entities)


def _distinct(entities: Iterable[str]) -> list[str]:
    """Return the first spelling of each entity, in order."""
    spellings: dict[str, str] = {}
    for entity in entities:
        spellings.setdefault(normalize_text(entity), entity)
    return list(spellings.values())


_EvidenceByEntity = dict[int, list[str]]

FOUND, NOT_FOUND = "found", "not found"


class FindEntities(JudgeStep):
    """Step that adds `entity_verdicts`, a list of Finding: one for each entity in order, then the agreement rates.

    Entities are sent in slices of the judge's `max_statements`, contexts in windows of its `max_context_tokens`; an
    entity that any window names is found. Entities listed without an existing sentence number are asked for again,
    alone and once; the second reply is accepted as it is.
    """

    @property
    def shows_question(self) -> bool:
        """False: the question only determines the language of the prompt."""
        return False

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which entities the contexts name.

        One request per slice of at most `max_statements` entities, window (part of the contexts that fits one request)
        and vote (one repetition by one judge); no call without entities or sentences.
        """
        sample: Sample = state["sample"]
        entities = dict(enumerate(state["reference_entities"], 1))
        contexts = NumberedContexts.of(sample.contexts or [])
        voters = voters_of(self.judge) if entities and contexts.sentences else []
        votes: list[_EvidenceByEntity] = yield Gather(
            [self._vote(voter, sample.question, entities, contexts) for voter in voters]
        )
        findings = [_majority_finding(number, text, votes) for number, text in entities.items()]
        labels = [{number: FOUND if number in vote else NOT_FOUND for number in entities} for vote in votes]
        return state | {"entity_verdicts": [*findings, *agreement_rates(entities, voters, labels)]}

    def _vote(
        self, voter: Voter, question: str, entities: NumberedTexts, contexts: NumberedContexts
    ) -> Operation[_EvidenceByEntity]:
        windows = contexts.windows(voter.judge.max_context_tokens)
        parts: list[_EvidenceByEntity] = yield Gather(
            [
                self._find_shared(voter, question, part, window)
                for part in slices(entities, voter.judge.max_statements)
                for window in windows
            ]
        )
        return _merge(parts)

    def _find_shared(
        self, voter: Voter, question: str, part: NumberedTexts, window: NumberedContexts
    ) -> Operation[_EvidenceByEntity]:
        judge_question = self._judge_question(voter, question, part, window)
        work = self._find(voter, judge_question, question, part, window)
        evidence: _EvidenceByEntity = yield shared_question(voter.judge, judge_question, voter.draw, work, part)
        return evidence

    def _find(
        self,
        voter: Voter,
        judge_question: JudgeQuestion[FoundEntities],
        question: str,
        part: NumberedTexts,
        window: NumberedContexts,
    ) -> Operation[_EvidenceByEntity]:
        """Ask one judge which entities a window names; repeat the question once for entities without evidence."""
        attempts = Attempts(voter.judge.attempts)
        reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
        entities = _known_entities(reply.found, part, window)
        unproven = {number: part[number] for number, evidence in entities.items() if not evidence}
        if not unproven or not attempts.left:
            return entities
        judge_question = repeat_question(self._judge_question(voter, question, unproven, window))
        try:
            reply = yield from ask_judge(voter.judge, judge_question, attempts, voter.draw)
        except JudgeOutputError:
            return entities
        proven = {number: evidence for number, evidence in entities.items() if evidence}
        return proven | _known_entities(reply.found, unproven, window)

    def _judge_question(
        self, voter: Voter, question: str, part: NumberedTexts, window: NumberedContexts
    ) -> JudgeQuestion[FoundEntities]:
        inputs = {"entities": request_items("entity", part)}
        limits = AnswerLimits(
            values=(("entity", item_numbers(len(part))), ("evidence", tuple(window.sentences))),
            lengths=(("found", len(part)),),
        )
        return self.build_question(inputs, window, language_from=question, judge=voter.judge, limits=limits)


def find_entities(judge: JudgeLike) -> JudgeStep:
    """Return the step that finds the entities of `extract_entities` in the contexts."""
    return FindEntities(prompt="find_entities", judge=Judge.of(judge), answer=FoundEntities)


def _known_entities(
    items: Iterable[FoundEntity], entities: NumberedTexts, window: NumberedContexts
) -> _EvidenceByEntity:
    """Map the entities' own numbers to existing sentence numbers. Unknown entities are dropped, duplicates merged."""
    numbers = numbers_by_place(entities)
    return _merge({numbers[item.entity]: window.resolve(item.evidence)} for item in items if item.entity in numbers)


def _merge(parts: Iterable[_EvidenceByEntity]) -> _EvidenceByEntity:
    """Merge the evidence (sentence numbers by entity) of several slices and windows."""
    merged: _EvidenceByEntity = {}
    for part in parts:
        for number, evidence in part.items():
            merged[number] = list(dict.fromkeys([*merged.get(number, []), *evidence]))
    return merged


def _majority_finding(number: int, text: str, votes: list[_EvidenceByEntity]) -> Finding:
    is_found = bool(votes) and majority([number in vote for vote in votes], tie=False)
    cites = _merge(votes).get(number, []) if is_found else []
    return Finding(kind="entity", number=number, text=text, verdict=FOUND if is_found else NOT_FOUND, cites=cites)
