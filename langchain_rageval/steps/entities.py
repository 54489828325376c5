"""Steps about entities: extract the entities of the references, and search the contexts for these entities."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_schemas import AnswerLimits, Entities, FoundEntities
from langchain_rageval.prompts.layout import NumberedContexts
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.item_step import Items, ItemStep, Ruling, Rulings, numbered_items, request_items
from langchain_rageval.steps.judge_step import JudgeStep, list_length, most_items
from langchain_rageval.steps.stage import State
from langchain_rageval.text.words import normalize_text


class ExtractEntities(JudgeStep):
    """Step that adds `reference_entities`, a list of str: the distinct entities of all references.

    Entities that differ only in case, ё or white space count as one entity; the first spelling is kept.
    """

    reads_question = False

    def work(self, state: State) -> Operation[State]:
        """Add the entities that the judge lists; one request per distinct reference that is not blank."""
        sample: Sample = state["sample"]
        texts = dict.fromkeys(text for text in sample.references if text.strip())
        parts: list[list[str]] = yield Gather([self._extract(sample.language_text, text) for text in texts])
        kept = [entities[: most_items(text)] for text, entities in zip(texts, parts, strict=True)]
        dropped = sum(map(len, parts)) - sum(map(len, kept))
        if dropped:
            state = state | {"dropped_entities": dropped}
        return state | {"reference_entities": _distinct(entity for entities in kept for entity in entities)}

    def _extract(self, question: str, text: str) -> Operation[list[str]]:
        limits = AnswerLimits(lengths=(("entities", list_length(text)),))
        answer: Entities = yield from self._answer({"text": text}, None, language_from=question, limits=limits)
        return _distinct(entity.strip() for entity in answer.entities if entity.strip())


def extract_entities(judge: JudgeLike) -> JudgeStep:
    """Return the step that extracts the entities of the references, and adds them as `reference_entities`."""
    return ExtractEntities(prompt="extract_entities", judge=judge, answer=Entities)


def _distinct(entities: Iterable[str]) -> list[str]:
    """Return the first spelling of each entity, in order."""
    spellings: dict[str, str] = {}
    for entity in entities:
        spellings.setdefault(normalize_text(entity), entity)
    return list(spellings.values())


FOUND, NOT_FOUND = "found", "not found"


class FindEntities(ItemStep):
    """Step that adds the list `entity_verdicts`: a Finding per entity in order, then the agreement of votes, if any.

    The verdict is "found" if any window (part of the contexts) names the entity, else "not found". If the judge lists
    an entity as found but cites no existing sentence of the contexts, the judge is asked once more, about such entities
    alone; the second reply is accepted unchanged.
    """

    number_field = "entity"
    is_proved = True
    joins_reasons = True

    reads_question = False

    def work(self, state: State) -> Operation[State]:
        """Ask the judge which entities the contexts name, and add the findings to the state.

        Makes one request per slice (at most `max_statements` entities), window (part of the contexts that fits one
        request) and vote (one repetition by one judge); none if there are no entities or sentences.
        """
        sample: Sample = state["sample"]
        entities = numbered_items(state["reference_entities"], "entity", (FOUND, NOT_FOUND))
        findings = yield from self.rule_on(sample, entities, NumberedContexts.of(sample.contexts or []))
        return state | {"entity_verdicts": findings}

    def _inputs(self, judge: Judge, sample: Sample, items: Items, shown: Any) -> Mapping[str, Any]:
        return {"entities": request_items("entity", items)}

    def _limits(self, items: Items, shown: Any) -> AnswerLimits:
        return AnswerLimits(
            values=(("entity", tuple(range(1, len(items) + 1))), ("evidence", tuple(shown.sentences))),
            lengths=(("found", len(items)),),
        )

    def _read(self, answer: Any, items: Items, shown: Any) -> Rulings:
        rulings = {key: Ruling(NOT_FOUND) for key in items}
        for found in answer.found:
            if (key := self._key(found, items, shown)) in items:
                cites = dict.fromkeys([*rulings[key].cites, *shown.resolve(found.evidence)])
                rulings[key] = Ruling(FOUND, cites=tuple(cites))
        return rulings


def find_entities(judge: JudgeLike) -> JudgeStep:
    """Return the step that searches the contexts for the references' entities, and adds `entity_verdicts`.

    The step reads these entities from `reference_entities` in the state, to which `extract_entities` adds them.
    """
    return FindEntities(prompt="find_entities", judge=judge, answer=FoundEntities)
