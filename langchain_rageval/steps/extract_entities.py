"""Extract the entities that the references name.

The judge reads one reference. Adds `reference_entities`, a list of str: the distinct entities of all references in
order of appearance. Makes no call for blank references; the list is empty if all are blank. Entities beyond the number
that the references can hold are dropped; `dropped_entities` is their number, if there are any.
"""

from __future__ import annotations

from collections.abc import Iterable

from langchain_rageval.data.schema import Sample
from langchain_rageval.judge.judge import Judge, JudgeLike
from langchain_rageval.prompts.answer_limits import AnswerLimits
from langchain_rageval.prompts.answer_schemas import Entities
from langchain_rageval.run.requests import Gather, Operation
from langchain_rageval.steps.judge_step import JudgeStep, State, list_length, most_items
from langchain_rageval.text.normalization import normalize_text


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
